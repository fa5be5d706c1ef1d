"""subfinder and dnsx: names that third parties know of under a domain, then what the DNS says of each.

A name that no longer resolves is not reported: dnsx decides.
"""

from collections.abc import Sequence
from typing import Final

from runlane.tools.adapters.adapter import (
    Adapter,
    Command,
    Conclusion,
    Each,
    Ended,
    Raw,
    Reader,
    ToolJob,
    Workplace,
)
from runlane.tools.adapters.jobs import BadTarget
from runlane.tools.adapters.jsonl import read_object, texts_of
from runlane.tools.adapters.options import Options, Whole, Words
from runlane.tools.adapters.projectdiscovery import GO_ADDRESS_SPACE, program
from runlane.tools.hosts import MalformedHost, is_under, normalise_name
from runlane.tools.providers import ProviderKeys, provider_file
from runlane.tools.records import Fields, MalformedRecord
from runlane.tools.subdomains import RECORD_TYPES

_MAX_NAMES: Final = 100_000
_KEYS_FILE: Final = "providers.yaml"


def find_names(job: ToolJob, options: Options, place: Workplace) -> tuple[Command, Reader]:
    """Asks third parties for names; the domain goes over standard input, keys in a private file.

    Raises:
        BadTarget: the host is bound to an internal network: no third party hears of what is inside.
    """
    if options.is_bound:
        raise BadTarget("third parties are not asked about what is in an internal network")
    sources = options.words("sources")
    keys = provider_file(options.values.get("providers"))
    argv = (
        *("subfinder", "-json", "-silent", "-no-color", "-disable-update-check"),
        *("-timeout", str(options.whole("request_s", 30))),
        *("-max-time", str(options.whole("search_min", 5))),
        *(("-sources", ",".join(sources)) if sources else ()),
        *(("-provider-config", f"{place.folder}/{_KEYS_FILE}") if keys else ()),
    )
    files = {_KEYS_FILE: keys} if keys else {}
    return Command(argv, f"{job.host}\n".encode(), files=files), _Names(job.host)


def resolve_names(job: ToolJob, options: Options, place: Workplace) -> tuple[Command, Reader]:
    """Asks the DNS for every name that was found and for the domain itself."""
    found = sorted({job.host, *(str(record["name"]) for record in place.found)})[:_MAX_NAMES]
    argv = (
        *("dnsx", "-json", "-silent", "-disable-update-check", "-omit-raw"),
        *("-a", "-aaaa", "-cname", "-mx", "-ns", "-txt", "-soa"),
        *("-rate-limit", str(options.rate("rate", 200))),
        *(("-resolver", options.resolver) if options.resolver is not None else ()),
    )
    return Command(argv, "".join(f"{name}\n" for name in found).encode()), _Resolved(job.host)


class _Names:
    def __init__(self, zone: str) -> None:
        self._zone = zone

    def feed(self, line: bytes) -> Sequence[Raw]:
        name = _name(read_object(line), self._zone)
        return [{"name": name}]

    def conclude(self, ended: Ended) -> Conclusion:
        if ended.code:
            return Conclusion(failure=f"exit code {ended.code}")
        return Conclusion()


class _Resolved:
    def __init__(self, zone: str) -> None:
        self._zone = zone

    def feed(self, line: bytes) -> Sequence[Raw]:
        fields = read_object(line)
        records = {kind: _values(fields, kind.lower()) for kind in RECORD_TYPES}
        kept = {kind: values for kind, values in records.items() if values}
        return [{"name": _name(fields, self._zone), "records": kept}] if kept else []

    def conclude(self, ended: Ended) -> Conclusion:
        if ended.code:
            return Conclusion(failure=f"exit code {ended.code}")
        # third parties know what they have seen: a name that they do not know may exist
        return Conclusion(complete=True, reachable=True, coverage={"zone": self._zone, "method": ["passive"]})


def _name(fields: Fields, zone: str) -> str:
    try:
        name = normalise_name(fields.text("host", 254), underscores=True)
    except MalformedHost as error:
        raise MalformedRecord(f"host: {error}") from error
    if not is_under(name, zone):
        raise MalformedRecord("host: not under the domain that was asked for")
    return name


def _values(fields: Fields, name: str) -> list[str]:
    value = fields.values.get(name)
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return [_start_of_authority(Fields(item)) for item in value if isinstance(item, dict)]
    return texts_of(fields, name)


def _start_of_authority(fields: Fields) -> str:
    names = ("ns", "mailbox", "serial", "refresh", "retry", "expire", "minttl")
    return " ".join(str(fields.values.get(name, "")) for name in names).strip()


ADAPTER: Final = Adapter(
    programs=(program("subfinder"), program("dnsx")),
    schema={
        "sources": Words(),
        "providers": ProviderKeys(),
        "request_s": Whole(1, 120),
        "search_min": Whole(1, 30),
        "rate": Whole(1, 10_000),
    },
    way=Each((find_names, resolve_names)),
    silence_s=600,
    needs_address=False,
    needs_home=True,
    address_space_bytes=GO_ADDRESS_SPACE,
)
