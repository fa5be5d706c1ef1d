"""Lines of the tool stream, as the scan worker writes and reads them. Pure; what a tool says is hostile."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import orjson

from runlane.jobs import Outcome
from runlane.scan.wire import ClaimedJob

MAX_ERROR: Final = 2_000
"""Characters of an error text that are kept."""

MAX_COVERAGE_BYTES: Final = 16_384
"""A coverage larger than this is dropped, and the result counts as incomplete."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A life sign."""


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One record of a job, as JSON text."""

    job_id: str
    record: bytes


@dataclass(frozen=True, slots=True)
class DoneLine:
    """The last word of the child on a job; `outcome` None says that it dropped a cancelled job."""

    job_id: str
    outcome: Outcome | None
    error: str | None = None
    complete: bool = False
    reachable: bool = False
    coverage: Mapping[str, object] = field(default_factory=dict)

    @property
    def said(self) -> bytes:
        """As a line for people."""
        outcome = self.outcome or "dropped"
        return f"{outcome}: {self.error}".encode() if self.error else f"{outcome}".encode()


@dataclass(frozen=True, slots=True)
class Garbled:
    """A line that says nothing; whose it was cannot be known."""


Line: TypeAlias = Tick | RecordLine | DoneLine | Garbled

_OUTCOMES: Final[Mapping[str, Outcome | None]] = {
    "completed": Outcome.COMPLETED,
    "failed": Outcome.TOOL_FAILED,
    "fatal": Outcome.FATAL,
    "cancelled": None,
}


def read_line(line: bytes) -> Line:
    """Reads one line of a child's output; never raises."""
    try:
        return _read(orjson.loads(line))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # the latter: nested too deep to be passed on
        return Garbled()


def is_sound(coverage: object) -> bool:
    """Whether a coverage may be passed on: an object, and neither too large nor nested too deep."""
    try:
        return isinstance(coverage, dict) and len(orjson.dumps(coverage)) <= MAX_COVERAGE_BYTES
    except orjson.JSONEncodeError:
        return False


def _read(message: object) -> Line:
    match message:
        case {"job": str(job_id), "record": dict(record)}:
            return RecordLine(job_id, orjson.dumps(record))
        case {"job": str(job_id), "done": dict(done)}:
            return _read_done(job_id, done)
        case {"tick": int()}:
            return Tick()
        case _:
            return Garbled()


def _read_done(job_id: str, done: Mapping[str, object]) -> DoneLine:
    outcome = done.get("outcome")
    if not isinstance(outcome, str) or outcome not in _OUTCOMES:
        return DoneLine(job_id, Outcome.TOOL_FAILED, "the tool ended the job without a known outcome")
    coverage = done.get("coverage")
    is_kept = is_sound(coverage)
    error = done.get("error")
    return DoneLine(
        job_id=job_id,
        outcome=_OUTCOMES[outcome],
        error=error[:MAX_ERROR] if isinstance(error, str) else None,
        complete=done.get("complete") is True and is_kept,
        reachable=done.get("reachable") is True,
        coverage=coverage if isinstance(coverage, dict) and is_kept else {},
    )


def job_lines(jobs: Iterable[ClaimedJob], options: Mapping[str, object]) -> bytes:
    """The lines that give jobs to a child. The attempt of each is added to the options of all."""
    common = orjson.dumps(options)[1:-1]
    return b"".join(_job_line(job, common) for job in jobs)


def _job_line(job: ClaimedJob, common: bytes) -> bytes:
    comma = b"," if common else b""
    options = orjson.Fragment(b'{"attempt":%d%b%b}' % (job.attempt, comma, common))
    return orjson.dumps({"job": job.job_id, "target": job.target, "options": options}) + b"\n"


def cancel_line(job_id: str) -> bytes:
    """The line that makes a child drop a job."""
    return orjson.dumps({"cancel": job_id}) + b"\n"
