"""What a merge is given and what it answers; many sightings of one thing folded into one. Pure."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Generic, TypeAlias, TypeVar
from uuid import UUID

from runlane.errors import Defect
from runlane.events import Envelope
from runlane.tools import Record

CHUNK: Final = 1_000
"""Records of one statement: memory follows the chunk, not the result, and so does the time for which the
heartbeats wait. With chunks ten times as large, a merge on a crowded machine missed them and began anew."""

Announce: TypeAlias = Callable[[Sequence[Envelope]], Awaitable[None]]
"""Writes events in the transaction of their merge."""

KeyT = TypeVar("KeyT", bound=Hashable)
RecordT = TypeVar("RecordT")


@dataclass(frozen=True, slots=True)
class MergeJob:
    """The result of one attempt, read and cleaned, with what it speaks of."""

    job_id: UUID
    attempt: int
    workspace_id: UUID
    run_id: UUID
    target_id: UUID | None
    """None when the target was deleted meanwhile; then there is nothing to merge into. So with the asset."""
    asset_id: UUID | None
    service_id: UUID | None
    tool_id: str
    observed_at: datetime
    """The moment that the result speaks of: its claim, by the database's clock."""
    complete: bool
    """Whether the tool looked at all of `coverage`; a partial result closes nothing."""
    reachable: bool
    """Whether the tool saw the target answer at all; a host without network finds nothing anywhere."""
    coverage: Mapping[str, object]
    """What was looked at, as the tool says; see `runlane.db.inventory.coverage`."""
    records: Collection[Record]


@dataclass(frozen=True, slots=True)
class MergeSummary:
    """What became of one job's records: `records` = `new` + `updated` + `outside`."""

    records: int
    new: int
    """The inventory did not have them. Of several jobs of one merge the earliest is the finder."""
    updated: int
    """The inventory had them already, or had one that is newer."""
    outside: int = 0
    """Not about the job's own target or asset, and so left out."""


@dataclass(frozen=True, slots=True)
class Sighting(Generic[RecordT]):
    """One thing as a set of jobs saw it."""

    record: RecordT
    """As the newest job has it."""
    newest: MergeJob
    oldest: MergeJob


@dataclass(slots=True)
class Ledger:
    """Counts of a merge that is under way, and the events that it has not told yet."""

    jobs: Sequence[MergeJob]
    announce: Announce
    envelopes: list[Envelope] = field(default_factory=list)
    _new: Counter[UUID] = field(default_factory=Counter)
    _outside: Counter[UUID] = field(default_factory=Counter)

    def found(self, job: MergeJob) -> None:
        """Counts one record of `job` as new."""
        self._new[job.job_id] += 1

    def left_out(self, job: MergeJob, count: int = 1) -> None:
        """Counts records of `job` that do not belong to its subject."""
        self._outside[job.job_id] += count

    async def tell(self) -> None:
        """Announces the events so far: those of a large result are not kept until its end."""
        envelopes, self.envelopes = self.envelopes, []
        await self.announce(envelopes)

    def summaries(self) -> dict[UUID, MergeSummary]:
        """What became of the records of each job."""
        return {job.job_id: self._summary(job) for job in self.jobs}

    def _summary(self, job: MergeJob) -> MergeSummary:
        records, new, outside = len(job.records), self._new[job.job_id], self._outside[job.job_id]
        return MergeSummary(records, new, records - new - outside, outside)


def fold(
    seen: Iterable[tuple[KeyT, MergeJob, RecordT]], rank: Callable[[RecordT], tuple[object, ...]]
) -> dict[KeyT, Sighting[RecordT]]:
    """One sighting per key, whatever the order of `seen`: one statement may touch a row only once.

    `rank` decides between records of the same moment: the greatest stays.
    """
    folded: dict[KeyT, Sighting[RecordT]] = {}
    for key, job, record in seen:
        known = folded.get(key)
        folded[key] = Sighting(record, job, job) if known is None else _join(known, job, record, rank)
    return folded


def _join(
    known: Sighting[RecordT],
    job: MergeJob,
    record: RecordT,
    rank: Callable[[RecordT], tuple[object, ...]],
) -> Sighting[RecordT]:
    oldest = min(known.oldest, job, key=lambda each: (each.observed_at, each.job_id))
    before = (known.newest.observed_at, *rank(known.record), known.newest.job_id)
    if (job.observed_at, *rank(record), job.job_id) > before:
        return Sighting(record, job, oldest)
    return Sighting(known.record, known.newest, oldest)


def chunks(
    jobs: Iterable[MergeJob], kind: type[RecordT], size: int = CHUNK
) -> Iterator[list[tuple[MergeJob, RecordT]]]:
    """The records of all jobs, at most `size` at a time; nothing is yielded for no records.

    Raises:
        Defect: a record is not of the category's kind.
    """
    chunk: list[tuple[MergeJob, RecordT]] = []
    for job in jobs:
        for record in job.records:
            if not isinstance(record, kind):
                raise Defect(f"{type(record).__name__} in a merge of {kind.__name__}")
            chunk.append((job, record))
            if len(chunk) >= size:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    """Rows as columns, for `unnest`. There must be at least one row."""
    return [list(column) for column in zip(*rows, strict=True)]
