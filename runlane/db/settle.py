"""Settle: the verdict on jobs whose batch has ended, their merge and their events, in one transaction.

The order matters. The rows are locked first and only those still in progress at the attempt that was read
go on (a job cancelled in between keeps its verdict and its result is discarded); then records are merged,
then the verdicts are written. A reply that is lost after the commit is harmless: the second run finds
nothing in progress. A record set that cannot be merged hurts only its own job: it is tried again alone,
under a savepoint.
Source: Job registry, Results.
"""

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from runlane.db.guards import IN_PROGRESS, PENDING, job_may
from runlane.db.pool import Connection, Record
from runlane.events import scrub_text
from runlane.jobs import (
    FREE,
    JOBS,
    MAX_FREE_ATTEMPTS,
    MAX_LOSSES,
    QUARANTINED,
    UNCLAIMED_DELAY,
    JobStatus,
    JobVerb,
    Outcome,
    Verdict,
    judge,
)

MAX_MERGE_FAILURES: Final = 3
"""Merges of one staged result until the job fails. Source: Job registry, Results (three attempts)."""

MAX_PARTIAL_CHARS: Final = 16_384

_LOST_WITH_WORKERS: Final = (
    f"{MAX_LOSSES} lives of workers ended while they had this job, and no outage explains it"
)
_NOBODYS_FAULT: Final = f"{MAX_FREE_ATTEMPTS} attempts ended without the tool's fault"


class Ending(StrEnum):
    """How a batch activity ended: what it means for members without a staged outcome."""

    ENDED = "ended"  # it returned: a member without an outcome was lost by the worker
    LOST = "lost"  # heartbeat timeout, broken control stream
    RELEASED = "released"  # drain, or a workflow that began anew
    CANCELLED = "cancelled"
    RUNNING = "running"  # it goes on: only what is staged is settled


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt in progress, with what was staged for it."""

    job_id: UUID
    attempt: int
    workspace_id: UUID
    run_id: UUID
    step_id: str
    tool_id: str
    category: str
    target_id: UUID | None
    asset_id: UUID | None
    service_id: UUID | None
    dispatch_id: UUID
    worker_id: UUID
    observed_at: datetime
    failures: int
    failures_before: int
    """Charged attempts of the job that this one re-runs; they count against the same budget."""
    free_attempts: int
    losses: int
    merge_failures: int
    staged: Outcome | None
    error: str | None
    is_complete: bool
    is_reachable: bool
    coverage: Mapping[str, object]
    result_id: UUID | None
    body_of: tuple[UUID, int]
    """Job and attempt that the lines of the result name: its own, unless a kept result is merged anew."""


@dataclass(frozen=True, slots=True)
class StagedBody:
    """Where the records of a delivery are."""

    result_id: UUID
    body: bytes | None
    object_key: str | None
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Decision:
    """What is written about one attempt."""

    attempt: Attempt
    outcome: Outcome
    verdict: Verdict
    error: str | None = None
    partial: str | None = None
    summary: dict[str, object] = field(default_factory=dict)


_ATTEMPTS = f"""
SELECT j.id AS job_id, j.attempt, j.workspace_id, j.run_id, j.step_id, j.tool_id, j.category, j.target_id,
       j.asset_id, j.service_id, j.dispatch_id, j.worker_id, j.failures, j.failures_before, j.free_attempts,
       j.losses, a.observed_at, a.merge_failures, a.staged_outcome, a.staged_error, a.is_complete,
       a.is_reachable, a.coverage, a.result_id, a.body_job_id, a.body_attempt
FROM jobs j
JOIN job_attempts a ON a.job_id = j.id AND a.attempt = j.attempt
WHERE j.dispatch_id = ANY($1::uuid[]) AND j.completed_at IS NULL AND j.status = {IN_PROGRESS}
ORDER BY j.id
"""

_BODIES = """
SELECT id, body, object_key, size_bytes, sha256 FROM job_results WHERE id = ANY($1::uuid[])
"""

_LOCK = f"""
SELECT j.id, a.staged_at IS NOT NULL AS is_staged
FROM jobs j
JOIN unnest($1::uuid[], $2::int[]) AS m (id, attempt) ON m.id = j.id AND m.attempt = j.attempt
JOIN job_attempts a ON a.job_id = j.id AND a.attempt = j.attempt
WHERE {job_may(JobVerb.COMPLETE, "j")}
ORDER BY j.id
FOR UPDATE OF j, a
"""

_WRITE_JOBS = f"""
UPDATE jobs
SET status = v.status,
    completed_at = CASE WHEN v.status <> {PENDING} THEN clock_timestamp() END,
    dispatch_id = CASE WHEN v.status <> {PENDING} THEN jobs.dispatch_id END,
    worker_id = CASE WHEN v.status <> {PENDING} THEN jobs.worker_id END,
    picked_at = CASE WHEN v.status <> {PENDING} THEN jobs.picked_at END,
    due_at = CASE WHEN v.status = {PENDING} THEN clock_timestamp() + v.delay ELSE jobs.due_at END,
    failures = jobs.failures + v.charged::int,
    free_attempts = jobs.free_attempts + v.free::int,
    losses = jobs.losses + v.lost::int,
    alone = jobs.alone OR v.lost,
    quarantined = v.reason = '{QUARANTINED}',
    retryable = v.retryable,
    reason = nullif(v.reason, ''),
    result_ref = v.result_ref
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::interval[], $5::bool[], $6::bool[], $7::bool[], $8::bool[],
            $9::text[], $10::uuid[])
  AS v (id, attempt, status, delay, charged, free, lost, retryable, reason, result_ref)
WHERE jobs.id = v.id AND jobs.attempt = v.attempt AND {job_may(JobVerb.COMPLETE)}
"""

_WRITE_ATTEMPTS = """
UPDATE job_attempts
SET ended_at = clock_timestamp(), outcome = v.outcome, charged = v.charged, summary = v.summary,
    result_id = CASE WHEN v.keep THEN job_attempts.result_id END
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::bool[], $5::jsonb[], $6::bool[])
  AS v (job_id, attempt, outcome, charged, summary, keep)
WHERE job_attempts.job_id = v.job_id AND job_attempts.attempt = v.attempt AND job_attempts.ended_at IS NULL
"""

_WRITE_ERRORS = """
INSERT INTO job_error_logs (workspace_id, job_id, attempt, outcome, message, partial, digest)
SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::bytea[])
ON CONFLICT (workspace_id, job_id, digest) DO UPDATE
SET times = job_error_logs.times + 1, attempt = excluded.attempt, last_at = clock_timestamp(),
    partial = coalesce(excluded.partial, job_error_logs.partial)
"""

_COUNT_MERGE_FAILURE = """
UPDATE job_attempts SET merge_failures = merge_failures + 1
WHERE (job_id, attempt) IN (SELECT * FROM unnest($1::uuid[], $2::int[]))
"""

_KEEP_RESULTS = "UPDATE job_results SET kept = true WHERE id = ANY($1::uuid[])"

_FREE_REST = f"""
UPDATE jobs SET dispatch_id = NULL, alone = alone OR $2, due_at = greatest(due_at, clock_timestamp() + $3)
WHERE dispatch_id = ANY($1::uuid[]) AND completed_at IS NULL AND status = {PENDING}
"""

_CLOSE = """
UPDATE dispatches SET closed_at = clock_timestamp() WHERE id = ANY($1::uuid[]) AND closed_at IS NULL
"""

_CLAIMED_LATE = f"""
SELECT DISTINCT dispatch_id FROM jobs
WHERE dispatch_id = ANY($1::uuid[]) AND completed_at IS NULL AND status = {IN_PROGRESS}
"""

_DISCARD = """
DELETE FROM job_results r
WHERE r.id IN (
    SELECT unnest($1::uuid[])
    UNION SELECT a.result_id FROM job_attempts a
    WHERE a.dispatch_id = ANY($2::uuid[]) AND a.result_id IS NOT NULL
  ) AND NOT r.kept
  AND NOT EXISTS (SELECT 1 FROM job_attempts a WHERE a.result_id = r.id AND a.ended_at IS NULL)
RETURNING r.object_key
"""


async def attempts_of(conn: Connection, dispatch_ids: Sequence[UUID]) -> list[Attempt]:
    """Attempts in progress of these dispatches, unlocked: to fetch their bodies before the transaction."""
    rows = await conn.fetch(_ATTEMPTS, list(dispatch_ids))
    return [_attempt(row) for row in rows]


async def bodies_of(conn: Connection, attempts: Sequence[Attempt]) -> list[StagedBody]:
    """Staged bodies that these attempts refer to, each once."""
    ids = sorted({attempt.result_id for attempt in attempts if attempt.result_id is not None})
    rows = await conn.fetch(_BODIES, ids) if ids else []
    return [StagedBody(*row) for row in rows]


async def lock(conn: Connection, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts that are still in progress, locked in id order until the caller's transaction ends.

    One that was staged after it was read is left out: it is settled next time, with its result.
    """
    if not attempts:
        return []
    rows = await conn.fetch(_LOCK, [a.job_id for a in attempts], [a.attempt for a in attempts])
    locked = {row["id"]: row["is_staged"] for row in rows}
    return [a for a in attempts if locked.get(a.job_id) is (a.staged is not None)]


def decide(attempt: Attempt, outcome: Outcome, error: str | None = None, *, lives_lost: int = 0) -> Decision:
    """The decision on an attempt with this outcome, jitter drawn here. A job that fails always says why."""
    verdict = judge(
        outcome,
        failures=attempt.failures + attempt.failures_before,
        free_attempts=attempt.free_attempts,
        lives_lost=lives_lost,
        jitter=random.uniform(-1, 1),  # noqa: S311  # spreads retries, guards nothing
    )
    if verdict.verb is JobVerb.FAIL and error is None:
        error = _LOST_WITH_WORKERS if verdict.reason == QUARANTINED else _NOBODYS_FAULT
    return Decision(attempt, outcome, verdict, error)


def unstaged_outcome(ending: Ending) -> Outcome:
    """Outcome of a member about which nothing was staged."""
    return Outcome.LOST if ending in (Ending.ENDED, Ending.LOST) else Outcome.RELEASED


async def write(conn: Connection, decisions: Sequence[Decision]) -> None:
    """Writes verdicts, attempts and error logs; set-based, conditional on status and attempt."""
    if not decisions:
        return
    ids = [d.attempt.job_id for d in decisions]
    numbers = [d.attempt.attempt for d in decisions]
    kept = [d.attempt.result_id if d.outcome is Outcome.MERGE_FAILED else None for d in decisions]
    await conn.execute(
        _WRITE_JOBS,
        ids,
        numbers,
        [JOBS.advance(JobStatus.IN_PROGRESS, d.verdict.verb) for d in decisions],
        [d.verdict.delay for d in decisions],
        [d.verdict.charged for d in decisions],
        [d.outcome in FREE for d in decisions],
        [d.outcome is Outcome.LOST for d in decisions],
        [d.verdict.retryable for d in decisions],
        [d.verdict.reason for d in decisions],
        kept,
    )
    await conn.execute(
        _WRITE_ATTEMPTS,
        ids,
        numbers,
        [d.outcome for d in decisions],
        [d.verdict.charged for d in decisions],
        [d.summary for d in decisions],
        [result_id is not None for result_id in kept],
    )
    await _write_errors(conn, [d for d in decisions if d.error is not None])
    kept_ids = [result_id for result_id in kept if result_id is not None]
    if kept_ids:
        await conn.execute(_KEEP_RESULTS, kept_ids)


async def _write_errors(conn: Connection, decisions: Sequence[Decision]) -> None:
    if not decisions:
        return
    messages = [scrub_text(decision.error or "") for decision in decisions]
    await conn.execute(
        _WRITE_ERRORS,
        [d.attempt.workspace_id for d in decisions],
        [d.attempt.job_id for d in decisions],
        [d.attempt.attempt for d in decisions],
        [d.outcome for d in decisions],
        messages,
        [scrub_text(d.partial)[:MAX_PARTIAL_CHARS] if d.partial else None for d in decisions],
        [
            hashlib.sha256(f"{d.outcome}\n{message}".encode()).digest()
            for d, message in zip(decisions, messages, strict=True)
        ],
    )


async def count_merge_failure(conn: Connection, attempts: Sequence[Attempt]) -> None:
    """Counts one failed merge for each attempt; the attempts stay in progress, to be merged again."""
    await conn.execute(_COUNT_MERGE_FAILURE, [a.job_id for a in attempts], [a.attempt for a in attempts])


async def close(conn: Connection, dispatch_ids: Sequence[UUID], *, is_lost: bool) -> set[UUID]:
    """Closes dispatches: members that nobody claimed are dispatched anew in a moment, alone after a loss.

    Returns those with members that were claimed after the attempts were read, by a worker that nobody waited
    for any more: they are to be settled again. Later claims find nothing.
    """
    await conn.execute(_FREE_REST, list(dispatch_ids), is_lost, UNCLAIMED_DELAY)
    await conn.execute(_CLOSE, list(dispatch_ids))
    rows = await conn.fetch(_CLAIMED_LATE, list(dispatch_ids))
    return {row["dispatch_id"] for row in rows}


async def discard_results(
    conn: Connection, result_ids: Sequence[UUID], dispatch_ids: Sequence[UUID]
) -> list[str]:
    """Deletes these staged results, and those that cancelled attempts of these dispatches left behind.

    What an open attempt or a later merge still needs is kept. Returns keys of objects to delete after commit.
    """
    rows = await conn.fetch(_DISCARD, list(result_ids), list(dispatch_ids))
    return [row["object_key"] for row in rows if row["object_key"]]


def _attempt(row: Record) -> Attempt:
    staged = row["staged_outcome"]
    return Attempt(
        job_id=row["job_id"],
        attempt=row["attempt"],
        workspace_id=row["workspace_id"],
        run_id=row["run_id"],
        step_id=row["step_id"],
        tool_id=row["tool_id"],
        category=row["category"],
        target_id=row["target_id"],
        asset_id=row["asset_id"],
        service_id=row["service_id"],
        dispatch_id=row["dispatch_id"],
        worker_id=row["worker_id"],
        observed_at=row["observed_at"],
        failures=row["failures"],
        failures_before=row["failures_before"],
        free_attempts=row["free_attempts"],
        losses=row["losses"],
        merge_failures=row["merge_failures"],
        staged=Outcome(staged) if staged else None,
        error=row["staged_error"],
        is_complete=bool(row["is_complete"]),
        is_reachable=bool(row["is_reachable"]),
        coverage=row["coverage"] or {},
        result_id=row["result_id"],
        body_of=(row["body_job_id"] or row["job_id"], row["body_attempt"] or row["attempt"]),
    )
