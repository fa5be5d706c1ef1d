"""Cancel of a run: the verdict is written here, at once; what runs is told afterwards.

Source: Job registry, When something goes wrong (cancellation is terminal and discards the in-flight result).
"""

from dataclasses import dataclass
from uuid import UUID

import orjson

from runlane import names
from runlane.db import nudges, outbox, shards
from runlane.db.guards import job_may, run_may, step_may
from runlane.db.pool import Connection, Record
from runlane.errors import Conflict, NotFound
from runlane.events import EVENT_CATALOG, Envelope, envelope, scrub_text
from runlane.events.payloads import JobCancelled, RunPayload
from runlane.jobs import JOBS, RUNS, STEPS, JobVerb, Outcome, RunVerb, StepVerb

CAUSE_RUN = "run"
"""Value of the `cause` attribute of events that a run action brought about, job by job."""

# Weak enough to let a settle that holds jobs refer to the run, or each would wait for what the other holds.
_RUN = """
SELECT id, name, kind, status, closed_at FROM job_histories WHERE workspace_id = $1 AND id = $2
FOR NO KEY UPDATE
"""

_JOBS = f"""
WITH doomed AS (
  SELECT id, status AS was FROM jobs
  WHERE run_id = $1 AND completed_at IS NULL AND {job_may(JobVerb.CANCEL)}
  ORDER BY id
  FOR UPDATE
)
UPDATE jobs
SET status = '{JOBS.target_of(JobVerb.CANCEL)}', completed_at = clock_timestamp(), reason = $2, cause = $3
FROM doomed
WHERE jobs.id = doomed.id
RETURNING jobs.id, jobs.workspace_id, jobs.step_id, jobs.tool_id, jobs.attempt
"""

_ATTEMPTS = f"""
UPDATE job_attempts SET ended_at = clock_timestamp(), outcome = '{Outcome.CANCELLED}'
WHERE job_id = ANY($1::uuid[]) AND ended_at IS NULL
"""

_STEPS = f"""
UPDATE run_steps SET status = '{STEPS.target_of(StepVerb.CANCEL)}', closed_at = clock_timestamp()
WHERE run_id = $1 AND {step_may(StepVerb.CANCEL)}
"""

_CLOSE = f"""
UPDATE job_histories SET status = '{RUNS.target_of(RunVerb.CANCEL)}', closed_at = clock_timestamp(),
  blocked_reason = NULL
WHERE id = $1 AND {run_may(RunVerb.CANCEL)}
"""


@dataclass(frozen=True, slots=True)
class CancelResult:
    """What the cancel did; `jobs` is 0 when the run had been cancelled before."""

    run_id: UUID
    jobs: int


async def cancel_run(
    conn: Connection, workspace_id: UUID, run_id: UUID, reason: str | None = None
) -> CancelResult:
    """Cancels a run and every job in it that has not ended, in one transaction of the caller.

    Idempotent: a cancelled run is left as it is. Staged results of its jobs are discarded by the settle that
    finds nothing in progress.

    Raises:
        NotFound: no such run in this workspace.
        Conflict: `run.closed`, it completed or failed before.
    """
    run = await conn.fetchrow(_RUN, workspace_id, run_id)
    if run is None:
        raise NotFound("no such run", code="run.not_found")
    if run["status"] == RUNS.target_of(RunVerb.CANCEL):
        return CancelResult(run_id, 0)
    if run["closed_at"] is not None:
        raise Conflict(f"the run is {run['status']} already", code="run.closed")
    clean_reason = scrub_text(reason) if reason else None
    workflows = await nudges.workflows_of_run(conn, run_id)
    await nudges.nudge(conn, workflows)
    rows = await conn.fetch(_JOBS, run_id, clean_reason, CAUSE_RUN)
    await conn.execute(_ATTEMPTS, [row["id"] for row in rows])
    await conn.execute(_STEPS, run_id)
    await shards.close_shards(conn, run_id)
    await conn.execute(_CLOSE, run_id)
    for start in range(0, len(rows), outbox.INSERT_CHUNK):  # other requests have their turn in between
        await outbox.insert(
            conn, _job_events(run_id, rows[start : start + outbox.INSERT_CHUNK], clean_reason)
        )
    await outbox.insert(conn, [_run_event(run, workspace_id, clean_reason)])
    message = orjson.dumps({"kind": "cancel_run", "run": str(run_id)}).decode()
    await conn.execute("SELECT pg_notify($1, $2)", names.CONTROL_CHANNEL, message)
    return CancelResult(run_id, len(rows))


def _job_events(run_id: UUID, rows: list[Record], reason: str | None) -> list[Envelope]:
    return [
        envelope(
            EVENT_CATALOG.job.cancelled,
            JobCancelled(
                job_id=row["id"],
                run_id=run_id,
                step_id=row["step_id"],
                tool_id=row["tool_id"],
                attempt=row["attempt"],
                reason=reason,
            ),
            workspace_id=row["workspace_id"],
            subject=names.job_subject(row["id"]),
            cause=CAUSE_RUN,
        )
        for row in rows
    ]


def _run_event(run: Record, workspace_id: UUID, reason: str | None) -> Envelope:
    return envelope(
        EVENT_CATALOG.workflow.run.cancelled,
        RunPayload(run_id=run["id"], name=run["name"], kind=run["kind"], reason=reason),
        workspace_id=workspace_id,
        subject=names.run_subject(run["id"]),
    )
