"""The jobs of one batch: what each has brought so far, which are at work, which are over their limit. Pure.

A child works on its jobs in the order given, so many at once. From that and from what has ended, the ledger
knows which jobs may be at work: only these can be blamed when the child dies, and only their clocks run.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from runlane.jobs import Outcome
from runlane.scan.lines import DoneLine, RecordLine
from runlane.scan.wire import ClaimedJob, Member

WALL_MARGIN_S: Final = 5.0
"""The child's own limit fires first: it knows what the job has found so far."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What one job of a batch may take."""

    wall_s: float
    output_bytes: int
    parallelism: int
    """Jobs of a child at once."""


@dataclass(slots=True)
class _Entry:
    job: ClaimedJob
    started_at: float = 0.0
    records: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    is_doubtful: bool = False

    def end(self, outcome: Outcome, error: str | None, *, reachable: bool = False) -> Member:
        records = tuple(self.records)
        return Member(self.job.job_id, self.job.attempt, outcome, error, reachable=reachable, records=records)


class Ledger:
    """Times are of any one monotonic clock, in seconds."""

    def __init__(self, jobs: Sequence[ClaimedJob], limits: JobLimits) -> None:
        self._limits = limits
        self._open = {job.job_id: _Entry(job) for job in jobs}
        self._waiting: deque[_Entry] = deque()
        self._at_work: dict[str, _Entry] = {}
        self._finished: list[Member] = []

    @property
    def is_over(self) -> bool:
        """Whether no job is open any more."""
        return not self._open

    def open_jobs(self) -> list[ClaimedJob]:
        """Jobs without an outcome, in the order given."""
        return [entry.job for entry in self._open.values()]

    def holds(self, job_id: str, attempt: int) -> bool:
        """Whether the job is open here at exactly this attempt."""
        return job_id in self._open and self._open[job_id].job.attempt == attempt

    def take_finished(self) -> list[Member]:
        """Members that have ended since the last call; each is handed out once."""
        finished, self._finished = self._finished, []
        return finished

    def start_child(self, now: float) -> None:
        """A new child is given the open jobs; what an earlier one found of them is void."""
        for entry in self._open.values():
            entry.records.clear()
            entry.size_bytes = 0
        self._at_work.clear()
        self._waiting = deque(self._open.values())
        self._start_next(now)

    def record(self, line: RecordLine, now: float) -> bool:
        """Keeps a record; False if it was the one too many, which ends the job with what is there."""
        entry = self._open.get(line.job_id)
        if entry is None:
            return True
        if entry.size_bytes + len(line.record) > self._limits.output_bytes:
            error = f"output cut after {entry.size_bytes} bytes"
            self._finish(entry.end(Outcome.COMPLETED, error, reachable=True), now)
            return False
        entry.records.append(line.record)
        entry.size_bytes += len(line.record)
        return True

    def doubt(self) -> None:
        """An unreadable line: any job at work may have lost a record by it, so none of them is complete."""
        for entry in self._at_work.values():
            entry.is_doubtful = True

    def done(self, line: DoneLine, now: float) -> None:
        """Ends a job as its child says; a job that is not open is left alone."""
        entry = self._open.get(line.job_id)
        if entry is None:
            return
        if line.outcome is None:
            self._finish(entry.end(Outcome.TOOL_FAILED, "the tool dropped the job unasked"), now)
            return
        member = entry.end(line.outcome, line.error, reachable=line.reachable)
        complete = line.complete and not entry.is_doubtful
        self._finish(replace(member, complete=complete, coverage=line.coverage), now)

    def drop(self, job_id: str, now: float) -> None:
        """Forgets a cancelled job and all that it found."""
        self._open.pop(job_id, None)
        self._at_work.pop(job_id, None)
        self._start_next(now)

    def expire(self, now: float) -> list[str]:
        """Ends jobs that are over their limit and returns them; what they found is kept."""
        limit = self._limits.wall_s
        late = [e for e in self._at_work.values() if now - e.started_at > limit + WALL_MARGIN_S]
        for entry in late:
            self._finish(entry.end(Outcome.TIMED_OUT, f"over the limit of {limit:g} s"), now)
        return [entry.job.job_id for entry in late]

    def blame(self, outcome: Outcome, error: str) -> None:
        """The child died: ends the jobs that may have been at work. The others stay open, untouched."""
        for entry in list(self._at_work.values()):
            del self._open[entry.job.job_id]
            self._finished.append(entry.end(outcome, error))
        self._at_work.clear()

    def reject_all(self, error: str) -> None:
        """No child can be started here: every open job is somebody else's to do."""
        for entry in self._open.values():
            self._finished.append(entry.end(Outcome.REJECTED, error))
        self._open.clear()
        self._at_work.clear()

    def _start_next(self, now: float) -> None:
        while self._waiting and len(self._at_work) < self._limits.parallelism:
            entry = self._waiting.popleft()
            if entry.job.job_id in self._open:
                entry.started_at = now
                self._at_work[entry.job.job_id] = entry

    def _finish(self, member: Member, now: float) -> None:
        del self._open[member.job_id]
        self._at_work.pop(member.job_id, None)
        self._finished.append(member)
        self._start_next(now)
