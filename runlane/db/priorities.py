"""A change of priority: rows get it at once, and pending ones are dispatched anew in their new place.

A job that had been dispatched but not claimed loses its dispatch: its batch waits in a queue of the old
priority. One in progress keeps running; the new priority counts if it has to wait again.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import nudges, outbox
from runlane.db.acts import Act, Action, Deed, StepOfRun, acted
from runlane.db.guards import LIVE_JOB, PENDING, job_may
from runlane.db.pool import Connection, Record
from runlane.errors import Conflict, NotFound
from runlane.jobs import JOBS, STEPS, JobVerb, Priority


@dataclass(frozen=True, slots=True)
class Prioritised:
    """What a change did. `jobs`: rows that had another priority before; `moved`: those of them that wait."""

    run_id: UUID
    jobs: int
    moved: int


_RUN: Final = """
SELECT id, closed_at FROM job_histories WHERE workspace_id = $1 AND id = $2 FOR NO KEY UPDATE
"""

_STEP: Final = "SELECT status FROM run_steps WHERE run_id = $1 AND step_id = $2 FOR NO KEY UPDATE"

_SET_RUN: Final = "UPDATE job_histories SET priority = $2 WHERE id = $1 AND priority <> $2 RETURNING id"

_CLEAR_STEPS: Final = """
UPDATE run_steps SET priority = NULL WHERE run_id = $1 AND priority IS NOT NULL AND closed_at IS NULL
RETURNING step_id
"""

_SET_STEP: Final = """
UPDATE run_steps SET priority = $3
WHERE run_id = $1 AND step_id = $2 AND priority IS DISTINCT FROM $3
RETURNING step_id
"""


def _set_jobs(which: str) -> str:
    return f"""
WITH found AS (
  SELECT id, status AS was FROM jobs WHERE {which} AND priority <> $1 ORDER BY id FOR UPDATE
), changed AS (
  UPDATE jobs
  SET priority = $1, dispatch_id = CASE WHEN jobs.status = {PENDING} THEN NULL ELSE jobs.dispatch_id END
  FROM found
  WHERE jobs.id = found.id
  RETURNING jobs.status
)
SELECT count(*) AS jobs, count(*) FILTER (WHERE status = {PENDING}) AS moved FROM changed
"""


_JOBS_OF_RUN: Final = _set_jobs(f"run_id = $2 AND {LIVE_JOB}")
_JOBS_OF_STEP: Final = _set_jobs(f"run_id = $2 AND step_id = $3 AND {LIVE_JOB}")
_JOB_BY_ID: Final = _set_jobs(f"id = $2 AND {job_may(JobVerb.CANCEL)}")  # what may be cancelled has not ended

_JOB: Final = "SELECT run_id, status FROM jobs WHERE workspace_id = $1 AND id = $2"

_NOW: Final = "SELECT clock_timestamp()"


async def prioritise_run(
    conn: Connection, workspace_id: UUID, run_id: UUID, priority: Priority, act: Act
) -> Prioritised:
    """Gives a run, its steps and its jobs that have not ended a priority. Repeated, it changes nothing.

    Raises:
        NotFound: `run.not_found`.
        Conflict: `run.closed`.
    """
    await _lock_open_run(conn, workspace_id, run_id)
    is_new = await conn.fetchval(_SET_RUN, run_id, priority.rank) is not None
    cleared = await conn.fetch(_CLEAR_STEPS, run_id)
    done = Prioritised(run_id, **await _counts(conn, _JOBS_OF_RUN, priority.rank, run_id))
    if is_new or cleared or done.jobs:
        deed = Deed(
            Action.RUN_PRIORITY,
            workspace_id,
            names.run_subject(run_id),
            ordinal=await _moment(conn),
            run_id=run_id,
            value=priority,
            jobs=done.jobs,
        )
        await _follow_up(conn, act, deed)
    return done


async def prioritise_step(conn: Connection, step: StepOfRun, priority: Priority, act: Act) -> Prioritised:
    """Gives a step and its jobs that have not ended, or are to come, a priority. Repeatable.

    Raises:
        NotFound: `run.not_found`, `step.not_found`.
        Conflict: `run.closed`, `step.closed`.
    """
    run_id, step_id = step.run_id, step.step_id
    await _lock_open_run(conn, step.workspace_id, run_id)
    status = await conn.fetchval(_STEP, run_id, step_id)
    if status is None:
        raise NotFound("the run has no such step", code="step.not_found")
    if status in STEPS.terminal:
        raise Conflict(f"the step is {status} already", code="step.closed")
    is_new = await conn.fetchval(_SET_STEP, run_id, step_id, priority.rank) is not None
    done = Prioritised(run_id, **await _counts(conn, _JOBS_OF_STEP, priority.rank, run_id, step_id))
    if is_new or done.jobs:
        deed = Deed(
            Action.STEP_PRIORITY,
            step.workspace_id,
            step.subject,
            ordinal=await _moment(conn),
            run_id=run_id,
            step_id=step_id,
            value=priority,
            jobs=done.jobs,
        )
        await _follow_up(conn, act, deed)
    return done


async def prioritise_job(
    conn: Connection, workspace_id: UUID, job_id: UUID, priority: Priority, act: Act
) -> Prioritised:
    """Gives a job that has not ended a priority.

    Raises:
        NotFound: `job.not_found`.
        Conflict: `job.final`.
    """
    job = await _live_job(conn, workspace_id, job_id)
    await conn.fetchrow(_RUN, workspace_id, job["run_id"])
    done = Prioritised(job["run_id"], **await _counts(conn, _JOB_BY_ID, priority.rank, job_id))
    if not done.jobs:
        await _live_job(conn, workspace_id, job_id)  # it may have ended while we waited for its row
        return done
    deed = Deed(
        Action.JOB_PRIORITY,
        workspace_id,
        names.job_subject(job_id),
        ordinal=await _moment(conn),
        run_id=done.run_id,
        job_id=job_id,
        value=priority,
    )
    await _follow_up(conn, act, deed)
    return done


async def _lock_open_run(conn: Connection, workspace_id: UUID, run_id: UUID) -> None:
    run = await conn.fetchrow(_RUN, workspace_id, run_id)
    if run is None:
        raise NotFound("no such run", code="run.not_found")
    if run["closed_at"] is not None:
        raise Conflict("the run is closed", code="run.closed")


async def _live_job(conn: Connection, workspace_id: UUID, job_id: UUID) -> Record:
    job = await conn.fetchrow(_JOB, workspace_id, job_id)
    if job is None:
        raise NotFound("no such job", code="job.not_found")
    if job["status"] in JOBS.terminal:
        raise Conflict(f"the job is {job['status']} already", code="job.final")
    return job


async def _counts(conn: Connection, statement: str, *arguments: object) -> dict[str, int]:
    row = await conn.fetchrow(statement, *arguments)
    return dict(row) if row is not None else {"jobs": 0, "moved": 0}


async def _moment(conn: Connection) -> str:
    """What tells changes of one subject apart: each has the row lock of its run."""
    return str((await conn.fetchval(_NOW)).isoformat())


async def _follow_up(conn: Connection, act: Act, deed: Deed) -> None:
    if deed.run_id is not None:
        await nudges.nudge_runs(conn, [deed.run_id])
    await outbox.insert(conn, [acted(act, deed)])
