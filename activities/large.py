"""Records of a large result: read from its body portion by portion, whenever they are asked for.

Three hundred thousand records as objects take ten times the memory of their text. A merge goes through them
in portions, so only these become objects; reading them twice, to count and to merge, costs a few seconds.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Self

import orjson

from runlane.tools import SAMPLE_REASONS, Category, Parsed, Record, parse_records
from runlane.tools.staged import portions


@dataclass(frozen=True, slots=True)
class LargeList:
    """A JSON list as text. Reading it raises ValueError where it is no JSON."""

    body: bytes
    cuts: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, body: bytes, start: int, end: int) -> Self:
        """The list without its brackets between two places of a body, which is not copied.

        Raises:
            ValueError: two of its objects have no comma between them.
        """
        return cls(body, tuple(portions(body, start, end)))

    def portions(self) -> Iterator[list[object]]:
        """Its values, so many at a time."""
        for start, end in self.cuts:
            values: list[object] = orjson.loads(b"[" + self.body[start:end] + b"]")
            yield values


@dataclass(frozen=True, slots=True)
class LargeRecords(Collection[Record]):
    """What can be read of a large list as records of a category."""

    category: Category
    values: LargeList
    count: int

    def __iter__(self) -> Iterator[Record]:
        for portion in self.values.portions():
            yield from parse_records(self.category, portion).records

    def __len__(self) -> int:
        return self.count

    def __contains__(self, record: object) -> bool:
        return any(each == record for each in self)


def parse_large(category: Category, values: LargeList) -> Parsed:
    """Reads the records of a large result once, to count them; a malformed one is counted and left out.

    Raises:
        ValueError: the list is no JSON.
    """
    count = quarantined = 0
    sample: tuple[str, ...] = ()
    for portion in values.portions():
        parsed = parse_records(category, portion)
        count += len(parsed.records)
        quarantined += parsed.quarantined
        sample = (*sample, *parsed.sample)[:SAMPLE_REASONS]
    return Parsed(LargeRecords(category, values, count), quarantined, sample)
