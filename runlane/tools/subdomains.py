"""Names found under a zone. Sample: `{"name": "app.example.com", "records": {"A": ["192.0.2.7"]}}`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from runlane.tools.hosts import MalformedHost, normalise_name
from runlane.tools.records import Fields, MalformedRecord

RECORD_TYPES: Final = ("A", "AAAA", "CNAME", "MX", "NS", "TXT", "SOA")
"""DNS record types that are kept, each as a list of texts in zone file notation."""

_MAX_VALUE: Final = 2_000
_MAX_VALUES: Final = 200


@dataclass(frozen=True, slots=True)
class SubdomainRecord:
    """One name that exists in DNS. Natural key: `name`, within the target it was found for."""

    name: str
    records: Mapping[str, tuple[str, ...]]
    """Only types of RECORD_TYPES that have values; values sorted, without repetition."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Values of A, then of AAAA."""
        return (*self.records.get("A", ()), *self.records.get("AAAA", ()))


def parse(raw: object) -> SubdomainRecord:
    """Reads one record; unknown record types are ignored.

    Raises:
        MalformedRecord: see there.
    """
    fields = Fields.of(raw)
    try:
        name = normalise_name(fields.text("name", 254), underscores=True)
    except MalformedHost as error:
        raise MalformedRecord(f"name: {error}") from error
    return SubdomainRecord(name=name, records=_parse_records(fields.child("records")))


def _parse_records(fields: Fields | None) -> Mapping[str, tuple[str, ...]]:
    if fields is None:
        return {}
    found = {kind: fields.texts(kind, _MAX_VALUE, _MAX_VALUES) for kind in RECORD_TYPES}
    return {kind: tuple(sorted(set(values))) for kind, values in found.items() if values}
