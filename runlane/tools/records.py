"""What all record formats share: categories, typed reading of raw records, natural keys, quarantine."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from runlane.tools.clean import JsonValue, clean, clean_text
from runlane.tools.hosts import MalformedHost, normalise_host
from runlane.tools.urls import MalformedUrl, Url, parse_url

MAX_REASON: Final = 200
"""Characters of the reason why a record was refused."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Category(StrEnum):
    """What a tool finds, and so which adapter reads its records. Source: Job registry, Results."""

    SUBDOMAINS = "subdomains"
    PORTS_SCANNER = "ports_scanner"
    HTTP_PROBE = "http_probe"
    URL_DISCOVERY = "url_discovery"
    VULNERABILITIES = "vulnerabilities"
    SCREENSHOT = "screenshot"
    BENCH = "bench"  # no records, nothing to merge


class MalformedRecord(ValueError):
    """One record does not have the form of its category; the others of the result are unaffected."""

    def __init__(self, reason: str) -> None:
        self.reason = clean_text(reason)[:MAX_REASON]
        super().__init__(self.reason)


def digest(*parts: str | int) -> bytes:
    """Natural key of a record: 32 bytes, whatever the length of the values it stands for.

    A b-tree refuses keys above 2.7 kB and hostile hosts choose the length of URLs. Parts are joined by NUL,
    which no cleaned value contains.
    """
    return hashlib.sha256("\x00".join(str(part) for part in parts).encode()).digest()


@dataclass(frozen=True, slots=True)
class Fields:
    """Typed access to the fields of one cleaned object. Every accessor raises MalformedRecord with the name.

    Text that identifies something is refused when too long; text that describes something is cut (`excerpt`).
    """

    values: Mapping[str, JsonValue]

    @classmethod
    def of(cls, raw: object) -> "Fields":
        """Cleans `raw`, which must be an object.

        Raises:
            MalformedRecord: it is not.
        """
        cleaned = clean(raw)
        if not isinstance(cleaned, dict):
            raise MalformedRecord("a record is an object")
        return cls(cleaned)

    def text(self, name: str, limit: int) -> str:
        """Non-empty text of at most `limit` characters."""
        value = self.values.get(name)
        if not isinstance(value, str) or not value or len(value) > limit:
            raise MalformedRecord(f"{name}: text of 1 to {limit} characters expected")
        return value

    def excerpt(self, name: str, limit: int) -> str | None:
        """Text cut to `limit` characters; None if absent, null or empty."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise MalformedRecord(f"{name}: text expected")
        return value[:limit]

    def integer(self, name: str, low: int, high: int) -> int:
        """Whole number between `low` and `high`, both included."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise MalformedRecord(f"{name}: whole number from {low} to {high} expected")
        return value

    def integer_or_none(self, name: str, low: int, high: int) -> int | None:
        """As `integer`; None if absent or null."""
        return None if self.values.get(name) is None else self.integer(name, low, high)

    def flag(self, name: str) -> bool | None:
        """True, false, or None if absent or null."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise MalformedRecord(f"{name}: true or false expected")
        return value

    def one_of(self, name: str, allowed: frozenset[str]) -> str:
        """One of a closed set of words."""
        value = self.values.get(name)
        if not isinstance(value, str) or value not in allowed:
            raise MalformedRecord(f"{name}: one of {', '.join(sorted(allowed))} expected")
        return value

    def texts(self, name: str, limit: int, count: int) -> tuple[str, ...]:
        """At most `count` texts, each cut to `limit` characters; empty if absent or null."""
        value = self.values.get(name)
        items = [] if value is None else value
        if not isinstance(items, list):
            raise MalformedRecord(f"{name}: list of texts expected")
        kept: list[str] = []
        for item in items[:count]:
            if not isinstance(item, str):
                raise MalformedRecord(f"{name}: list of texts expected")
            kept.append(item[:limit])
        return tuple(kept)

    def objects(self, name: str, count: int) -> list["Fields"]:
        """At most `count` objects; empty if absent or null."""
        value = self.values.get(name)
        items = [] if value is None else value
        if not isinstance(items, list):
            raise MalformedRecord(f"{name}: list of objects expected")
        kept: list[Fields] = []
        for item in items[:count]:
            if not isinstance(item, dict):
                raise MalformedRecord(f"{name}: list of objects expected")
            kept.append(Fields(item))
        return kept

    def child(self, name: str) -> "Fields | None":
        """The object under `name`; None if absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise MalformedRecord(f"{name}: object expected")
        return Fields(value)

    def host(self, name: str) -> str:
        """Host name or address in its one spelling."""
        value = self.values.get(name)
        if not isinstance(value, str):
            raise MalformedRecord(f"{name}: host expected")
        try:
            return normalise_host(value)
        except MalformedHost as error:
            raise MalformedRecord(f"{name}: {error}") from error

    def url(self, name: str) -> Url:
        """Absolute http(s) URL, normalised."""
        value = self.values.get(name)
        if not isinstance(value, str):
            raise MalformedRecord(f"{name}: URL expected")
        try:
            return parse_url(value)
        except MalformedUrl as error:
            raise MalformedRecord(f"{name}: {error}") from error

    def sha256_or_none(self, name: str) -> bytes | None:
        """SHA-256 given as 64 hex digits; None if absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not _SHA256.fullmatch(value):
            raise MalformedRecord(f"{name}: 64 lower-case hex digits expected")
        return bytes.fromhex(value)

    def time_or_none(self, name: str) -> datetime | None:
        """ISO 8601 time as aware UTC; None if absent, null or not a time (certificates carry any text)."""
        value = self.values.get(name)
        if not isinstance(value, str):
            return None
        try:
            time = datetime.fromisoformat(value)
            return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        except (ValueError, OverflowError):
            return None
