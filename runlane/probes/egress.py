"""The one way out: resolve, judge every answer, connect to the judged address itself.

A name that is judged and then resolved again by the connecting library can change in between; so what is
connected to here is always an address, and the name only goes into Host and SNI. What is excluded is refused
as a name, as an address that it leads to and as a port, before anything is sent there.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Final

from runlane.probes.job import BadInput, Options, ProbeTarget, Refused
from runlane.probes.resolver import Resolver
from runlane.rates import Spacing
from runlane.tools.addresses import is_allowed, parse_address
from runlane.tools.hosts import MalformedHost, normalise_host

CONNECT_S: Final = 5.0
"""Seconds for one TCP connection, unless said otherwise."""


class Egress:
    """Connections of one job under its allow-list and exclusions."""

    def __init__(self, options: Options) -> None:
        self._allow = options.allow
        self._is_bound = options.is_bound
        self._denied = options.denied
        self._resolver = Resolver(options.resolver)
        self._spacing = Spacing(options.rate_per_s) if options.rate_per_s else None

    async def address_of(self, target: ProbeTarget) -> str | None:
        """Where to connect for a target: its address if known, else the first that its host resolves to.

        None if the host has no address.

        Raises:
            Refused: the policy forbids it.
            NoVerdict: the DNS server did not answer.
        """
        self.permit_place(target.host, target.port)
        if target.address is not None:
            return self.permit(target.address)
        return next(iter(await self.resolve(target.host)), None)

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Addresses of `host` that may be contacted, IPv4 first; empty if it has none at all.

        Raises:
            Refused: it has addresses, and the policy forbids each.
            NoVerdict: the DNS server did not answer.
        """
        if parse_address(host) is not None:
            return (self.permit(host),)
        self.permit_place(host)
        addresses = await self._resolver.addresses(host)
        allowed = tuple(address for address in addresses if self._may_contact(address))
        if addresses and not allowed:
            raise Refused(f"{host} leads to {', '.join(addresses[:3])}, which may not be contacted")
        return allowed

    def permit(self, address: str) -> str:
        """The address in canonical text, if it may be contacted.

        Raises:
            Refused: it may not.
            BadInput: it is no address.
        """
        if parse_address(address) is None:
            raise BadInput(f"{address!r} is not an address")
        if not self._may_contact(address):
            raise Refused(f"{address} may not be contacted")
        return normalise_host(address)

    def permit_place(self, host: str, port: int | None = None) -> None:
        """Judges a host by its name, and a port, for what is excluded; where it leads is judged elsewhere.

        Raises:
            Refused: it is excluded.
        """
        with suppress(MalformedHost):
            if self._denied.has_place(normalise_host(host)):
                raise Refused(f"{host} is excluded")
        if port in self._denied.ports:
            raise Refused(f"port {port} is excluded")

    def _may_contact(self, address: str) -> bool:
        is_open = is_allowed(address, self._allow, is_bound=self._is_bound)
        return is_open and not self._denied.has_place(address)

    async def pace(self) -> None:
        """Waits until one more connection or request may be made: all of a job pass here, evenly apart."""
        if self._spacing is not None:
            await asyncio.sleep(self._spacing.wait_s(asyncio.get_running_loop().time()))

    async def connect(self, address: str, port: int, timeout_s: float = CONNECT_S) -> socket.socket:
        """A connected, non-blocking TCP socket.

        Raises:
            Refused: the policy forbids the address or the port.
            OSError: no connection (TimeoutError is one).
        """
        address = self.permit(address)
        self.permit_place(address, port)
        await self.pace()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().sock_connect(sock, (address, port))
            _refuse_self_connection(sock)
        except BaseException:
            sock.close()
            raise
        return sock


def _refuse_self_connection(sock: socket.socket) -> None:
    """A closed port of this very host that is in the ephemeral range can connect to itself."""
    if sock.getsockname()[:2] == sock.getpeername()[:2]:
        raise ConnectionRefusedError("connected to itself")


def target_host(target: ProbeTarget) -> str:
    """The target's host in its one spelling.

    Raises:
        BadInput: it is neither a name nor an address.
    """
    with suppress(MalformedHost):
        return normalise_host(target.host)
    raise BadInput(f"{target.host[:100]!r} is neither a name nor an address")
