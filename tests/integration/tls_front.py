"""Something that does TLS in front of a port, as a proxy of an installation does."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.forwarding import forward


@dataclass(frozen=True, slots=True)
class Front:
    """Where it listens, and whose certificates have to be trusted for it."""

    address: str
    authority: Path


@asynccontextmanager
async def tls_in_front_of(port: int, folder: Path) -> AsyncIterator[Front]:
    """Takes TLS connections for HTTP/2 to `localhost` and passes on what is in them."""
    authority, chain = certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    context.set_alpn_protocols(["h2"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await forward(reader, writer, "127.0.0.1", port)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield Front(f"https://localhost:{server.sockets[0].getsockname()[1]}", authority)
    finally:
        server.close()


def certificates(folder: Path) -> tuple[Path, Path]:
    """An authority, and a server certificate of it with its key."""
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _builder("Test Authority", "Test Authority", authority_key)
    authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    server = _builder("localhost", "Test Authority", server_key)
    server = server.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    pem = serialization.Encoding.PEM
    private = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    trusted, chain = folder / "authority.pem", folder / "server.pem"
    trusted.write_bytes(authority.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    chain.write_bytes(private + server.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    return trusted, chain


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]),
        issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(days=1),
        not_valid_after=now + timedelta(days=1),
    )
