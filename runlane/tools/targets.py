"""The grammar of what a person may ask to have scanned.

Strict on purpose: a target ends up in tool arguments, DNS questions and URLs, so whatever is not plainly a
domain, an address or a small network is refused with a reason.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_network
from typing import Final

from runlane.errors import Invalid
from runlane.tools.addresses import Network, is_allowed, is_network_allowed, parse_address
from runlane.tools.hosts import MAX_NAME, MalformedHost, normalise_host, normalise_name

MAX_NETWORK_ADDRESSES: Final = 1024
"""Addresses of the largest CIDR accepted as one target."""

_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff]|\s")
_URL_SYNTAX: Final = re.compile(r"://|[@\[\]?#%\\]")


class TargetKind(StrEnum):
    """What a target's value is."""

    DOMAIN = "domain"
    IP = "ip"
    CIDR = "cidr"


@dataclass(frozen=True, slots=True)
class Target:
    """A target in its one spelling: two texts that mean the same give equal targets."""

    kind: TargetKind
    value: str


def parse_target(text: str, allowed_networks: Sequence[str] = (), *, is_bound: bool = False) -> Target:
    """Reads a target as typed by a person.

    `allowed_networks` are the CIDRs beyond global addresses that the workspace may scan; of a target that is
    bound to an internal network, the CIDRs of that one, and then no other address may be a target. A name may
    be one anywhere: where it leads is seen when it is resolved there.

    Raises:
        Invalid: not a domain, address or network (`target.empty`, `target.too_long`, `target.option`,
            `target.characters`, `target.url`, `target.domain`, `target.network`, `target.network_too_large`)
            or outside the networks that may be scanned (`target.address_refused`).
    """
    _refuse_unsafe_text(text)
    if "/" in text:
        network = _parse_network(text)
        if not is_network_allowed(network, allowed_networks, is_bound=is_bound):
            raise _refused(str(network), is_bound=is_bound)
        return _target_of(network)
    if parse_address(text) is not None:
        address = normalise_host(text)
        if not is_allowed(address, allowed_networks, is_bound=is_bound):
            raise _refused(address, is_bound=is_bound)
        return Target(TargetKind.IP, address)
    if ":" in text:
        raise _invalid("url", "a target has no scheme and no port")
    return Target(TargetKind.DOMAIN, _parse_domain(text))


def _refuse_unsafe_text(text: str) -> None:
    if not text:
        raise _invalid("empty", "a target is a domain, an address or a network")
    if len(text) > MAX_NAME:
        raise _invalid("too_long", f"a target has at most {MAX_NAME} characters")
    if text.startswith("-"):
        raise _invalid("option", "a target does not begin with a hyphen: a tool would read it as an option")
    if _FORBIDDEN.search(text):
        raise _invalid("characters", "a target holds no spaces and no control characters")
    if _URL_SYNTAX.search(text):
        raise _invalid("url", "a target is not a URL: give the host alone")


def _parse_domain(text: str) -> str:
    try:
        name = normalise_name(text)
    except MalformedHost as error:
        raise _invalid("domain", str(error)) from error
    if "." not in name:
        raise _invalid("domain", "a domain has at least two labels")
    return name


def _parse_network(text: str) -> Network:
    address, _, prefix = text.partition("/")
    if parse_address(address) is None:
        raise _invalid("url", "a target has no path: give the host alone, or a network such as 192.0.2.0/28")
    if not prefix.isascii() or not prefix.isdigit():
        raise _invalid("network", "a network is written with a prefix length, such as 192.0.2.0/28")
    try:
        network = ip_network(text, strict=False)
    except ValueError as error:
        raise _invalid("network", "not a network") from error
    if str(network.network_address) != str(parse_address(address)):
        raise _invalid("network", f"the address has host bits set; the network is {network}")
    if network.num_addresses > MAX_NETWORK_ADDRESSES:
        raise _invalid("network_too_large", f"a network has at most {MAX_NETWORK_ADDRESSES} addresses")
    return network


def _target_of(network: Network) -> Target:
    if network.num_addresses == 1:
        return Target(TargetKind.IP, normalise_host(str(network.network_address)))
    return Target(TargetKind.CIDR, str(network))


def _refused(value: str, *, is_bound: bool) -> Invalid:
    where = "in that network"
    if not is_bound:
        where = "a public address and not in a network that this workspace may scan"
    return _invalid("address_refused", f"{value} is not {where}")


def _invalid(reason: str, detail: str) -> Invalid:
    return Invalid(detail, code=f"target.{reason}", fields={"target": detail})
