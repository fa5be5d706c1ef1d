"""Jobs whose merge failed for good are done once more while their budget lasts.

No row leaves a final state: the re-run is a new row, which takes over what was charged. It comes into the run
if its step is still open, else into a new run with that step. Of a run or step that a person has cancelled
nothing is done once more.
Source: Job registry, When something goes wrong (failed jobs that still have budget left and a real asset).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import job_events, nudges, outbox
from runlane.db.commands import write_start
from runlane.db.copies import Copying, copy_jobs
from runlane.db.pool import Connection, Record
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import JobResetStuck
from runlane.jobs import MAX_FAILURES, RunStatus, StepStatus
from runlane.tools import FansOut

CAUSE: Final = "sweep"
"""Value of `jobs.cause` and `job_histories.trigger` of what this sweep began."""

_WANTED: Final = f"h.status <> '{RunStatus.CANCELLED}' AND s.status <> '{StepStatus.CANCELLED}'"

# What a job is about may be gone since: such a job can never be claimed, and is left alone.
_FIND: Final = f"""
SELECT j.id FROM jobs j
JOIN targets t ON t.id = j.target_id AND t.deleted_at IS NULL
JOIN tools k ON k.id = j.tool_id
JOIN run_steps s ON s.run_id = j.run_id AND s.step_id = j.step_id
JOIN job_histories h ON h.id = j.run_id
WHERE j.retryable AND j.id > $1 AND j.failures_before + j.failures < {MAX_FAILURES} AND {_WANTED}
  AND (j.asset_id IS NOT NULL OR k.fans_out = '{FansOut.TARGETS}')
ORDER BY j.id LIMIT $2
"""

# Rows of runs before those of jobs, as who re-runs one by hand.
_HOLD_RUNS: Final = """
SELECT FROM job_histories WHERE id IN (SELECT run_id FROM jobs WHERE id = ANY($1::uuid[]))
ORDER BY id FOR NO KEY UPDATE
"""

_LOCK: Final = f"""
SELECT j.id, j.workspace_id, j.run_id, j.step_id, j.tool_id, j.category, j.target_id, j.asset_id, j.attempt,
       h.closed_at IS NULL AND s.status = '{StepStatus.RUNNING}' AS is_open
FROM jobs j
JOIN run_steps s ON s.run_id = j.run_id AND s.step_id = j.step_id
JOIN job_histories h ON h.id = j.run_id
WHERE j.id = ANY($1::uuid[]) AND j.retryable AND {_WANTED}
ORDER BY j.id
FOR UPDATE OF j FOR NO KEY UPDATE OF s, h
"""

_CLEAR: Final = "UPDATE jobs SET retryable = false WHERE id = ANY($1::uuid[])"

# Not a start (`runlane.db.starting`): the step goes on as its row says, with the options frozen there.
# Whether a secret, a profile or room for one more run is there is not asked: a repair is refused by nothing.
_NEW_RUN: Final = f"""
INSERT INTO job_histories (workspace_id, name, kind, definition, priority, trigger, rerun_of)
SELECT workspace_id, name, kind,
       jsonb_build_object('name', name, 'jobs',
                          jsonb_build_object($2::text, (definition -> 'jobs' -> $2) - 'needs' - 'tolerance')),
       priority, '{CAUSE}', id
FROM job_histories WHERE id = $1
RETURNING id
"""

_NEW_TARGETS: Final = """
INSERT INTO run_targets (workspace_id, run_id, target_id)
SELECT DISTINCT workspace_id, $2::uuid, target_id FROM jobs WHERE id = ANY($1::uuid[])
"""

_NEW_STEP: Final = f"""
INSERT INTO run_steps (workspace_id, run_id, step_id, position, name, tool_id, status, config, scope_as_of,
                       admitted_at, opened_at, jobs_total)
SELECT workspace_id, $3, step_id, 0, name, tool_id, '{StepStatus.RUNNING}', config, clock_timestamp(),
       clock_timestamp(), clock_timestamp(), $4
FROM run_steps WHERE run_id = $1 AND step_id = $2
"""


async def find_failed_merges(conn: Connection, after: UUID, limit: int) -> list[UUID]:
    """Jobs that may be re-run. Index: `jobs_retryable`."""
    return [row["id"] for row in await conn.fetch(_FIND, after, limit)]


async def rerun(conn: Connection, job_ids: Sequence[UUID]) -> list[UUID]:
    """Re-runs jobs and says so, in one transaction of the caller; returns them.

    A second call finds `retryable` cleared and does nothing. Jobs of one step come into one run.
    """
    await conn.execute(_HOLD_RUNS, job_ids)
    rows = await conn.fetch(_LOCK, job_ids)
    steps: dict[tuple[UUID, str], list[Record]] = defaultdict(list)
    for row in rows:
        steps[row["run_id"], row["step_id"]].append(row)
    events: list[Envelope] = []
    for (run_id, step_id), jobs in steps.items():
        ids = [job["id"] for job in jobs]
        into = run_id if jobs[0]["is_open"] else await _new_run(conn, run_id, step_id, ids)
        copies = await copy_jobs(conn, ids, Copying(into, CAUSE, is_budget_kept=True))
        events += [
            job_events.created(copies[job["id"]], into, job, CAUSE) for job in jobs if job["id"] in copies
        ]
        events += [_reset(job, copies[job["id"]]) for job in jobs if job["id"] in copies]
        if into == run_id:
            await nudges.nudge(conn, [names.run_workflow_id(run_id)])
    done = [row["id"] for row in rows]
    await conn.execute(_CLEAR, done)
    await outbox.insert(conn, events)
    return done


async def _new_run(conn: Connection, run_id: UUID, step_id: str, job_ids: list[UUID]) -> UUID:
    made: UUID = await conn.fetchval(_NEW_RUN, run_id, step_id)
    await conn.execute(_NEW_TARGETS, job_ids, made)
    await conn.execute(_NEW_STEP, run_id, step_id, made, len(job_ids))
    workspace_id = await conn.fetchval("SELECT workspace_id FROM job_histories WHERE id = $1", made)
    await write_start(conn, workspace_id, made)
    return made


def _reset(job: Record, retry_job_id: UUID) -> Envelope:
    payload = JobResetStuck(
        job_id=job["id"],
        run_id=job["run_id"],
        step_id=job["step_id"],
        tool_id=job["tool_id"],
        attempt=job["attempt"],
        retry_job_id=retry_job_id,
    )
    return envelope(
        EVENT_CATALOG.job.reset_stuck,
        payload,
        workspace_id=job["workspace_id"],
        subject=names.job_subject(job["id"]),
        cause=CAUSE,
    )
