"""Reads what hosts staged. Hosts are not trusted: a body says something about the attempts that refer to it
and about no other, and neither its form nor its size can stop the merge.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson

from activities.large import LargeList, parse_large
from runlane.db.settle import MAX_PARTIAL_CHARS, Attempt, StagedBody
from runlane.jobs import Outcome
from runlane.storage import CorruptObject, Storage
from runlane.tools import Category, Parsed, parse_records
from runlane.tools.staged import lines

LARGE_BODY_BYTES: Final = 256 * 1024
"""A staged body above this is read in a thread, so that heartbeats go on."""

LARGE_LINE_BYTES: Final = 256 * 1024
"""Records of a longer line are not kept: they are read from the body again, portion by portion."""

SETTLE_BYTES: Final = 64 * 1024 * 1024
"""Bodies of one settle; the rest is left to the next. A single body may be larger."""

MAX_VALUES: Final = 8_000_000
"""Values in one body, as far as its commas tell: small ones take thirty times their size in memory."""

_PARTIAL_RECORDS: Final = 100

_HEAD: Final = re.compile(rb'\{"job":"([0-9a-f-]{36})","attempt":(\d{1,9}),"records":\[')
_TAIL: Final = re.compile(rb"\]\}\s*\Z")
_TAIL_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Found:
    """What an attempt found: its records if it completed, and the first of them as text for an error log."""

    parsed: Parsed
    partial: str | None


NOTHING: Final = Found(Parsed((), 0, ()), None)
"""Of an attempt without records."""


def fitting(bodies: Sequence[StagedBody]) -> list[StagedBody]:
    """The bodies from the front that one settle may hold; at least one."""
    size = 0
    fits: list[StagedBody] = []
    for staged in bodies:
        size += staged.size_bytes
        if fits and size > SETTLE_BYTES:
            break
        fits.append(staged)
    return fits


async def read_bodies(
    storage: Storage, bodies: Sequence[StagedBody], attempts: Sequence[Attempt]
) -> tuple[dict[UUID, Found], dict[UUID, str]]:
    """Reads bodies; answers what was found by job, and why a result cannot be read by its id."""
    found: dict[UUID, Found] = {}
    corrupt: dict[UUID, str] = {}
    for staged in bodies:
        own = [attempt for attempt in attempts if attempt.result_id == staged.result_id]
        try:
            body = await _load(storage, staged)
            if len(body) > LARGE_BODY_BYTES:
                found |= await asyncio.to_thread(_read, body, own)
            else:
                found |= _read(body, own)
        except (CorruptObject, ValueError) as error:
            corrupt[staged.result_id] = f"staged result cannot be read: {error}"
    return found, corrupt


async def _load(storage: Storage, staged: StagedBody) -> bytes:
    if staged.object_key is None:
        return staged.body or b""
    return await storage.load(staged.object_key, size_bytes=staged.size_bytes, sha256=staged.sha256)


def _read(body: bytes, attempts: Sequence[Attempt]) -> Mapping[UUID, Found]:
    if body.count(b",") > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values")
    found = dict(_line(body, start, end) for start, end in lines(body) if not body[start:end].isspace())
    return {each.job_id: _found(each, found.get(each.body_of, [])) for each in attempts}


def _line(body: bytes, start: int, end: int) -> tuple[tuple[UUID, int], list[object] | LargeList]:
    if end - start > LARGE_LINE_BYTES:
        return _large_line(body, start, end)
    match orjson.loads(body[start:end]):
        case {"job": str(job), "attempt": int(attempt), "records": list(records)}:
            return (UUID(job), attempt), records
        case _:
            raise ValueError("a line has a job, an attempt and a list of records")


def _large_line(body: bytes, start: int, end: int) -> tuple[tuple[UUID, int], LargeList]:
    """In the form in which scan workers write it: a long line is never read as a whole."""
    head, tail = _HEAD.match(body, start, end), _TAIL.search(body, end - _TAIL_BYTES, end)
    if head is None or tail is None:
        raise ValueError("a long line has a job, an attempt and a list of records, in this order")
    return (UUID(head[1].decode()), int(head[2])), LargeList.of(body, head.end(), tail.start())


def _found(attempt: Attempt, raws: list[object] | LargeList) -> Found:
    first = raws if isinstance(raws, list) else next(raws.portions(), [])
    if not first:
        return NOTHING
    return Found(_parsed(attempt, raws), _partial(first))


def _parsed(attempt: Attempt, raws: list[object] | LargeList) -> Parsed:
    category = Category(attempt.category)
    if attempt.staged is not Outcome.COMPLETED:
        return NOTHING.parsed
    return parse_records(category, raws) if isinstance(raws, list) else parse_large(category, raws)


def _partial(raws: list[object]) -> str:
    """Room for what will be masked; where it is cut, no half of a text is left that may be a token."""
    text = orjson.dumps(raws[:_PARTIAL_RECORDS])
    if len(text) <= 4 * MAX_PARTIAL_CHARS:
        return text.decode()
    return text[: 4 * MAX_PARTIAL_CHARS].rpartition(b'"')[0].decode(errors="ignore")
