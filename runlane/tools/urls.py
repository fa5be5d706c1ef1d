"""HTTP addresses in one spelling, so that the same page has one row.

Source: RFC 3986 §6.2.2 (syntax-based normalisation) and §5.2.4 (dot segments).
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from runlane.tools.hosts import MalformedHost, normalise_host

MAX_URL: Final = 4096
"""Characters of a URL, before and after normalisation."""

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")
_TRIPLET: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SAFE: Final = "/%:@!$&'()*+,;=~-._"


class MalformedUrl(ValueError):
    """The text is no absolute http or https URL, or carries credentials, or is too long."""


@dataclass(frozen=True, slots=True)
class Url:
    """A normalised URL and its parts; `str()` gives its one spelling, without fragment."""

    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def authority(self) -> str:
        """Host and, unless it is the scheme's default, port; IPv6 in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme and authority with an empty path: `http://app.example.com:8080/`."""
        return f"{self.scheme}://{self.authority}/"

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.authority}{self.path}{query}"


def parse_url(text: str) -> Url:
    """Reads and normalises an absolute http(s) URL; the fragment is dropped.

    Raises:
        MalformedUrl: see there.
    """
    if len(text) > MAX_URL or _CONTROL.search(text):
        raise MalformedUrl(f"a URL has at most {MAX_URL} characters and no spaces")
    try:
        parts = urlsplit(text)
        port = parts.port
        host = normalise_host(parts.hostname or "")
    except (MalformedHost, ValueError) as error:
        raise MalformedUrl("host or port cannot be read") from error
    if parts.scheme not in DEFAULT_PORTS or parts.username is not None or port == 0:
        raise MalformedUrl("only http and https without credentials")
    path = _remove_dot_segments(_normalise_percent(parts.path))
    url = Url(
        scheme=parts.scheme,
        host=host,
        port=port or DEFAULT_PORTS[parts.scheme],
        path=path,
        query=_normalise_percent(parts.query, extra_safe="?"),
    )
    if len(str(url)) > MAX_URL:
        raise MalformedUrl(f"a URL has at most {MAX_URL} characters after encoding")
    return url


def _normalise_percent(text: str, extra_safe: str = "") -> str:
    decoded = _TRIPLET.sub(_normalise_triplet, _STRAY_PERCENT.sub("%25", text))
    return quote(decoded, safe=_SAFE + extra_safe, errors="replace")


def _normalise_triplet(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0].upper()


def _remove_dot_segments(path: str) -> str:
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)
