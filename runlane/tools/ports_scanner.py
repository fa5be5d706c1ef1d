"""Open ports.

Sample: `{"port": 22, "protocol": "tcp", "address": "192.0.2.7", "banner": "SSH-2.0-x", "tls": false}`
"""

from dataclasses import dataclass
from typing import Final

from runlane.tools.records import Fields, MalformedRecord

_MAX_BANNER: Final = 1_024
_PROTOCOLS: Final = frozenset({"tcp", "udp"})


@dataclass(frozen=True, slots=True)
class PortRecord:
    """One open port of a job's asset. Natural key: `port` and `protocol` within the asset."""

    port: int
    protocol: str
    address: str
    """Where the connection went, in canonical text."""
    banner: str | None
    """What the service said first, unasked; at most 1,024 characters."""
    tls: bool | None
    """Whether it completed a TLS handshake; None if not tried."""


def parse(raw: object) -> PortRecord:
    """Reads one record.

    Raises:
        MalformedRecord: see there.
    """
    fields = Fields.of(raw)
    address = fields.host("address")
    if not _is_address(address):
        raise MalformedRecord("address: IP address expected")
    return PortRecord(
        port=fields.integer("port", 1, 65_535),
        protocol=fields.one_of("protocol", _PROTOCOLS),
        address=address,
        banner=fields.excerpt("banner", _MAX_BANNER),
        tls=fields.flag("tls"),
    )


def _is_address(host: str) -> bool:
    # a normalised name never ends in a number, so only an address does or holds a colon
    return ":" in host or host.rpartition(".")[2].isdigit()
