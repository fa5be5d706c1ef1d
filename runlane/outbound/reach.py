"""Where endpoints may be: judged by their address when one is saved; the guard judges where it leads."""

import re
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import SplitResult, urlsplit

from runlane.errors import Invalid
from runlane.tools.addresses import is_allowed, is_never_contacted, parse_address, parse_networks
from runlane.tools.hosts import MalformedHost, normalise_host

MAX_URL: Final = 2_048
"""Characters of the address of an endpoint."""

SCHEMES: Final = {"https": 443, "http": 80}
"""What an endpoint may speak, with the usual port. `http` is sent to the allowed networks only."""

_FIRST_FREE_PORT: Final = 1_024
_OTHER_PROTOCOLS: Final = frozenset(
    {1433, 1521, 2049, 2375, 2376, 2379, 2380, 3306, 3389, 4222, 5432, 5672, 5900, 5984, 6000, 6379, 6380}
    | {6443, 7233, 7243, 8300, 9042, 9092, 9200, 9300, 10250, 11211, 15672, 26379, 27017}
)
"""Ports of databases, queues and control planes: what they make of a request is not what was meant."""

_PLAIN: Final = re.compile(r"[!-~]+")


class Unfit(ValueError):
    """An endpoint cannot be there. The text says why and names no part of the address but host and port."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Networks of receivers that are not public, and our own servers, which are never one."""

    networks: tuple[str, ...] = ()
    own: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def of(cls, networks: str, own_urls: str = "") -> Self:
        """Makes it of settings: CIDRs apart by commas or blanks, and where our servers are, apart by blanks.

        Raises:
            Invalid: something is no network, or one that is never contacted (`settings.outbound_networks`).
        """
        texts = tuple(networks.replace(",", " ").split())
        try:
            parsed = parse_networks(texts)
        except ValueError as error:
            detail = "RUNLANE_OUTBOUND_NETWORKS: one of them is no network"
            raise Invalid(detail, code="settings.outbound_networks") from error
        if any(is_never_contacted(network) for network in parsed):
            detail = "RUNLANE_OUTBOUND_NETWORKS: metadata and multicast addresses are never contacted"
            raise Invalid(detail, code="settings.outbound_networks")
        places = (_place(url) for url in own_urls.split())
        return cls(texts, frozenset(place for place in places if place is not None))

    def allows(self, address: str, *, is_inside: bool = False) -> bool:
        """Whether an address may be contacted; `is_inside`: only if it is in the networks."""
        return is_allowed(address, self.networks, is_bound=is_inside)

    def judge(self, url: str) -> SplitResult:
        """The parts of an endpoint's address, if it may be saved; where its name leads is judged later.

        Raises:
            Unfit: it is no address that may be contacted.
        """
        parts = _parts(url)
        host, port = host_of(parts), port_of(parts)
        if parse_address(host) is not None and not self.allows(host, is_inside=parts.scheme == "http"):
            raise Unfit(f"{host} may not be contacted")
        if parts.scheme == "http" and not self.networks:
            raise Unfit("only https may be sent to")
        if (host, port) in self.own:
            raise Unfit(f"{host}:{port} is a server of the platform")
        return parts


def host_of(parts: SplitResult) -> str:
    """The host in the one spelling.

    Raises:
        Unfit: it is neither a name nor an address in its usual notation.
    """
    try:
        return normalise_host(parts.hostname or "")
    except MalformedHost as error:
        raise Unfit(f"not a host: {error}") from error


def port_of(parts: SplitResult) -> int:
    """The port, said or usual.

    Raises:
        Unfit: it is none that an endpoint may have.
    """
    try:
        port = parts.port
    except ValueError as error:
        raise Unfit("the port is no number between 1 and 65535") from error
    usual = SCHEMES[parts.scheme]
    permit_port(usual if port is None else port)
    return usual if port is None else port


def permit_port(port: int) -> None:
    """Passes for the ports of the web, and those from 1024 that are not known for another protocol.

    Raises:
        Unfit: it is another one.
    """
    if port not in SCHEMES.values() and (port < _FIRST_FREE_PORT or port in _OTHER_PROTOCOLS):
        raise Unfit(f"port {port} may not be contacted")


def _parts(url: str) -> SplitResult:
    if len(url) > MAX_URL or not _PLAIN.fullmatch(url) or "\\" in url:
        raise Unfit(f"an address has at most {MAX_URL} printable ASCII characters, without blanks")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Unfit("not a URL") from error
    if parts.scheme not in SCHEMES:
        raise Unfit("the scheme is not https")
    if "@" in parts.netloc:
        raise Unfit("a user or password may not be part of the address")
    if "#" in url:
        raise Unfit("an address has no fragment")
    return parts


def _place(url: str) -> tuple[str, int] | None:
    """Host and port of a server of ours, None if that is not in its address in the usual form."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    try:
        port = parts.port or SCHEMES.get(parts.scheme)
    except ValueError:  # several hosts
        return None
    return (parts.hostname, port) if parts.hostname and port else None
