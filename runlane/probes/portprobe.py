"""Open TCP ports of a host, with what the service says unasked and whether it speaks TLS."""

import asyncio
import errno
import socket
import ssl
import sys
from dataclasses import dataclass
from typing import Final

from runlane.probes.egress import Egress, target_host
from runlane.probes.job import BadInput, Done, Emit, ProbeJob
from runlane.probes.stream import serve_stream
from runlane.probes.tls import permissive_context
from runlane.tools import TOOLS
from runlane.tools.addresses import parse_address
from runlane.tools.portlists import MalformedPorts, format_ports, parse_ports

CONNECT_S: Final = 2.0
"""Seconds until a port that does not answer counts as closed."""

BANNER_S: Final = 1.5
"""Seconds that a service has to say something by itself."""

HANDSHAKE_S: Final = 4.0
MAX_BANNER: Final = 1_024
DEFAULT_CONCURRENCY: Final = 50
MAX_CONCURRENCY: Final = 300
"""Connections of one job at once; the jobs of a batch share the process's limit of open files."""

FULL_PAUSE_S: Final = 0.1
"""Seconds until another try when this process has no descriptor left."""

_CLOSED: Final = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EACCES, errno.EPERM, errno.EADDRNOTAVAIL}
)

_FULL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS})


@dataclass(frozen=True, slots=True)
class _Host:
    name: str
    address: str
    egress: Egress


async def run_job(job: ProbeJob, emit: Emit) -> Done:
    """Scans one address of one host: the known one, else the first that the name leads to."""
    ports = _ports_of(job)
    concurrency = job.options.integer("concurrency", DEFAULT_CONCURRENCY, 1, MAX_CONCURRENCY)
    egress = Egress(job.options)
    name = target_host(job.target)
    address = await egress.address_of(job.target)
    if address is None:
        return Done(coverage={"ports": format_ports(ports), "protocol": "tcp"})
    host = _Host(name, address, egress)
    pending = iter(ports)
    is_reachable = False

    async def scan() -> None:
        nonlocal is_reachable
        for port in pending:
            record = await _probe(host, port)
            if record is not None:
                is_reachable = True
                await emit(record)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(ports))):
            group.create_task(scan())
    # A refused connection does not count as an answer: a firewall on our side of the way refuses, too.
    coverage = {"ports": format_ports(ports), "protocol": "tcp", "address": address}
    return Done(reachable=is_reachable, coverage=coverage)


def _ports_of(job: ProbeJob) -> list[int]:
    try:
        ports = parse_ports(job.options.values.get("ports"))
    except MalformedPorts as error:
        raise BadInput(f"option ports: {error}") from error
    # what is excluded is not tried, and so the result says nothing about it
    return [port for port in ports if port not in job.options.denied.ports]


async def _probe(host: _Host, port: int) -> dict[str, object] | None:
    """The record of a port; None if it is not open."""
    sock = await _connect(host, port)
    if sock is None:
        return None
    with sock:
        banner = await _read_banner(sock)
    is_tls = False if banner else await _speaks_tls(host, port)
    return {"port": port, "protocol": "tcp", "address": host.address, "banner": banner, "tls": is_tls}


async def _connect(host: _Host, port: int) -> socket.socket | None:
    """A connection; None if the port is not open. Trouble of our own says nothing about the port."""
    while True:
        try:
            return await host.egress.connect(host.address, port, CONNECT_S)
        except (TimeoutError, ConnectionError):
            return None
        except OSError as error:
            if error.errno in _CLOSED:
                return None
            if error.errno not in _FULL:
                raise
        await asyncio.sleep(FULL_PAUSE_S)


async def _read_banner(sock: socket.socket) -> str | None:
    try:
        async with asyncio.timeout(BANNER_S):
            data = await asyncio.get_running_loop().sock_recv(sock, MAX_BANNER)
    except OSError:
        return None
    return data.decode(errors="replace").strip() or None


async def _speaks_tls(host: _Host, port: int) -> bool | None:
    """Whether a handshake succeeds; None if the port did not take a second connection."""
    try:
        sock = await host.egress.connect(host.address, port, CONNECT_S)
    except OSError:
        return None
    server_name = host.name if parse_address(host.name) is None else ""
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            _, writer = await asyncio.open_connection(
                sock=sock, ssl=permissive_context(), server_hostname=server_name
            )
    except (OSError, ssl.SSLError, ValueError):
        sock.close()
        return False
    writer.transport.abort()
    return True


def main() -> int:
    """Runs the probe on fd 0 and fd 1."""
    return serve_stream(TOOLS["portprobe"], run_job)


if __name__ == "__main__":
    sys.exit(main())
