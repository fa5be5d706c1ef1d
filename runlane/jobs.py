"""The state machines of jobs, steps and runs. Pure: SQL guards, docs and tests read these tables.

Jobs: waiting `pending` · running `in_progress` · final `completed`, `failed`, `cancelled`, `skipped`.
Source: Job registry, The states.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Generic, TypeVar

from runlane.errors import ImpossibleTransition

StatusT = TypeVar("StatusT", bound=StrEnum)
VerbT = TypeVar("VerbT", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Machine(Generic[StatusT, VerbT]):
    """A closed state machine: what may happen in which state, and where it leads."""

    name: str
    initial: StatusT
    terminal: frozenset[StatusT]
    transitions: Mapping[tuple[StatusT, VerbT], StatusT]

    def advance(self, status: StatusT, verb: VerbT) -> StatusT:
        """State after `verb`.

        Raises:
            ImpossibleTransition: the table has no such move.
        """
        try:
            return self.transitions[status, verb]
        except KeyError as error:
            raise ImpossibleTransition(f"{self.name}: no {verb} from {status}") from error

    def sources_of(self, verb: VerbT) -> tuple[StatusT, ...]:
        """States from which `verb` is possible, in declaration order: the guard of a conditional write."""
        return tuple(status for status, v in self.transitions if v is verb)

    def target_of(self, verb: VerbT) -> StatusT:
        """The one state to which `verb` leads (each verb has one: asserted by a test)."""
        return next(target for (_, v), target in self.transitions.items() if v is verb)


class JobStatus(StrEnum):
    """State of a job, as in the `jobs` table."""

    PENDING = "pending"  # written by admit, release and retry; consumes no compute
    IN_PROGRESS = "in_progress"  # set by the claim; worker_id and picked_at are set
    COMPLETED = "completed"  # set by the merge, in the transaction that merged the result
    FAILED = "failed"  # set when the budget is spent or no retry can help
    CANCELLED = "cancelled"  # set by a person or by the end of the run; the result is discarded
    SKIPPED = "skipped"  # never ran: an upstream step failed, or what it is about is excluded


class JobVerb(StrEnum):
    """What may happen to a job."""

    CLAIM = "claim"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    SKIP = "skip"
    RELEASE = "release"  # the worker was lost or gave it back: nobody's fault
    RETRY = "retry"  # the tool failed and budget is left


JOBS: Final = Machine(
    name="job",
    initial=JobStatus.PENDING,
    terminal=frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SKIPPED}),
    transitions={
        (JobStatus.PENDING, JobVerb.CLAIM): JobStatus.IN_PROGRESS,
        (JobStatus.IN_PROGRESS, JobVerb.COMPLETE): JobStatus.COMPLETED,
        (JobStatus.IN_PROGRESS, JobVerb.FAIL): JobStatus.FAILED,
        (JobStatus.PENDING, JobVerb.CANCEL): JobStatus.CANCELLED,
        (JobStatus.IN_PROGRESS, JobVerb.CANCEL): JobStatus.CANCELLED,
        (JobStatus.PENDING, JobVerb.SKIP): JobStatus.SKIPPED,
        (JobStatus.IN_PROGRESS, JobVerb.RELEASE): JobStatus.PENDING,
        (JobStatus.IN_PROGRESS, JobVerb.RETRY): JobStatus.PENDING,
    },
)


class StepStatus(StrEnum):
    """State of a step of a run."""

    WAITING = "waiting"  # a step it needs has not closed
    RUNNING = "running"  # opened by the run; its jobs are being admitted or worked on
    COMPLETED = "completed"  # every job ended and failures stayed inside the tolerance
    FAILED = "failed"  # too many of its jobs failed
    SKIPPED = "skipped"  # a step it needs failed or was skipped
    CANCELLED = "cancelled"  # the run was cancelled first


class StepVerb(StrEnum):
    """What may happen to a step."""

    OPEN = "open"
    COMPLETE = "complete"
    FAIL = "fail"
    SKIP = "skip"
    CANCEL = "cancel"


STEPS: Final = Machine(
    name="step",
    initial=StepStatus.WAITING,
    terminal=frozenset(
        {StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED, StepStatus.CANCELLED},
    ),
    transitions={
        (StepStatus.WAITING, StepVerb.OPEN): StepStatus.RUNNING,
        (StepStatus.RUNNING, StepVerb.COMPLETE): StepStatus.COMPLETED,
        (StepStatus.RUNNING, StepVerb.FAIL): StepStatus.FAILED,
        (StepStatus.WAITING, StepVerb.SKIP): StepStatus.SKIPPED,
        (StepStatus.WAITING, StepVerb.CANCEL): StepStatus.CANCELLED,
        (StepStatus.RUNNING, StepVerb.CANCEL): StepStatus.CANCELLED,
    },
)


class RunStatus(StrEnum):
    """State of a run, as in the `job_histories` table."""

    ACCEPTED = "accepted"  # rows are written; no workflow has read them yet
    RUNNING = "running"  # set by the workflow's first read
    COMPLETED = "completed"  # every step completed
    FAILED = "failed"  # a step failed; independent branches ran to their end
    CANCELLED = "cancelled"  # set by the cancel itself, before any process has died


class RunVerb(StrEnum):
    """What may happen to a run."""

    START = "start"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


RUNS: Final = Machine(
    name="run",
    initial=RunStatus.ACCEPTED,
    terminal=frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}),
    transitions={
        (RunStatus.ACCEPTED, RunVerb.START): RunStatus.RUNNING,
        (RunStatus.RUNNING, RunVerb.COMPLETE): RunStatus.COMPLETED,
        (RunStatus.RUNNING, RunVerb.FAIL): RunStatus.FAILED,
        (RunStatus.ACCEPTED, RunVerb.CANCEL): RunStatus.CANCELLED,
        (RunStatus.RUNNING, RunVerb.CANCEL): RunStatus.CANCELLED,
    },
)


class Outcome(StrEnum):
    """How one attempt ended, as in `job_attempts.outcome`."""

    COMPLETED = "completed"
    TOOL_FAILED = "tool_failed"
    TIMED_OUT = "timed_out"
    FATAL = "fatal"
    MERGE_FAILED = "merge_failed"
    LOST = "lost"
    RELEASED = "released"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    STALE = "stale"


MAX_FAILURES: Final = 4
"""Retry budget: charged attempts until a job fails. Source: Job registry, When something goes wrong."""

MAX_LOSSES: Final = 3
"""Lives of workers that a job may have seen the end of, outside of any outage, until it is quarantined."""

MAX_FREE_ATTEMPTS: Final = 20
"""Attempts that nobody is to blame for (lost, released, rejected) until a job fails as infrastructure."""

CLAIM_CAP: Final = 100
"""Jobs that one claim may take, whatever the worker advertises. Source: Job registry, Claiming."""

QUARANTINED: Final = "quarantined"
"""Reason of a job that failed because it seems to end the workers that have it."""

CHARGED: Final = frozenset({Outcome.TOOL_FAILED, Outcome.TIMED_OUT, Outcome.MERGE_FAILED})
"""Outcomes that spend the budget."""

FREE: Final = frozenset({Outcome.LOST, Outcome.RELEASED, Outcome.REJECTED})
"""Outcomes that spend nothing and are tried again."""

UNCLAIMED_DELAY: Final = timedelta(seconds=5)
"""How long a job waits of which nobody took anything: its batch ended without a claim, or the claim was given
nothing. A host that only answers, or a tool that was switched off, must not spin through the queue."""

_RETRY_BASE_S: Final = 10.0
_RETRY_CAP_S: Final = 120.0
_RELEASE_CAP_S: Final = 60.0
_JITTER: Final = 0.2


class Priority(StrEnum):
    """Names of the five priorities; `rank` is what is stored and sorted, lower first."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    BACKGROUND = "background"

    @property
    def rank(self) -> int:
        """0 (critical) … 4 (background)."""
        return list(Priority).index(self)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an ended attempt means for its job."""

    verb: JobVerb
    charged: bool
    delay: timedelta = timedelta(0)
    """How long a job that goes back to pending waits (`due_at`)."""
    reason: str = ""
    """Why a job failed: `fatal`, `budget`, `infrastructure`, `quarantined`, `merge`; empty otherwise."""
    retryable: bool = False
    """Whether the stuck sweep may re-run a failed job: only a failed merge."""


def retry_delay(failures: int, jitter: float) -> timedelta:
    """Back-off after the n-th charged failure: 10 s doubled each time, at most 120 s, ± 20 %.

    `jitter` is drawn by the caller from [-1, 1].
    """
    base = min(_RETRY_BASE_S * 2 ** (failures - 1), _RETRY_CAP_S)
    return timedelta(seconds=base * (1 + _JITTER * jitter))


def release_delay(free_attempts: int) -> timedelta:
    """Back-off after the n-th free outcome: none, then 1, 2, 4 … 60 s (a broken host must not spin)."""
    if free_attempts <= 1:
        return timedelta(0)
    return timedelta(seconds=min(2.0 ** (free_attempts - 2), _RELEASE_CAP_S))


def judge(
    outcome: Outcome, *, failures: int, free_attempts: int, lives_lost: int = 0, jitter: float = 0.0
) -> Verdict:
    """Decides what happens to a job whose attempt ended.

    `failures` and `free_attempts` count the attempts before this one. `lives_lost` counts the lives of
    workers that ended while they had the job, this one included, outside of any outage.
    """
    if outcome is Outcome.COMPLETED:
        return Verdict(JobVerb.COMPLETE, charged=False)
    if outcome is Outcome.FATAL:
        return Verdict(JobVerb.FAIL, charged=False, reason="fatal")
    if outcome is Outcome.MERGE_FAILED:
        return Verdict(JobVerb.FAIL, charged=True, reason="merge", retryable=True)
    if outcome in CHARGED:
        if failures + 1 >= MAX_FAILURES:
            return Verdict(JobVerb.FAIL, charged=True, reason="budget")
        return Verdict(JobVerb.RETRY, charged=True, delay=retry_delay(failures + 1, jitter))
    if outcome in FREE:
        if outcome is Outcome.LOST and lives_lost >= MAX_LOSSES:
            return Verdict(JobVerb.FAIL, charged=False, reason=QUARANTINED)
        if free_attempts + 1 >= MAX_FREE_ATTEMPTS:
            return Verdict(JobVerb.FAIL, charged=False, reason="infrastructure")
        return Verdict(JobVerb.RELEASE, charged=False, delay=release_delay(free_attempts + 1))
    raise ImpossibleTransition(f"outcome {outcome} has no verdict of its own")
