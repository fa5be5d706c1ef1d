"""TLS without trust: a probe looks at certificates, it does not rely on them."""

import hashlib
import ssl
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

T = TypeVar("T")

_MAX_NAMES: Final = 500
_LEGACY_SERVER_CONNECT: Final = 0x4  # OpenSSL's SSL_OP_LEGACY_SERVER_CONNECT
_DECODE_ERRORS: Final = (
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.ExtensionNotFound,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


@dataclass(frozen=True, slots=True)
class TlsSession:
    """A handshake that was completed, with the certificate as it came."""

    version: str | None
    cipher: str | None
    certificate_der: bytes | None


def permissive_context() -> ssl.SSLContext:
    """Client context that verifies nothing and speaks to old servers too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.options |= _LEGACY_SERVER_CONNECT
    return context


def session_of(connection: ssl.SSLObject) -> TlsSession:
    """What a completed handshake agreed on."""
    cipher = connection.cipher()
    return TlsSession(connection.version(), cipher[0] if cipher else None, connection.getpeercert(True))


def describe(session: TlsSession, now: datetime) -> dict[str, object]:
    """The `tls` object of a web record. A field that a broken certificate does not yield is null."""
    fields: dict[str, object] = {"version": session.version, "cipher": session.cipher}
    if session.certificate_der is None:
        return fields
    fields["sha256"] = hashlib.sha256(session.certificate_der).hexdigest()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's advice is for the makers of the certificate
        certificate = _try(lambda: x509.load_der_x509_certificate(session.certificate_der or b""))
        return fields if certificate is None else fields | _describe_certificate(certificate, now)


def _describe_certificate(certificate: x509.Certificate, now: datetime) -> dict[str, object]:
    # certificates are parsed field by field on access, and any field of a hostile one may be the broken one
    not_before = _try(lambda: certificate.not_valid_before_utc)
    not_after = _try(lambda: certificate.not_valid_after_utc)
    return {
        "subject_cn": _try(lambda: _common_name(certificate.subject)),
        "issuer_cn": _try(lambda: _common_name(certificate.issuer)),
        "san": _try(lambda: _alternative_names(certificate)) or [],
        "not_before": not_before.isoformat() if not_before else None,
        "not_after": not_after.isoformat() if not_after else None,
        "serial": _try(lambda: f"{certificate.serial_number:x}"),
        "self_signed": _try(lambda: _is_self_signed(certificate)) or False,
        "expired": not_after is not None and not_after < now,
    }


def _try(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except _DECODE_ERRORS:
        return None


def _common_name(name: x509.Name) -> str | None:
    attributes = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(attributes[0].value) if attributes else None


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    names = [str(name.value) for name in extension.value if isinstance(name, x509.DNSName | x509.IPAddress)]
    return names[:_MAX_NAMES]


def _is_self_signed(certificate: x509.Certificate) -> bool:
    if certificate.issuer != certificate.subject:
        return False
    try:
        certificate.verify_directly_issued_by(certificate)
    except InvalidSignature:
        return False
    except _DECODE_ERRORS:
        return True  # an algorithm that cannot be checked here; the names say it all the same
    return True


def utc_now() -> datetime:
    """The time by which certificates are judged."""
    return datetime.now(UTC)
