"""The lab's authoritative DNS server: one port, UDP and TCP, on a loopback address."""

import asyncio
import contextlib
import errno
import struct

import dns.exception
import dns.flags
import dns.message
import dns.opcode
import dns.rdatatype
import structlog

from runlane.lab.connections import Connections
from runlane.lab.zonedata import ZoneData, answer_query, transfer_zone

log = structlog.get_logger(__name__)

_UDP_SIZE_WITHOUT_EDNS = 512
_PORT_TRIES = 20
_IDLE_S = 10.0


class NameServer(asyncio.DatagramProtocol):
    """Answers DNS queries from a fixed set of zones. `open` binds it, `close` frees the port."""

    def __init__(self, zones: tuple[ZoneData, ...]) -> None:
        self._zones = zones
        self._udp: asyncio.DatagramTransport | None = None
        self._connections = Connections(self._serve_tcp)
        self.port = 0

    async def open(self, address: str, avoid: tuple[int, ...]) -> None:
        """Binds a port that is free for both UDP and TCP and not one of `avoid`.

        Raises:
            OSError: the address does not exist here, or no port was free for both.
        """
        for _ in range(_PORT_TRIES):
            port = await self._connections.open(address, 0)
            if port not in avoid and await self._open_udp(address, port):
                self.port = port
                return
            await self._connections.close()
        raise OSError(errno.EADDRINUSE, "no port is free for UDP and TCP")

    async def close(self) -> None:
        """Stops listening and ends open connections."""
        if self._udp is not None:
            self._udp.close()
        await self._connections.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answers one datagram (called by asyncio); what cannot be parsed is dropped."""
        query = _parse(data)
        if query is None or self._udp is None:
            return
        size = query.payload if query.edns >= 0 else _UDP_SIZE_WITHOUT_EDNS
        response = answer_query(self._zones, query)
        self._udp.sendto(response.to_wire(max_size=size, prefer_truncation=True), addr)

    async def _open_udp(self, address: str, port: int) -> bool:
        loop = asyncio.get_running_loop()
        try:
            self._udp, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        return True

    async def _serve_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                async with asyncio.timeout(_IDLE_S):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    query = _parse(await reader.readexactly(length))
                if query is None:
                    return
                is_transfer = query.question[0].rdtype == dns.rdatatype.AXFR
                reply = transfer_zone if is_transfer else answer_query
                writer.write(reply(self._zones, query).to_wire(prepend_length=True, max_size=65535))
                await writer.drain()


def _parse(wire: bytes) -> dns.message.Message | None:
    try:
        query = dns.message.from_wire(wire)
    except dns.exception.DNSException:
        log.debug("lab_dns_query_malformed", size_bytes=len(wire))
        return None
    is_query = query.opcode() == dns.opcode.QUERY and not query.flags & dns.flags.QR
    return query if is_query and len(query.question) == 1 else None
