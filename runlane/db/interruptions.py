"""Interruptions: what runs when a blackout window with the policy `cancel` opens is given back for later.

The verdict is written here, at once: the attempt ends as released, the job is pending again and due when the
window closes. Nothing is charged, and nothing counts as a free attempt: a window that opens every night must
not use up a job. Its worker is told as of a cancel and kills the process; what it may still say is stale. A
result that is staged already stays: it contacts nobody any more. Others of the same batch go on, unless one
program does them together: it would go on with all, so all are given back, and these are due at once.

Locks are taken in this order: windows, then as by a cancel rows of runs and rows of jobs by id.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from runlane import names
from runlane.blackouts import Policy
from runlane.db import limits, nudges, outbox
from runlane.db.blackouts import OpenWindow, covers, keep_windows
from runlane.db.cancel import notify_workers
from runlane.db.guards import job_may
from runlane.db.pool import Connection, Record
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import JobReleased
from runlane.jobs import JOBS, JobVerb, Outcome
from runlane.tools import Shape

CAUSE: Final = "blackout"
"""Value of the `cause` attribute of events of jobs that a window gave back."""

CHUNK: Final = 1_000
"""Jobs of one transaction."""

_WORKSPACES: Final = f"""
SELECT DISTINCT b.workspace_id FROM blackout_windows b
JOIN workspaces w ON w.id = b.workspace_id AND w.deleted_at IS NULL
WHERE b.policy = '{Policy.CANCEL}'
  AND (b.starts_at IS NULL OR clock_timestamp() BETWEEN b.starts_at AND b.ends_at)
"""

# What runs is found by open runs and their open batches: what it costs follows what is in flight.
_RUNNING: Final = f"""
SELECT j.id, j.run_id, CASE WHEN t.shape = '{Shape.MANY}' THEN d.id END AS together FROM job_histories h
JOIN dispatches d ON d.run_id = h.id AND d.closed_at IS NULL
JOIN jobs j ON j.dispatch_id = d.id AND j.completed_at IS NULL AND {job_may(JobVerb.RELEASE, "j")}
JOIN job_attempts a ON a.job_id = j.id AND a.attempt = j.attempt AND a.staged_at IS NULL
JOIN tools t ON t.id = j.tool_id
WHERE h.workspace_id = $1 AND h.closed_at IS NULL AND {covers("j", first=2)}
LIMIT $5
"""

_TOGETHER: Final = f"""
SELECT j.id FROM jobs j
WHERE j.dispatch_id = ANY($1::uuid[]) AND j.completed_at IS NULL AND {job_may(JobVerb.RELEASE, "j")}
"""

_GIVE_BACK: Final = f"""
WITH held AS (
  SELECT j.id, j.attempt, j.worker_id, u.due_at FROM jobs j
  JOIN unnest($2::uuid[], $3::timestamptz[]) AS u (id, due_at) ON u.id = j.id
  JOIN job_attempts a ON a.job_id = j.id AND a.attempt = j.attempt AND a.staged_at IS NULL
  WHERE j.workspace_id = $1 AND {job_may(JobVerb.RELEASE, "j")}
  ORDER BY j.id
  FOR UPDATE OF j, a
), ended AS (
  UPDATE job_attempts SET ended_at = clock_timestamp(), outcome = '{Outcome.RELEASED}'
  FROM held
  WHERE job_attempts.job_id = held.id AND job_attempts.attempt = held.attempt
)
UPDATE jobs
SET status = '{JOBS.target_of(JobVerb.RELEASE)}', due_at = coalesce(held.due_at, clock_timestamp()),
  dispatch_id = NULL, worker_id = NULL, picked_at = NULL
FROM held
WHERE jobs.id = held.id
RETURNING jobs.id, jobs.workspace_id, jobs.run_id, jobs.step_id, jobs.tool_id, jobs.attempt,
          jobs.free_attempts, held.worker_id
"""


async def find_workspaces(conn: Connection) -> list[UUID]:
    """Workspaces with a window that may be open now and interrupts."""
    return [row["workspace_id"] for row in await conn.fetch(_WORKSPACES)]


async def interrupt(conn: Connection, workspace_id: UUID) -> int:
    """Gives back up to 1,000 running jobs that an open window covers, in one transaction of the caller.

    With them goes what one program does together with them, so it may be more. Answers how many: less than
    1,000 means that none is left. Harmless to repeat, and beside another that does the same. Indexes:
    `job_histories_open_of`, `dispatches_open`, `jobs_dispatched`.
    """
    given_back = 0
    for window in await keep_windows(conn, workspace_id):
        if window.policy is Policy.CANCEL and given_back < CHUNK:
            given_back += await _interrupt(conn, workspace_id, window, CHUNK - given_back)
    if given_back:
        await limits.call_first(conn)
    return given_back


async def _interrupt(conn: Connection, workspace_id: UUID, window: OpenWindow, most: int) -> int:
    rows = await conn.fetch(_RUNNING, workspace_id, *window.about, most)
    if not rows:
        return 0
    due: dict[UUID, datetime | None] = {row["id"]: window.until for row in rows}
    if together := sorted({row["together"] for row in rows if row["together"]}):
        for row in await conn.fetch(_TOGETHER, together):
            due.setdefault(row["id"], None)
    await nudges.nudge_runs(conn, sorted({row["run_id"] for row in rows}))
    jobs = await conn.fetch(_GIVE_BACK, workspace_id, list(due), list(due.values()))
    await outbox.insert(conn, _events(jobs))
    await notify_workers(conn, jobs)
    return len(jobs)


def _events(rows: Sequence[Record]) -> list[Envelope]:
    return [
        envelope(
            EVENT_CATALOG.job.released,
            JobReleased(
                job_id=row["id"],
                run_id=row["run_id"],
                step_id=row["step_id"],
                tool_id=row["tool_id"],
                attempt=row["attempt"],
                outcome=Outcome.RELEASED,
                free_attempts=row["free_attempts"],
            ),
            workspace_id=row["workspace_id"],
            subject=names.job_subject(row["id"]),
            ordinal=row["attempt"],
            cause=CAUSE,
        )
        for row in rows
    ]
