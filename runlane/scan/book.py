"""What the members of a batch of foreign programs have brought so far. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from runlane.jobs import Outcome
from runlane.scan.lines import MAX_COVERAGE_BYTES, MAX_ERROR
from runlane.scan.wire import ClaimedJob, Member
from runlane.tools.adapters.adapter import Conclusion, Raw

MAX_ARGUMENT: Final = 1_000
"""Characters of an argument that are told to the API."""


@dataclass(slots=True)
class _Entry:
    job: ClaimedJob
    argv: tuple[str, ...] = ()
    records: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    unreadable: int = 0
    first_fault: str = ""
    is_cut: bool = False

    @property
    def doubts(self) -> list[str]:
        """Why the records are not all that there was."""
        found = []
        if self.unreadable:
            found.append(f"{self.unreadable} parts of the output could not be read: {self.first_fault}")
        if self.is_cut:
            found.append(f"output cut after {self.size_bytes} bytes")
        return found


class Book:
    """Members by job id. What is said of one that is not open any more is discarded."""

    def __init__(self, jobs: Sequence[ClaimedJob], job_output_bytes: int) -> None:
        self._most_bytes = job_output_bytes
        self._open = {job.job_id: _Entry(job) for job in jobs}
        self._finished: list[Member] = []

    @property
    def is_over(self) -> bool:
        """Whether no job is open any more."""
        return not self._open

    def open_jobs(self) -> list[ClaimedJob]:
        """Jobs without an outcome, in the order given."""
        return [entry.job for entry in self._open.values()]

    def is_open(self, job_id: str) -> bool:
        """Whether the job has no outcome and was not dropped."""
        return job_id in self._open

    def holds(self, job_id: str, attempt: int) -> bool:
        """Whether the job is open at exactly this attempt."""
        return job_id in self._open and self._open[job_id].job.attempt == attempt

    def take_finished(self) -> list[Member]:
        """Members that have ended since the last call; each is handed out once."""
        finished, self._finished = self._finished, []
        return finished

    def drop(self, job_id: str) -> None:
        """Forgets a cancelled job and all that it found."""
        self._open.pop(job_id, None)

    def begin(self, job_id: str, argv: Sequence[str]) -> None:
        """A child is started for a job: what an earlier one found of it is void."""
        entry = self._open.get(job_id)
        if entry is not None:
            shown = tuple(argument[:MAX_ARGUMENT] for argument in argv)
            self._open[job_id] = _Entry(entry.job, shown)

    def record(self, job_id: str, raw: Raw) -> None:
        """Keeps a record, as long as there is room for it."""
        entry = self._open.get(job_id)
        if entry is None:
            return
        text = orjson.dumps(dict(raw))
        if entry.is_cut or entry.size_bytes + len(text) > self._most_bytes:
            entry.is_cut = True
            return
        entry.records.append(text)
        entry.size_bytes += len(text)

    def doubt(self, job_id: str, reason: str) -> None:
        """A part of the output that may have been about this job could not be read."""
        entry = self._open.get(job_id)
        if entry is not None:
            entry.unreadable += 1
            entry.first_fault = entry.first_fault or reason

    def records(self, job_id: str) -> list[Raw]:
        """What was found of an open job."""
        return [orjson.loads(text) for text in self._open[job_id].records]

    def conclude(self, job_id: str, conclusion: Conclusion) -> None:
        """Ends a job whose child ended by itself."""
        if job_id not in self._open:
            return
        for raw in conclusion.records:
            self.record(job_id, raw)
        if conclusion.failure is not None:
            self.end(job_id, Outcome.TOOL_FAILED, conclusion.failure)
            return
        entry = self._open.pop(job_id)
        doubts = entry.doubts
        coverage = dict(conclusion.coverage)
        is_small = len(orjson.dumps(coverage)) <= MAX_COVERAGE_BYTES
        notes = [*doubts, *([conclusion.note] if conclusion.note else [])]
        self._finished.append(
            Member(
                job_id=job_id,
                attempt=entry.job.attempt,
                outcome=Outcome.COMPLETED,
                error="; ".join(notes)[:MAX_ERROR] or None,
                complete=conclusion.complete and not doubts and is_small,
                reachable=conclusion.reachable,
                coverage=coverage if is_small else {},
                records=tuple(entry.records),
                argv=entry.argv,
            )
        )

    def end(self, job_id: str, outcome: Outcome, error: str) -> None:
        """Ends a job otherwise; what it found is kept with it."""
        entry = self._open.pop(job_id, None)
        if entry is not None:
            self._finished.append(
                Member(
                    job_id=job_id,
                    attempt=entry.job.attempt,
                    outcome=outcome,
                    error=error[:MAX_ERROR],
                    records=tuple(entry.records),
                    argv=entry.argv,
                )
            )

    def end_all(self, outcome: Outcome, error: str) -> None:
        """Ends every open job alike."""
        for job_id in list(self._open):
            self.end(job_id, outcome, error)
