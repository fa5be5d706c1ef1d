"""The address range a lab stands on, and what to tell the user when the machine refuses it."""

import errno
import ipaddress
import socket
import sys
import zlib
from dataclasses import dataclass

from runlane.errors import Invalid, Unavailable

DEFAULT_BASE = "127.7.0.0/24"
NAMESERVER_HOST = 1
SIX_HOST = 6
"""The machine at the IPv6 loopback address, of which there is one for all labs of a system."""

_SIX_PORTS = range(20_000, 24_000)
_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
_LARGEST_PREFIX = 26  # scenarios use hosts up to 62


@dataclass(frozen=True, slots=True)
class BaseNetwork:
    """A loopback network whose addresses stand for the machines of a scenario."""

    cidr: str

    def address(self, host: int) -> str:
        """The address of the machine numbered `host`."""
        if host == SIX_HOST:
            return str(ipaddress.IPv6Address(1))
        return str(ipaddress.IPv4Network(self.cidr).network_address + host)

    @property
    def networks(self) -> tuple[str, ...]:
        """Every network that machines of a lab on this base have an address in."""
        return (self.cidr, "::1/128")

    @property
    def six_port(self) -> int:
        """The port of the IPv6 machine, by the base: labs side by side share its address, not its port."""
        return _SIX_PORTS[zlib.crc32(self.cidr.encode()) % len(_SIX_PORTS)]


def has_six() -> bool:
    """Whether this system has the IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6) as trial:
            trial.bind(("::1", 0))
    except OSError:
        return False
    return True


def parse_base(text: str) -> BaseNetwork:
    """Reads a base network such as `127.8.0.0/24`.

    Raises:
        Invalid: it is no IPv4 network inside 127.0.0.0/8, or has fewer than 64 addresses. Anything else would
            put a deliberately weak web site within reach of other machines.
    """
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise Invalid(f"lab base network {text!r}: {error}", code="lab.base") from error
    if not network.subnet_of(_LOOPBACK) or network.prefixlen > _LARGEST_PREFIX:
        detail = f"lab base network {text} must lie inside {_LOOPBACK} and be /{_LARGEST_PREFIX} or larger"
        raise Invalid(detail, code="lab.base")
    return BaseNetwork(str(network))


def bind_failure(error: OSError, place: str, needed: list[str]) -> Unavailable:
    """Says what to do about a refused bind at `place`; `needed` are all addresses of the lab."""
    match error.errno:
        case errno.EADDRNOTAVAIL:
            aliases = "; ".join(f"sudo ifconfig lo0 alias {each} up" for each in needed)
            hint = f"this system ({sys.platform}) has no such loopback address. On macOS add them: {aliases}"
        case errno.EADDRINUSE:
            hint = (
                "another program listens there (or on all addresses). Stop it, or choose --base 127.8.0.0/24"
            )
        case _:
            hint = error.strerror or str(error)
    return Unavailable(f"the lab cannot listen on {place}: {hint}", code="lab.bind")
