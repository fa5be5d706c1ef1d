"""Certificates for the TLS listeners, made anew at every start: nothing secret is stored."""

import ssl
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runlane.lab.model import Certificate

AUTHORITY = "Lab Test Authority"
_BACKDATED = timedelta(days=400)
_EXPIRED_SINCE = timedelta(days=30)
_VALID_FOR = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class _Issuer:
    name: x509.Name
    key: ec.EllipticCurvePrivateKey


class CertificateMaker:
    """Issues server certificates of each kind; `now` decides what is expired."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._authority = _Issuer(_named(AUTHORITY), _new_key())

    def server_context(self, kind: Certificate, names: tuple[str, ...]) -> ssl.SSLContext:
        """A TLS server context with a fresh certificate of `kind` for `names`; the first is its subject."""
        key = _new_key()
        subject = _named(names[0])
        issuer = _Issuer(subject, key) if kind is Certificate.SELF_SIGNED else self._authority
        lapses_in = -_EXPIRED_SINCE if kind is Certificate.EXPIRED else _VALID_FOR
        certificate = (
            x509.CertificateBuilder(subject_name=subject, issuer_name=issuer.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _BACKDATED)
            .not_valid_after(self._now + lapses_in)
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False
            )
            .sign(issuer.key, hashes.SHA256())
        )
        return _load(certificate, key)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _load(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> ssl.SSLContext:
    """Builds the context. The ssl module reads only files: the key is on disk, ours alone, for a moment."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(path)
    return context
