"""What is never scanned: how an exclusion is written, and whether it covers a name, an address or a port.

The database asks the same in SQL before a job is given out (`runlane.db.scope`); the probes ask it
here, of everything that they resolve and connect to. A test holds the two to one answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import Final

from runlane.errors import Invalid
from runlane.tools.addresses import Address, Network, parse_address, unwrap
from runlane.tools.hosts import MalformedHost, is_under, normalise_name
from runlane.tools.portlists import MAX_PORT

_WRAPPERS: Final = (
    (IPv6Network("::ffff:0:0/96"), 96),
    (IPv6Network("64:ff9b::/96"), 96),
    (IPv6Network("2002::/16"), 16),
)


class ExclusionKind(StrEnum):
    """What an exclusion's value is."""

    DOMAIN = "domain"  # a name and all below it
    HOST = "host"  # one name
    NETWORK = "network"
    PORT = "port"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """An exclusion in its one spelling: two texts that mean the same give equal exclusions."""

    kind: ExclusionKind
    value: str

    @property
    def text(self) -> str:
        """How it stands in the option `deny`: `.example.com`, `www.example.com`, `192.0.2.0/24`, `:22`."""
        prefix = {ExclusionKind.DOMAIN: ".", ExclusionKind.PORT: ":"}.get(self.kind, "")
        return prefix + self.value


def parse_exclusion(kind: ExclusionKind, text: str) -> Exclusion:
    """Reads an exclusion as typed by a person. A host that is an address is a network of one.

    Raises:
        Invalid: `exclusion.domain`, `exclusion.host`, `exclusion.network`, `exclusion.port`.
    """
    match kind:
        case ExclusionKind.DOMAIN:
            return Exclusion(kind, _parse_name(kind, text.removeprefix("*").removeprefix(".")))
        case ExclusionKind.HOST:
            if parse_address(text) is not None:
                return _parse_network(text)
            return Exclusion(kind, _parse_name(kind, text))
        case ExclusionKind.NETWORK:
            return _parse_network(text)
        case ExclusionKind.PORT:
            if text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= MAX_PORT:
                return Exclusion(kind, str(int(text)))
            raise _invalid(kind, f"a port is a number from 1 to {MAX_PORT}")


@dataclass(frozen=True, slots=True)
class Denied:
    """The exclusions that count for a job, ready to be asked."""

    domains: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()
    ports: frozenset[int] = frozenset()

    def has_name(self, name: str) -> bool:
        """Whether a normalised name is excluded."""
        return name in self.hosts or any(is_under(name, zone) for zone in self.domains)

    def has_address(self, address: Address) -> bool:
        """Whether an address is excluded, as it is written or as what it stands for."""
        return any(address in network or unwrap(address) in network for network in self.networks)

    def has_place(self, place: str) -> bool:
        """Whether a name, an address or a whole network in its one spelling is excluded."""
        address = parse_address(place)
        if address is not None:
            return self.has_address(address)
        if "/" in place:
            return any(_is_part(ip_network(place), network) for network in self.networks)
        return self.has_name(place)


@lru_cache(maxsize=256)
def parse_denied(texts: tuple[str, ...]) -> Denied:
    """Reads the option `deny`.

    Raises:
        ValueError: one of them is no exclusion.
    """
    domains, hosts, networks, ports = set(), set(), [], set()
    for text in texts:
        if "/" in text:  # first: IPv6 may begin like a port
            networks.append(_unwrap_network(ip_network(text, strict=False)))
        elif text.startswith(":"):
            ports.add(int(parse_exclusion(ExclusionKind.PORT, text[1:]).value))
        elif text.startswith("."):
            domains.add(normalise_name(text[1:], underscores=True))
        else:
            hosts.add(normalise_name(text, underscores=True))
    return Denied(frozenset(domains), frozenset(hosts), tuple(networks), frozenset(ports))


def read_denied(value: object) -> Sequence[str]:
    """The option `deny` as it came, which is a list of exclusions or null.

    Raises:
        ValueError: it is something else.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError("list of exclusions expected")
    parse_denied(tuple(value))
    return value


def _parse_name(kind: ExclusionKind, text: str) -> str:
    if parse_address(text) is not None:
        raise _invalid(kind, "an address is excluded as a network")
    try:
        return normalise_name(text, underscores=True)
    except MalformedHost as error:
        raise _invalid(kind, str(error)) from error


def _parse_network(text: str) -> Exclusion:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise _invalid(ExclusionKind.NETWORK, "a network without host bits, such as 192.0.2.0/24") from error
    if isinstance(network, IPv6Network) and network.network_address.scope_id is not None:
        raise _invalid(ExclusionKind.NETWORK, "a network has no zone")
    return Exclusion(ExclusionKind.NETWORK, str(_unwrap_network(network)))


def _unwrap_network(network: Network) -> Network:
    """The IPv4 network that a network of IPv4-mapped, NAT64 or 6to4 addresses stands for."""
    if isinstance(network, IPv4Network):
        return network
    for wrapper, offset in _WRAPPERS:
        if network.subnet_of(wrapper):
            bits = (int(network.network_address) >> (96 - offset)) & 0xFFFF_FFFF
            return IPv4Network((IPv4Address(bits), min(32, network.prefixlen - offset)))
    return network


def _is_part(one: Network, other: Network) -> bool:
    if isinstance(one, IPv4Network):
        return isinstance(other, IPv4Network) and one.subnet_of(other)
    return isinstance(other, IPv6Network) and one.subnet_of(other)


def _invalid(kind: ExclusionKind, detail: str) -> Invalid:
    return Invalid(detail, code=f"exclusion.{kind}", fields={"value": detail})
