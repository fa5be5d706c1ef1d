"""Cancel of a run, a step or jobs: the verdict is written here, at once; what runs is told afterwards.

A cancelled run or step is closed from then on: nothing of it is dispatched or claimed. Its jobs follow in
portions: the first in the same transaction, begun with what is in progress; the rest is an operation.
Locks are taken in one order: the run's row, the step's row, jobs by id.
Source: Job registry, When something goes wrong (cancellation is terminal and discards the in-flight result).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from uuid import UUID

import orjson

from runlane import names
from runlane.db import nudges, operation_rows, outbox, project_runs, shards, waiting_fires
from runlane.db.acts import Act, Action, Deed, StepOfRun, acted
from runlane.db.guards import FAILED, IN_PROGRESS, is_rerun, job_may, run_may, step_may
from runlane.db.pool import Connection, Record
from runlane.errors import Conflict, NotFound
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import JobCancelled, RunPayload, StepPayload
from runlane.jobs import JOBS, RUNS, STEPS, JobVerb, Outcome, RunVerb, StepVerb

CAUSE_RUN: Final = "run"
"""Value of the `cause` attribute of events that a run action brought about, job by job."""

CAUSE_STEP: Final = "step"
"""The same of an action on a step."""

CAUSE_SCOPE: Final = "scope"
"""The same of a new exclusion."""

NOTICE_JOBS: Final = 100
"""Jobs of one control notice: PostgreSQL takes 8,000 bytes in each."""

NOBODY: Final = Act()

# Weak enough to let a settle that holds jobs refer to the run, or each would wait for what the other holds.
_RUN = """
SELECT id, name, kind, status, closed_at FROM job_histories WHERE workspace_id = $1 AND id = $2
FOR NO KEY UPDATE
"""

_STEP = "SELECT status, tool_id FROM run_steps WHERE run_id = $1 AND step_id = $2 FOR NO KEY UPDATE"

_JOB = "SELECT run_id, status FROM jobs WHERE workspace_id = $1 AND id = $2"


def _doom(lock: str) -> str:
    return f"""
WITH doomed AS (
  SELECT id, status AS was FROM jobs
  WHERE workspace_id = $3 AND id = ANY($4::uuid[]) AND {job_may(JobVerb.CANCEL)}
  ORDER BY id
  {lock}
)
UPDATE jobs
SET status = '{JOBS.target_of(JobVerb.CANCEL)}', completed_at = clock_timestamp(), reason = $1, cause = $2
FROM doomed
WHERE jobs.id = doomed.id
RETURNING jobs.id, jobs.workspace_id, jobs.run_id, jobs.step_id, jobs.tool_id, jobs.attempt,
          CASE WHEN doomed.was = {IN_PROGRESS} THEN jobs.worker_id END AS worker_id
"""


_DOOM = _doom("FOR UPDATE")

# Of many, those that a merge holds are left to a later portion: the answer to a person waits for no merge.
_DOOM_FREE = _doom("FOR UPDATE SKIP LOCKED")

# What is in progress comes first: results that come between two portions are few, or none.
_FIRST = f"""
SELECT id, count(*) OVER () AS total FROM jobs
WHERE run_id = $1 AND ($2::text IS NULL OR step_id = $2) AND completed_at IS NULL
ORDER BY status <> {IN_PROGRESS}
LIMIT $3
"""

_ATTEMPTS = f"""
UPDATE job_attempts SET ended_at = clock_timestamp(), outcome = '{Outcome.CANCELLED}'
WHERE job_id = ANY($1::uuid[]) AND ended_at IS NULL
"""

_STEPS = f"""
UPDATE run_steps SET status = '{STEPS.target_of(StepVerb.CANCEL)}', closed_at = clock_timestamp()
WHERE run_id = $1 AND {step_may(StepVerb.CANCEL)}
"""

_CLOSE_STEP = f"""
UPDATE run_steps SET status = '{STEPS.target_of(StepVerb.CANCEL)}', closed_at = clock_timestamp(),
  jobs_failed = (SELECT count(*) FROM jobs j
                 WHERE j.run_id = $1 AND j.step_id = $2 AND j.status = {FAILED} AND NOT {is_rerun("j")})
WHERE run_id = $1 AND step_id = $2 AND {step_may(StepVerb.CANCEL)}
RETURNING jobs_total, jobs_failed
"""

_CLOSE = f"""
UPDATE job_histories SET status = '{RUNS.target_of(RunVerb.CANCEL)}', closed_at = clock_timestamp(),
  blocked_reason = NULL
WHERE id = $1 AND {run_may(RunVerb.CANCEL)}
"""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The cancel of a run or, with `step_id`, of a step of it."""

    action: Action
    cause: str
    act: Act
    workspace_id: UUID
    run_id: UUID
    step_id: str | None = None


@dataclass(frozen=True, slots=True)
class CancelResult:
    """What the cancel of a run or step did."""

    run_id: UUID
    jobs: int
    """Jobs that had not ended; 0 when it had been cancelled before."""


async def cancel_run(conn: Connection, workspace_id: UUID, run_id: UUID, act: Act = NOBODY) -> CancelResult:
    """Cancels a run and every job in it that has not ended: many in portions, of which this is the first.

    One transaction of the caller. Idempotent: a cancelled run is left as it is. Staged results of jobs are
    discarded by the settle that finds nothing in progress.

    Raises:
        NotFound: no such run in this workspace.
        Conflict: `run.closed`, it completed or failed before.
    """
    run = await _lock_run(conn, workspace_id, run_id)
    if run["status"] == RUNS.target_of(RunVerb.CANCEL):
        return CancelResult(run_id, 0)
    _require_open(run)
    await nudges.nudge_runs(conn, [run_id])
    wanted = _Wanted(Action.RUN_CANCEL, CAUSE_RUN, act, workspace_id, run_id)
    rows, jobs = await _doom_first(conn, wanted)
    await conn.execute(_STEPS, run_id)
    await shards.close_shards(conn, run_id)
    await conn.execute(_CLOSE, run_id)
    await _end_attempts(conn, rows, act, CAUSE_RUN)
    deed = Deed(Action.RUN_CANCEL, workspace_id, names.run_subject(run_id), run_id=run_id, jobs=jobs)
    await outbox.insert(conn, [_run_event(run, workspace_id, act), acted(act, deed)])
    await project_runs.tell_run(conn, run_id, RunVerb.CANCEL, "cancelled")
    await waiting_fires.call_after(conn, run_id)
    await _notify(conn, {"kind": "cancel_run", "run": str(run_id)})
    await _leave_rest(conn, wanted, jobs - len(rows))
    return CancelResult(run_id, jobs)


async def cancel_step(conn: Connection, step: StepOfRun, act: Act = NOBODY) -> CancelResult:
    """Cancels a step and every job in it that has not ended: many in portions, of which this is the first.

    One transaction of the caller. Steps that need it are skipped by the run's workflow, other branches go on.
    Idempotent.

    Raises:
        NotFound: `run.not_found`, `step.not_found`.
        Conflict: `run.closed`, `step.closed`: it ended before.
    """
    run = await _lock_run(conn, step.workspace_id, step.run_id)
    found = await conn.fetchrow(_STEP, step.run_id, step.step_id)
    if found is None:
        raise NotFound("the run has no such step", code="step.not_found")
    if found["status"] == STEPS.target_of(StepVerb.CANCEL):
        return CancelResult(step.run_id, 0)
    _require_open(run)
    if found["status"] not in STEPS.sources_of(StepVerb.CANCEL):
        raise Conflict(f"the step is {found['status']} already", code="step.closed")
    await nudges.nudge_runs(conn, [step.run_id])
    wanted = _Wanted(Action.STEP_CANCEL, CAUSE_STEP, act, step.workspace_id, step.run_id, step.step_id)
    rows, jobs = await _doom_first(conn, wanted)
    counts = await conn.fetchrow(_CLOSE_STEP, step.run_id, step.step_id)
    await _end_attempts(conn, rows, act, CAUSE_STEP)
    payload = StepPayload(
        run_id=step.run_id, step_id=step.step_id, tool_id=found["tool_id"], **dict(counts or {})
    )
    await outbox.insert(conn, _step_events(step, payload, act, jobs))
    await notify_workers(conn, rows)
    await _leave_rest(conn, wanted, jobs - len(rows))
    return CancelResult(step.run_id, jobs)


async def cancel_job(conn: Connection, workspace_id: UUID, job_id: UUID, act: Act = NOBODY) -> bool:
    """Cancels one job; False when it had been cancelled before. Others of its batch go on in their attempt.

    Raises:
        NotFound: `job.not_found`.
        Conflict: `job.final`, it ended before.
    """
    job = await conn.fetchrow(_JOB, workspace_id, job_id)
    if job is None:
        raise NotFound("no such job", code="job.not_found")
    cancelled = JOBS.target_of(JobVerb.CANCEL)
    if job["status"] not in JOBS.terminal:
        await nudges.nudge_runs(conn, [job["run_id"]])
        if await cancel_jobs(conn, workspace_id, [job_id], act):
            deed = Deed(
                Action.JOB_CANCEL,
                workspace_id,
                names.job_subject(job_id),
                run_id=job["run_id"],
                job_id=job_id,
            )
            await outbox.insert(conn, [acted(act, deed)])
            return True
        job = await conn.fetchrow(_JOB, workspace_id, job_id)  # it ended while we waited for its row
    if job is None or job["status"] != cancelled:
        raise Conflict(f"the job is {job['status'] if job else 'gone'} already", code="job.final")
    return False


async def cancel_jobs(
    conn: Connection, workspace_id: UUID, job_ids: Sequence[UUID], act: Act, *, cause: str | None = None
) -> int:
    """Cancels those of these jobs that have not ended, set-based, and tells their workers; answers how many.

    The caller has nudged their runs before: rows of runs are locked before rows of jobs.
    """
    rows = await conn.fetch(_DOOM, act.clean_reason, cause, workspace_id, list(job_ids))
    await _end_attempts(conn, rows, act, cause)
    await notify_workers(conn, rows)
    return len(rows)


async def notify_workers(conn: Connection, rows: Sequence[Record]) -> None:
    """Tells the workers that had these jobs in hand (`worker_id`, at `attempt`) to kill their processes.

    One that misses it learns from its next heartbeat.
    """
    held = sorted((str(r["worker_id"]), str(r["id"]), r["attempt"]) for r in rows if r["worker_id"])
    for worker_id, jobs in groupby(held, key=lambda each: each[0]):
        pairs = [[job_id, attempt] for _, job_id, attempt in jobs]
        for start in range(0, len(pairs), NOTICE_JOBS):
            chunk = pairs[start : start + NOTICE_JOBS]
            await _notify(conn, {"kind": "cancel_jobs", "worker": worker_id, "jobs": chunk})


async def _doom_first(conn: Connection, wanted: _Wanted) -> tuple[list[Record], int]:
    """Cancels the first portion of what has not ended; answers its rows, and how many jobs there are in all.

    The run's row is locked by now, so no job is added. Index: `jobs_live`.
    """
    found = await conn.fetch(_FIRST, wanted.run_id, wanted.step_id, operation_rows.CHUNK)
    total: int = found[0]["total"] if found else 0
    is_all = total <= operation_rows.CHUNK
    ids = [row["id"] for row in found]
    statement = _DOOM if is_all else _DOOM_FREE
    rows = await conn.fetch(statement, wanted.act.clean_reason, wanted.cause, wanted.workspace_id, ids)
    return rows, len(rows) if is_all else total


async def _leave_rest(conn: Connection, wanted: _Wanted, jobs: int) -> None:
    """Leaves the rest to an operation, if there is any."""
    if jobs:
        which = {"run_id": str(wanted.run_id), **({"step_id": wanted.step_id} if wanted.step_id else {})}
        await operation_rows.write(conn, wanted.workspace_id, wanted.action, which, wanted.act)
        await operation_rows.call(conn)


async def _lock_run(conn: Connection, workspace_id: UUID, run_id: UUID) -> Record:
    run = await conn.fetchrow(_RUN, workspace_id, run_id)
    if run is None:
        raise NotFound("no such run", code="run.not_found")
    return run


def _require_open(run: Record) -> None:
    if run["closed_at"] is not None:
        raise Conflict(f"the run is {run['status']} already", code="run.closed")


async def _end_attempts(conn: Connection, rows: Sequence[Record], act: Act, cause: str | None) -> None:
    if running := [row["id"] for row in rows if row["worker_id"]]:
        await conn.execute(_ATTEMPTS, running)
    for start in range(0, len(rows), outbox.INSERT_CHUNK):  # other requests have their turn in between
        await outbox.insert(conn, _job_events(rows[start : start + outbox.INSERT_CHUNK], act, cause))


async def _notify(conn: Connection, notice: dict[str, object]) -> None:
    text = orjson.dumps(notice).decode()
    await conn.execute("SELECT pg_notify($1, $2)", names.CONTROL_CHANNEL, text)


def _job_events(rows: Sequence[Record], act: Act, cause: str | None) -> list[Envelope]:
    reason = act.clean_reason
    return [
        envelope(
            EVENT_CATALOG.job.cancelled,
            JobCancelled(
                job_id=row["id"],
                run_id=row["run_id"],
                step_id=row["step_id"],
                tool_id=row["tool_id"],
                attempt=row["attempt"],
                reason=reason,
            ),
            workspace_id=row["workspace_id"],
            subject=names.job_subject(row["id"]),
            cause=cause,
            actor=act.actor,
        )
        for row in rows
    ]


def _run_event(run: Record, workspace_id: UUID, act: Act) -> Envelope:
    return envelope(
        EVENT_CATALOG.workflow.run.cancelled,
        RunPayload(run_id=run["id"], name=run["name"], kind=run["kind"], reason=act.clean_reason),
        workspace_id=workspace_id,
        subject=names.run_subject(run["id"]),
        actor=act.actor,
    )


def _step_events(step: StepOfRun, payload: StepPayload, act: Act, jobs: int) -> list[Envelope]:
    cancelled = envelope(
        EVENT_CATALOG.workflow.step.cancelled,
        payload,
        workspace_id=step.workspace_id,
        subject=step.subject,
        actor=act.actor,
    )
    deed = Deed(
        Action.STEP_CANCEL,
        step.workspace_id,
        step.subject,
        run_id=step.run_id,
        step_id=step.step_id,
        jobs=jobs,
    )
    return [cancelled, acted(act, deed)]
