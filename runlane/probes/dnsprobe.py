"""Names under a domain and their records: by zone transfer where a server allows it, else by a word list."""

import asyncio
import secrets
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from runlane.probes.egress import Egress
from runlane.probes.job import BadInput, Done, Emit, ProbeJob, Refused
from runlane.probes.resolver import NoVerdict, Resolver
from runlane.probes.stream import serve_stream
from runlane.probes.transfer import ZoneCopy, is_below_any, transfer_zone
from runlane.probes.words import DEFAULT_WORDS
from runlane.tools import TOOLS
from runlane.tools.hosts import MalformedHost, is_under, normalise_name
from runlane.tools.subdomains import RECORD_TYPES

Records: TypeAlias = Mapping[str, tuple[str, ...]]

DEFAULT_CONCURRENCY: Final = 20
MAX_WORDS: Final = 10_000
MAX_NAMES: Final = 10_000
"""Names that are asked about; a zone with more gives an incomplete result."""

WILDCARD_TRIES: Final = 3
"""Names that cannot exist and are asked for all the same: what they lead to is the wildcard."""

_WITHOUT_NAMES: Final = frozenset({"ip", "cidr"})
_MAX_SERVERS: Final = 4
_DNS_PORT: Final = 53
_POINTERS: Final = ("CNAME", "MX", "NS")


async def run_job(job: ProbeJob, emit: Emit) -> Done:
    """Surveys one domain. Under an address or a network there are no names: an empty result."""
    if job.target.kind in _WITHOUT_NAMES:
        return Done()
    survey = _Survey(_zone_of(job), job, emit)
    copy = await survey.copy_zone()
    methods = []
    if copy is not None:
        methods.append("axfr")
        await survey.report_copy(copy)
    if copy is None or not copy.is_complete:
        methods.append("wordlist")
        await survey.try_words(_words_of(job))
    coverage = {"zone": survey.zone, "method": methods}
    return Done(complete=survey.is_complete, reachable=True, coverage=coverage)


class _Survey:
    """One domain being surveyed; a name is asked about and reported at most once."""

    def __init__(self, zone: str, job: ProbeJob, emit: Emit) -> None:
        self.zone = zone
        self.is_complete = True
        self._resolver = Resolver(job.options.resolver)
        self._egress = Egress(job.options)
        self._server = job.options.resolver
        self._slots = asyncio.Semaphore(job.options.integer("concurrency", DEFAULT_CONCURRENCY, 1, 100))
        self._emit = emit
        self._seen: set[str] = set()
        self._wildcard: frozenset[str] = frozenset()

    async def copy_zone(self) -> ZoneCopy | None:
        """The zone from the first of its servers that gives it; the best incomplete copy otherwise.

        Raises:
            NoVerdict: the resolver does not even know the zone's servers.
        """
        best: ZoneCopy | None = None
        for address, port in await self._servers():
            try:
                sock = await self._egress.connect(address, port)
            except (OSError, Refused):
                continue
            copy = await transfer_zone(sock, self.zone)
            if copy is not None and copy.is_complete:
                return copy
            best = best or copy
        return best

    async def report_copy(self, copy: ZoneCopy) -> None:
        """Reports what a transfer gave; names that the zone delegates are asked about."""
        delegated = []
        cuts = copy.cuts()
        for name, records in list(copy.names.items())[:MAX_NAMES]:
            if is_below_any(name, cuts):
                delegated.append(name)
            else:
                self._seen.add(name)
                await self._report(name, {kind: tuple(values) for kind, values in records.items()})
        await self._ask_all(delegated)

    async def try_words(self, words: Iterable[str]) -> None:
        """Asks about the zone itself, each word under it, and what their records point to."""
        self._wildcard = await self._find_wildcard()
        await self._ask_all([self.zone, *(f"{word}.{self.zone}" for word in words)])

    async def _servers(self) -> list[tuple[str, int]]:
        servers = [] if self._server is None else [self._server]
        for host in await self._resolver.records(self.zone, "NS") or ():
            with suppress(Refused, NoVerdict):
                addresses = await self._egress.resolve(host.removesuffix("."))
                servers += [(address, _DNS_PORT) for address in addresses]
        return servers[:_MAX_SERVERS]

    async def _find_wildcard(self) -> frozenset[str]:
        found: set[str] = set()
        for _ in range(WILDCARD_TRIES):
            records = await self._ask(f"{secrets.token_hex(8)}.{self.zone}")
            found |= _values(records)
        return frozenset(found)

    async def _ask_all(self, names: Iterable[str]) -> None:
        """Asks about names, then about the names that their records point to, until there are no more."""
        fresh = [name for name in dict.fromkeys(names) if name not in self._seen]
        while fresh:
            if len(self._seen) + len(fresh) > MAX_NAMES:
                self.is_complete = False
                fresh = fresh[: MAX_NAMES - len(self._seen)]
            self._seen.update(fresh)
            async with asyncio.TaskGroup() as group:
                questions = [group.create_task(self._survey(name)) for name in fresh]
            pointed = dict.fromkeys(name for question in questions for name in question.result())
            fresh = [name for name in pointed if name not in self._seen]

    async def _survey(self, name: str) -> list[str]:
        """Asks about one name and reports it if it exists; returns the names in the zone it points to."""
        async with self._slots:
            records = await self._ask(name)
        if not records or (name != self.zone and self._is_wildcard(records)):
            return []
        await self._report(name, records)
        return [
            target
            for kind in _POINTERS
            for value in records.get(kind, ())
            if (target := _name_in(value)) is not None and is_under(target, self.zone)
        ]

    async def _ask(self, name: str) -> Records:
        """Everything that `name` has; empty if it does not exist or only has names below it."""
        records: dict[str, tuple[str, ...]] = {}
        for kind in RECORD_TYPES:
            try:
                values = await self._resolver.records(name, kind)
            except NoVerdict:
                self.is_complete = False
                break  # a server that is silent about one type keeps us waiting for each of the others
            if values is None:
                return {}
            if values:
                records[kind] = values
            if "CNAME" in records:
                break  # an alias has no other records
        return records

    async def _report(self, name: str, records: Records) -> None:
        known = {kind: sorted(records[kind]) for kind in RECORD_TYPES if records.get(kind)}
        await self._emit({"name": name, "records": known})

    def _is_wildcard(self, records: Records) -> bool:
        return _values(records) <= self._wildcard


def _values(records: Records) -> set[str]:
    return {f"{kind} {value}" for kind, values in records.items() for value in values}


def _name_in(value: str) -> str | None:
    """The name at the end of a CNAME, MX or NS record."""
    with suppress(MalformedHost):
        return normalise_name(value.rsplit(maxsplit=1)[-1], underscores=True)
    return None


def _zone_of(job: ProbeJob) -> str:
    try:
        return normalise_name(job.target.host, underscores=True)
    except MalformedHost as error:
        raise BadInput(f"target.host: a domain is needed: {error}") from error


def _words_of(job: ProbeJob) -> list[str]:
    words = job.options.texts("wordlist")
    if words is None:
        return list(DEFAULT_WORDS)
    if len(words) > MAX_WORDS:
        raise BadInput(f"option wordlist: at most {MAX_WORDS} words")
    try:
        return [normalise_name(word, underscores=True) for word in words]
    except MalformedHost as error:
        raise BadInput(f"option wordlist: {error}") from error


def main() -> int:
    """Runs the probe on fd 0 and fd 1."""
    return serve_stream(TOOLS["dnsprobe"], run_job)


if __name__ == "__main__":
    sys.exit(main())
