"""URLs found by a crawl.

Sample: `{"url": "http://a.example.com/x", "status": 200, "depth": 1, "source": "link"}`
"""

from dataclasses import dataclass
from typing import Final

from runlane.tools.records import Fields, digest

SOURCES: Final = frozenset({"start", "link", "form", "script", "robots", "sitemap"})
"""Where a URL was seen first."""


@dataclass(frozen=True, slots=True)
class UrlRecord:
    """One URL of a web service. Natural key: `key`, the hash of `url`."""

    key: bytes
    url: str
    host: str
    port: int
    status: int | None
    """Status of the answer; None if it was seen but not asked for."""
    content_type: str | None
    depth: int
    """Links away from the start page, which is 0."""
    source: str


def parse(raw: object) -> UrlRecord:
    """Reads one record.

    Raises:
        MalformedRecord: see there.
    """
    fields = Fields.of(raw)
    url = fields.url("url")
    return UrlRecord(
        key=digest(str(url)),
        url=str(url),
        host=url.host,
        port=url.port,
        status=fields.integer_or_none("status", 100, 999),
        content_type=fields.excerpt("content_type", 200),
        depth=fields.integer("depth", 0, 1_000),
        source=fields.one_of("source", SOURCES),
    )
