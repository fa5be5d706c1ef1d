"""Decisions of a settle as events. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypedDict, TypeVar
from uuid import UUID

from runlane import names
from runlane.db.settle import Attempt, Decision
from runlane.events import EVENT_CATALOG, Envelope, Leaf, envelope
from runlane.events.payloads import JobCompleted, JobFailed, JobPayload, JobReleased, JobRetried
from runlane.jobs import JobVerb

_JOB = EVENT_CATALOG.job
JobPayloadT = TypeVar("JobPayloadT", bound=JobPayload)


def events_of(decisions: Sequence[Decision], now: datetime) -> list[Envelope]:
    """One `job.*` event for each decision, in the same order; `now` only feeds the `due_at` that is shown."""
    return [_event(decision, now) for decision in decisions]


def _event(decision: Decision, now: datetime) -> Envelope:
    attempt, verdict = decision.attempt, decision.verdict
    match verdict.verb:
        case JobVerb.COMPLETE:
            summary = decision.summary
            completed = JobCompleted(
                **_about(attempt),
                records=_count(summary, "records"),
                quarantined=_count(summary, "quarantined"),
                new=_count(summary, "new"),
            )
            return _of(_JOB.completed, completed, attempt)
        case JobVerb.FAIL:
            failures = attempt.failures + verdict.charged
            failed = JobFailed(
                **_about(attempt), reason=verdict.reason, error=decision.error, failures=failures
            )
            return _of(_JOB.failed, failed, attempt)
        case JobVerb.RETRY:
            due_at = (now + verdict.delay).astimezone(UTC).isoformat()
            retried = JobRetried(
                **_about(attempt),
                failures=attempt.failures + 1,
                due_at=due_at,
                error=decision.error,
                retry_job_id=None,
            )
            return _of(_JOB.retried, retried, attempt)
        case _:
            released = JobReleased(
                **_about(attempt), outcome=decision.outcome, free_attempts=attempt.free_attempts + 1
            )
            return _of(_JOB.released, released, attempt)


class _About(TypedDict):
    job_id: UUID
    run_id: UUID
    step_id: str
    tool_id: str
    attempt: int


def _about(attempt: Attempt) -> _About:
    return {
        "job_id": attempt.job_id,
        "run_id": attempt.run_id,
        "step_id": attempt.step_id,
        "tool_id": attempt.tool_id,
        "attempt": attempt.attempt,
    }


def _of(leaf: Leaf[JobPayloadT], payload: JobPayloadT, attempt: Attempt) -> Envelope:
    return envelope(
        leaf,
        payload,
        workspace_id=attempt.workspace_id,
        subject=names.job_subject(attempt.job_id),
        ordinal=attempt.attempt,
    )


def _count(summary: dict[str, object], name: str) -> int:
    value = summary.get(name, 0)
    return value if isinstance(value, int) else 0
