"""Zone transfers: the whole zone from a server that gives it to anybody.

Read record by record instead of by a library's transfer, because how much a hostile server sends must be
bounded here.
Source: RFC 5936.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from runlane.tools.hosts import MalformedHost, is_under, normalise_name

MAX_RECORDS: Final = 10_000
MAX_BYTES: Final = 8 * 1024 * 1024
TRANSFER_S: Final = 30.0


@dataclass(slots=True)
class ZoneCopy:
    """What a transfer gave: records by name and type, in zone file notation."""

    zone: str
    names: dict[str, dict[str, list[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """Only names of the zone; wildcards and names that are none are left out."""
    is_complete: bool = False
    """Whether the end of the zone came before any limit."""

    def cuts(self) -> frozenset[str]:
        """Names that the zone hands to other servers, with all below: of these its own records say little."""
        return frozenset(
            name for name, records in self.names.items() if "NS" in records and name != self.zone
        )


def is_below_any(name: str, cuts: frozenset[str]) -> bool:
    """Whether `name` is one of `cuts` or below one."""
    labels = name.split(".")
    return any(".".join(labels[start:]) in cuts for start in range(len(labels)))


async def transfer_zone(sock: socket.socket, zone: str) -> ZoneCopy | None:
    """Asks a connected server for a zone and closes the connection; None if it does not give it."""
    copy = ZoneCopy(zone)
    try:
        async with asyncio.timeout(TRANSFER_S):
            await _fill(copy, sock)
    except (OSError, EOFError, dns.exception.DNSException):
        pass  # what came before is as good as it is
    finally:
        sock.close()
    return copy if copy.names else None


async def _fill(copy: ZoneCopy, sock: socket.socket) -> None:
    """Keeps records until the SOA comes again, which ends the zone, or no more come."""
    origin = dns.name.from_text(f"{copy.zone}.")
    async for rrset in _records(sock, origin):
        if rrset.rdtype == dns.rdatatype.SOA and rrset.name == origin and copy.zone in copy.names:
            copy.is_complete = True
            return
        _keep(copy, rrset)


async def _records(sock: socket.socket, origin: dns.name.Name) -> AsyncIterator[dns.rrset.RRset]:
    """Single records in the order sent, until a limit or a refusal."""
    query = dns.message.make_query(origin, dns.rdatatype.AXFR)
    query.flags &= ~dns.flags.RD
    wire = query.to_wire()
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        writer.write(len(wire).to_bytes(2) + wire)
        count = size = 0
        while count < MAX_RECORDS and size < MAX_BYTES:
            data = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
            message = dns.message.from_wire(data, xfr=True, one_rr_per_rrset=True)
            if message.id != query.id or message.rcode() != dns.rcode.NOERROR or not message.answer:
                return
            for rrset in message.answer:
                yield rrset
            count += len(message.answer)
            size += len(data)
    finally:
        writer.transport.abort()


def _keep(copy: ZoneCopy, rrset: dns.rrset.RRset) -> None:
    try:
        name = normalise_name(rrset.name.to_text(omit_final_dot=True), underscores=True)
    except MalformedHost:
        return  # a wildcard, or escaped characters
    if is_under(name, copy.zone):
        kind = dns.rdatatype.to_text(rrset.rdtype)
        copy.names[name][kind] += [rdata.to_text() for rdata in rrset]
