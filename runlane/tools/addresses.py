"""Which IP addresses may be contacted: the pure half of the egress policy.

The standard library's `is_global` says yes to addresses that lead inside (NAT64 and 6to4 forms of a private
address, site-local, multicast) and its tables differ between patch releases, so the special-purpose ranges
are written out here.
Source: IANA IPv4 and IPv6 Special-Purpose Address Registries; RFC 6890, RFC 6052, RFC 3056.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

METADATA: Final[tuple[Network, ...]] = (
    IPv4Network("169.254.0.0/16"),  # link-local, with 169.254.169.254
    IPv6Network("fd00:ec2::/32"),
    IPv6Network("fe80::/10"),  # the IPv6 form of link-local
    IPv4Network("100.100.100.200/32"),
    IPv4Network("168.63.129.16/32"),  # looks global, is answered by the hypervisor
    IPv6Network("fd20:ce::254/128"),
)
"""Where clouds hand out the host's own credentials. No allow-list opens these."""

_NEVER: Final[tuple[Network, ...]] = (
    *METADATA,
    IPv4Network("0.0.0.0/8"),  # "this host": Linux connects 0.0.0.0 to loopback
    IPv6Network("::/128"),
    IPv4Network("224.0.0.0/4"),
    IPv6Network("ff00::/8"),
    IPv4Network("255.255.255.255/32"),
)

_NOT_GLOBAL_V4: Final = tuple(
    IPv4Network(text)
    for text in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
    )
)
_GLOBAL_UNICAST_V6: Final = IPv6Network("2000::/3")
_NOT_GLOBAL_V6: Final = tuple(
    IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_NAT64: Final = IPv6Network("64:ff9b::/96")


def parse_address(text: str) -> Address | None:
    """Address in canonical form, or None for anything else, scoped addresses (`fe80::1%eth0`) included."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return None
    return address


def unwrap(address: Address) -> Address:
    """The IPv4 address that an IPv4-mapped, NAT64 or 6to4 address stands for; any other one unchanged."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.sixtofour or address


def is_allowed(address: str | Address, allow: Sequence[str] = (), *, is_bound: bool = False) -> bool:
    """Whether a connection to `address` may be opened.

    Global addresses always may, others only inside `allow` (CIDRs); cloud metadata, multicast and unspecified
    addresses never. From a host that is bound to an internal network nothing but `allow` may be contacted.
    The address that counts is the unwrapped one. Text that is no address is not allowed.

    Raises:
        ValueError: `allow` holds something that is no CIDR.
    """
    parsed = parse_address(address) if isinstance(address, str) else address
    if parsed is None:
        return False
    effective = unwrap(parsed)
    if _is_in(effective, _NEVER):
        return False
    return (_is_global(effective) and not is_bound) or _is_in(effective, parse_networks(tuple(allow)))


def is_network_allowed(network: Network, allow: Sequence[str] = (), *, is_bound: bool = False) -> bool:
    """Whether every address of `network` passes `is_allowed`. Meant for small networks: it asks for each."""
    return all(is_allowed(address, allow, is_bound=is_bound) for address in network)


def is_never_contacted(network: Network) -> bool:
    """Whether no allow-list opens any address of a network."""
    return any(_is_part(network, each) for each in _NEVER)


@lru_cache(maxsize=4096)
def is_inside_only(text: str, allow: tuple[str, ...]) -> bool:
    """Whether an address or network may be contacted from inside only: it is not global, and in `allow`.

    A name never is: where it leads is known when it is resolved, and then the policy of the host decides.

    Raises:
        ValueError: `allow` holds something that is no CIDR.
    """
    address = parse_address(text)
    if address is not None:
        return is_allowed(address, allow) and not is_allowed(address)
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return False
    return any(overlap(network, each) for each in parse_networks(allow)) and not is_network_allowed(network)


def overlap(one: Network, other: Network) -> bool:
    """Whether two networks have an address in common."""
    # addresses of two versions have no order
    return one.version == other.version and one.overlaps(other)


def _is_part(one: Network, other: Network) -> bool:
    return overlap(one, other) and one.prefixlen >= other.prefixlen


@lru_cache(maxsize=256)
def parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """CIDRs as networks; host bits are dropped.

    Raises:
        ValueError: one of them is no CIDR.
    """
    return tuple(ip_network(text, strict=False) for text in texts)


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _is_global(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not _is_in(address, _NOT_GLOBAL_V4)
    return address in _GLOBAL_UNICAST_V6 and not _is_in(address, _NOT_GLOBAL_V6)
