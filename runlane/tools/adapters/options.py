"""Options of a step as a tool takes them: an allow-list with a type for each, checked before anything starts.

A step's `config` never becomes arguments as it is. A tool reads the options of its schema by name and builds
its arguments itself; an option that is not in the schema is a fault.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from runlane.tools.addresses import is_allowed, parse_address, parse_networks
from runlane.tools.exclusions import parse_denied, read_denied
from runlane.tools.headers import headers_fault, read_headers
from runlane.tools.portlists import MalformedPorts, parse_ports

_WORD: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_MAX_WORDS: Final = 100


class BadOption(ValueError):
    """An option cannot be taken as it is written; the text names it."""


class Kind(Protocol):
    """Type of an option."""

    def fault(self, value: object) -> str | None:
        """What is wrong with a value; None if nothing is."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole number between `low` and `high`, both included."""

    low: int
    high: int

    def fault(self, value: object) -> str | None:
        """See `Kind`."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            return f"whole number from {self.low} to {self.high} expected"
        return None


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def fault(self, value: object) -> str | None:
        """See `Kind`."""
        return None if isinstance(value, bool) else "true or false expected"


@dataclass(frozen=True, slots=True)
class Ports:
    """A list of ports as text or numbers."""

    def fault(self, value: object) -> str | None:
        """See `Kind`."""
        try:
            parse_ports(value)
        except MalformedPorts as error:
            return str(error)
        return None


@dataclass(frozen=True, slots=True)
class Words:
    """A list of words, each of `allowed` or, if that is empty, of lower-case letters, digits, `_.-`."""

    allowed: frozenset[str] = frozenset()

    def fault(self, value: object) -> str | None:
        """See `Kind`."""
        if not isinstance(value, list) or not 1 <= len(value) <= _MAX_WORDS:
            return f"list of 1 to {_MAX_WORDS} words expected"
        for word in value:
            if not isinstance(word, str) or not _WORD.fullmatch(word):
                return "words of lower-case letters, digits and _.- expected"
            if self.allowed and word not in self.allowed:
                return f"words of {', '.join(sorted(self.allowed))} expected"
        return None


@dataclass(frozen=True, slots=True)
class Choice:
    """One word of a closed set."""

    allowed: tuple[str, ...]

    def fault(self, value: object) -> str | None:
        """See `Kind`."""
        is_one = isinstance(value, str) and value in self.allowed
        return None if is_one else f"one of {', '.join(self.allowed)} expected"


Schema: TypeAlias = Mapping[str, Kind]


@dataclass(frozen=True, slots=True)
class Seconds:
    """Positive number of seconds."""

    def fault(self, value: object) -> str | None:
        """See `Kind`."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if is_number and 0 < float(str(value)) < 1e6 else "positive number expected"


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers of requests, by name; a value may be a reference to a secret."""

    def fault(self, value: object) -> str | None:
        """See `Kind`."""
        return headers_fault(value)


@dataclass(frozen=True, slots=True)
class Networks:
    """List of CIDRs."""

    def fault(self, value: object) -> str | None:
        """See `Kind`."""
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return "list of networks expected"
        try:
            parse_networks(tuple(value))
        except ValueError as error:
            return str(error)
        return None


@dataclass(frozen=True, slots=True)
class Exclusions:
    """List of exclusions."""

    def fault(self, value: object) -> str | None:
        """See `Kind`."""
        try:
            read_denied(value)
        except ValueError as error:
            return str(error)
        return None


@dataclass(frozen=True, slots=True)
class Resolver:
    """Address and port of a DNS server."""

    def fault(self, value: object) -> str | None:
        """See `Kind`."""
        if isinstance(value, str) and _read_resolver(value) is not None:
            return None
        return "address and port expected, such as 192.0.2.53:53"


COMMON: Final[Schema] = {
    "allow": Networks(),
    "bound": Flag(),
    "deny": Exclusions(),
    "timeout_s": Seconds(),
    "resolver": Resolver(),
}
"""Options that every tool takes; all but `resolver` are laid over by the platform."""


def faults(schema: Schema, config: Mapping[str, object]) -> dict[str, str]:
    """What is wrong with a config, by option; null stands for the default."""
    known = {**COMMON, **schema}
    found: dict[str, str] = {}
    for name, value in config.items():
        kind = known.get(name)
        if kind is None:
            found[name] = f"no such option; there are {', '.join(sorted(known))}"
        elif value is not None and (fault := kind.fault(value)) is not None:
            found[name] = fault
    return found


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options of the jobs of a batch."""

    allow: tuple[str, ...] = ()
    """CIDRs beyond global addresses that may be contacted."""
    resolver: str | None = None
    """DNS server to ask, `address:port`; None is the system's."""
    values: Mapping[str, object] = field(default_factory=dict)
    deny: tuple[str, ...] = ()
    """Exclusions: names, networks and ports that are not contacted, whatever `allow` says."""
    rate_per_s: int | None = None
    """Packets or requests that may be sent a second, whatever a step says; None: there is no rate."""
    is_bound: bool = False
    """The host is bound to an internal network: nothing but `allow` may be contacted."""

    def rate(self, name: str, default: int) -> int:
        """A step's own rate, or less if a rate says so."""
        own = self.whole(name, default)
        return own if self.rate_per_s is None else min(own, self.rate_per_s)

    def whole(self, name: str, default: int) -> int:
        """A whole number."""
        value = self.values.get(name)
        return value if isinstance(value, int) else default

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.get(name)
        return value if isinstance(value, bool) else default

    def words(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of words."""
        value = self.values.get(name)
        return tuple(str(word) for word in value) if isinstance(value, list) else default

    def headers(self, name: str) -> dict[str, str]:
        """Headers by name; none if absent."""
        return read_headers(self.values.get(name))

    def ports(self, name: str) -> list[int]:
        """A list of ports, sorted, without those that are excluded; the usual ones if absent."""
        denied = parse_denied(self.deny).ports
        return [port for port in parse_ports(self.values.get(name)) if port not in denied]


def read_options(schema: Schema, raw: Mapping[str, object]) -> Options:
    """Reads the options that came with a claim.

    Raises:
        BadOption: one of them is unknown, of the wrong type, or names a DNS server that may not be contacted.
    """
    for name, fault in faults(schema, raw).items():
        raise BadOption(f"option {name}: {fault}")
    allow = raw.get("allow")
    allowed = tuple(str(network) for network in allow) if isinstance(allow, list) else ()
    deny = tuple(read_denied(raw.get("deny")))
    resolver = raw.get("resolver")
    is_bound = raw.get("bound") is True
    if not isinstance(resolver, str):
        return Options(allowed, None, raw, deny, is_bound=is_bound)
    address = _read_resolver(resolver)
    # it is sent packets like any other host, and the option comes from whoever wrote the definition
    is_open = address is not None and is_allowed(address, allowed, is_bound=is_bound)
    if address is None or not is_open or parse_denied(deny).has_place(address):
        raise BadOption(f"option resolver: {resolver} may not be contacted")
    return Options(allowed, resolver, raw, deny, is_bound=is_bound)


def _read_resolver(text: str) -> str | None:
    host, _, port = text.rpartition(":")
    address = host.removeprefix("[").removesuffix("]")
    if parse_address(address) is None or not (port.isascii() and port.isdigit() and len(port) <= 5):
        return None
    return address if 0 < int(port) <= 65_535 else None
