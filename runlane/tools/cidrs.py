"""CIDRs of an internal network, as typed by a person."""

from collections.abc import Sequence
from ipaddress import ip_network
from itertools import combinations
from typing import Final

from runlane.errors import Invalid
from runlane.tools.addresses import Network, is_never_contacted, overlap, parse_address, unwrap

MAX_CIDRS: Final = 32
"""Of a network."""

_SHORTEST: Final = {4: 8, 6: 7}
"""Prefix lengths: what is shorter is no network of anybody's, but half of the internet."""


def parse_cidrs(texts: Sequence[str]) -> list[str]:
    """CIDRs in their one spelling, sorted. Those of two networks may overlap: they are different places.

    Raises:
        Invalid: `network.cidr`, one is no network with its prefix length, is too large, or is never
            contacted; `network.overlap`, two of them have addresses in common; `network.cidrs`, there are
            none or too many.
    """
    if not 1 <= len(texts) <= MAX_CIDRS:
        raise _invalid("cidrs", f"a network has 1 to {MAX_CIDRS} CIDRs")
    found = [_parse(text) for text in texts]
    for one, other in combinations(found, 2):
        if overlap(one, other):
            raise _invalid("overlap", f"{one} and {other} have addresses in common")
    return [str(each) for each in sorted(found, key=lambda each: (each.version, int(each.network_address)))]


def _parse(text: str) -> Network:
    address, _, prefix = text.partition("/")
    if parse_address(address) is None or not (prefix.isascii() and prefix.isdigit()):
        raise _invalid("cidr", f"{text[:100]} is no network with a prefix length, such as 10.0.0.0/24")
    try:
        network = ip_network(text)
    except ValueError as error:
        raise _invalid("cidr", f"{text[:100]} is not the address of a network of that length") from error
    if unwrap(network.network_address) != network.network_address:
        raise _invalid("cidr", f"{network} stands for an IPv4 network: say that one")
    if network.prefixlen < _SHORTEST[network.version]:
        raise _invalid("cidr", f"{network} is too large: at least /{_SHORTEST[network.version]}")
    if is_never_contacted(network):
        raise _invalid("cidr", f"{network} is never contacted, whatever allows it")
    return network


def _invalid(reason: str, detail: str) -> Invalid:
    return Invalid(detail, code=f"network.{reason}", fields={"cidrs": detail})
