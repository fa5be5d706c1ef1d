"""Small servers on loopback for tests of the probes, and a way to run one job in this process."""

import asyncio
import ipaddress
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from runlane.probes.job import Done, RunJob, parse_job

LOOPBACK = ["127.0.0.0/8", "::1/128"]


async def run_job(
    probe: RunJob, target: Mapping[str, Any], **options: Any
) -> tuple[list[Mapping[str, object]], Done]:
    """Runs one job of a probe; records in the order of appearance."""
    records: list[Mapping[str, object]] = []

    async def emit(record: Mapping[str, object]) -> None:
        records.append(record)

    fields = {"target": {"kind": "host", **target}, "options": {"allow": LOOPBACK, **options}}
    done = await probe(parse_job("job", fields, 60.0), emit)
    return records, done


@dataclass(frozen=True)
class Request:
    target: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def wire(self) -> bytes:
        headers = {"Content-Length": str(len(self.body)), **self.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {self.status} Said\r\n{lines}\r\n".encode("latin-1") + self.body


def page(body: str, headers: Mapping[str, str] | None = None, status: int = 200) -> Reply:
    return Reply(body.encode(), status, {"Content-Type": "text/html; charset=utf-8", **(headers or {})})


@dataclass
class WebServer:
    host: str
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    server_names: list[str | None] = field(default_factory=list)

    @property
    def targets(self) -> list[str]:
        return [request.target for request in self.requests]


@asynccontextmanager
async def serve_http(
    respond: Callable[[Request], Reply | bytes], *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[WebServer]:
    """Serves until the end of the block; bytes are sent as they are and end the connection."""
    web = WebServer(host)
    if tls is not None:
        tls.sni_callback = lambda _, name, __: web.server_names.append(name)

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        web.connections += 1
        while head := (await reader.readuntil(b"\r\n\r\n")).decode():
            first, *rest = head.strip().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in rest)
            request = Request(first.split(" ")[1], headers)
            web.requests.append(request)
            reply = respond(request)
            writer.write(reply if isinstance(reply, bytes) else reply.wire())
            await writer.drain()
            if isinstance(reply, bytes):
                return

    async with serve_tcp(converse, host=host, tls=tls) as port:
        web.port = port
        yield web


@asynccontextmanager
async def serve_tcp(
    converse: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any],
    *,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """A TCP server on a free port; a conversation that breaks off is not an error."""
    writers: set[asyncio.StreamWriter] = set()
    conversations: set[asyncio.Task[Any]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        conversations.add(task)
        writers.add(writer)
        try:
            await converse(reader, writer)
        except (EOFError, OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, host, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in conversations:
            task.cancel()
        await asyncio.gather(*conversations, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


Zone = Mapping[str, Mapping[str, Sequence[str]]]


class DnsServer(asyncio.DatagramProtocol):
    """Answers for the names of `zone` (without final dot; `*` stands for every other name), NXDOMAIN else."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.address = ""
        self.questions: dict[str, int] = defaultdict(int)
        self.failing: set[str] = set()
        self.transfer: Callable[[dns.message.Message], list[bytes]] | None = None
        self.transport: asyncio.DatagramTransport | None = None

    def datagram_received(self, data: bytes, addr: Any) -> None:
        assert self.transport is not None
        self.transport.sendto(self.answer(dns.message.from_wire(data)).to_wire(), addr)

    def answer(self, query: dns.message.Message) -> dns.message.Message:
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AA | dns.flags.RA
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True)
        self.questions[name] += 1
        if name in self.failing:
            response.set_rcode(dns.rcode.SERVFAIL)
            return response
        node = self.zone.get(name, self.zone.get("*"))
        if node is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
            return response
        for kind in ("CNAME", dns.rdatatype.to_text(question.rdtype)):
            for target in (name, *(text.rstrip(".") for text in node.get("CNAME", ()))):
                if texts := self.zone.get(target, node if target == name else {}).get(kind):
                    response.answer.append(
                        dns.rrset.from_text_list(f"{target}.", 60, "IN", kind, list(texts))
                    )
        return response

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := int.from_bytes(await reader.readexactly(2)):
            query = dns.message.from_wire(await reader.readexactly(size))
            if query.question[0].rdtype == dns.rdatatype.AXFR:
                refusal = dns.message.make_response(query)
                refusal.set_rcode(dns.rcode.REFUSED)
                wires = self.transfer(query) if self.transfer else [refusal.to_wire()]
            else:
                wires = [self.answer(query).to_wire()]
            for wire in wires:
                writer.write(len(wire).to_bytes(2) + wire)
                await writer.drain()


@asynccontextmanager
async def serve_dns(zone: Zone) -> AsyncIterator[DnsServer]:
    """A DNS server on one free port, UDP and TCP; `address` is what the option `resolver` takes."""
    server = DnsServer(zone)
    async with serve_tcp(server.converse) as port:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: server, local_addr=("127.0.0.1", port)
        )
        server.transport = transport
        server.address = f"127.0.0.1:{port}"
        try:
            yield server
        finally:
            transport.close()


def server_context(folder: Path, *, name: str = "app.test", days: int = 30) -> ssl.SSLContext:
    """Context of a TLS server with a self-signed certificate that ends in `days`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=60))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / f"{name}.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context
