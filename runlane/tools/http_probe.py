"""Answers of web services, one record for each service.

Sample: `{"url": "https://a.example.com/", "status": 200, "title": "Home", "tls": {"version": "TLSv1.3"}, …}`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from runlane.tools.records import Fields, MalformedRecord, digest

_MAX_HEADERS: Final = 100
_MAX_HEADER_NAME: Final = 200
_MAX_HEADER_VALUE: Final = 4_000
_MAX_LENGTH: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Redirect:
    """One answer on the way: the URL that was asked and the 3xx status it gave."""

    url: str
    status: int


@dataclass(frozen=True, slots=True)
class Technology:
    """Software that the answer gives away."""

    name: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Certificate:
    """TLS session and leaf certificate as presented; nothing of it is trusted, any field may be missing."""

    version: str | None
    cipher: str | None
    subject_cn: str | None
    issuer_cn: str | None
    san: tuple[str, ...]
    not_before: datetime | None
    not_after: datetime | None
    serial: str | None
    sha256: bytes | None
    self_signed: bool
    expired: bool
    """As seen by the probe at that time."""


@dataclass(frozen=True, slots=True)
class HttpRecord:
    """The answer of one web service to `GET /`. Natural key: `key`, the hash of `url`."""

    key: bytes
    url: str
    scheme: str
    host: str
    port: int
    path: str
    status: int
    """Of the service itself: a 3xx stays a 3xx, what it led to is `final_url`."""
    title: str | None
    server: str | None
    content_type: str | None
    content_length: int | None
    headers: Mapping[str, str]
    """Names in lower case; values of a repeated name joined by the probe."""
    redirects: tuple[Redirect, ...]
    final_url: str | None
    technologies: tuple[Technology, ...]
    body_sha256: bytes | None
    favicon_sha256: bytes | None
    tls: Certificate | None
    response_ms: int | None


def parse(raw: object) -> HttpRecord:
    """Reads one record; scheme, host, port and path are those of the URL, whatever the record claims.

    Raises:
        MalformedRecord: see there.
    """
    fields = Fields.of(raw)
    url = fields.url("url")
    return HttpRecord(
        key=digest(str(url)),
        url=str(url),
        scheme=url.scheme,
        host=url.host,
        port=url.port,
        path=url.path,
        status=fields.integer("status", 100, 999),
        title=fields.excerpt("title", 500),
        server=fields.excerpt("server", 200),
        content_type=fields.excerpt("content_type", 200),
        content_length=fields.integer_or_none("content_length", 0, _MAX_LENGTH),
        headers=_parse_headers(fields.child("headers")),
        redirects=tuple(_parse_redirect(item) for item in fields.objects("redirects", 10)),
        final_url=fields.excerpt("final_url", 4_096),
        technologies=tuple(_parse_technology(item) for item in fields.objects("technologies", 100)),
        body_sha256=fields.sha256_or_none("body_sha256"),
        favicon_sha256=fields.sha256_or_none("favicon_sha256"),
        tls=_parse_certificate(fields.child("tls")),
        response_ms=fields.integer_or_none("response_ms", 0, 2**31 - 1),
    )


def _parse_headers(fields: Fields | None) -> Mapping[str, str]:
    if fields is None:
        return {}
    headers: dict[str, str] = {}
    for name, value in list(fields.values.items())[:_MAX_HEADERS]:
        if not isinstance(value, str):
            raise MalformedRecord("headers: object of texts expected")
        headers[name.lower()[:_MAX_HEADER_NAME]] = value[:_MAX_HEADER_VALUE]
    return headers


def _parse_redirect(fields: Fields) -> Redirect:
    return Redirect(url=fields.text("url", 4_096), status=fields.integer("status", 100, 999))


def _parse_technology(fields: Fields) -> Technology:
    return Technology(name=fields.text("name", 100), version=fields.excerpt("version", 100))


def _parse_certificate(fields: Fields | None) -> Certificate | None:
    if fields is None:
        return None
    return Certificate(
        version=fields.excerpt("version", 50),
        cipher=fields.excerpt("cipher", 100),
        subject_cn=fields.excerpt("subject_cn", 300),
        issuer_cn=fields.excerpt("issuer_cn", 300),
        san=fields.texts("san", 300, 500),
        not_before=fields.time_or_none("not_before"),
        not_after=fields.time_or_none("not_after"),
        serial=fields.excerpt("serial", 100),
        sha256=fields.sha256_or_none("sha256"),
        self_signed=fields.flag("self_signed") or False,
        expired=fields.flag("expired") or False,
    )
