"""Batches that last: what some of their jobs have staged is merged before the others have ended.

A batch is settled when its activity ends. A job that takes hours would keep what its neighbours have found
from the inventory for as long. The workflow that dispatched is asked to settle what is staged; the batch
goes on.
"""

from typing import Final
from uuid import UUID

from runlane.db import nudges
from runlane.db.guards import IN_PROGRESS
from runlane.db.pool import Connection

SLOW_S: Final = 60
"""Staged outcomes wait at least this long for the end of their batch."""

SHARE: Final = 4
"""And at least a quarter of the batch's age: one that lasts for a day is settled some twenty times, each of
which is a dozen events in the history of its workflow."""

_WAITS: Final = f"""
d.closed_at IS NULL AND d.created_at < clock_timestamp() - interval '{SLOW_S} s'
AND EXISTS (
  SELECT FROM job_attempts a JOIN jobs j ON j.id = a.job_id AND j.attempt = a.attempt
  WHERE a.dispatch_id = d.id AND a.ended_at IS NULL
    AND a.staged_at < clock_timestamp()
        - greatest(interval '{SLOW_S} s', (clock_timestamp() - d.created_at) / {SHARE})
    AND j.completed_at IS NULL AND j.status = {IN_PROGRESS}
  OFFSET 0)
"""
"""Asked of one batch after the other, and of its attempts first: OFFSET keeps it from becoming a join."""

_WORKFLOWS: Final = f"SELECT DISTINCT d.workflow_id FROM dispatches d WHERE {_WAITS} LIMIT $1"

_OF: Final = f"SELECT d.id FROM dispatches d WHERE d.run_id = $1 AND d.workflow_id = $2 AND {_WAITS}"


async def nudge_slow(conn: Connection, limit: int) -> int:
    """Asks workflows to look whose batches hold staged outcomes back; returns how many had not been asked.

    Indexes: `dispatches_open`, `job_attempts_dispatch`. Looks at nothing of batches that have just begun.
    """
    rows = await conn.fetch(_WORKFLOWS, limit)
    return await nudges.nudge(conn, [row["workflow_id"] for row in rows]) if rows else 0


async def slow_of(conn: Connection, run_id: UUID, workflow_id: str) -> list[UUID]:
    """Batches of one workflow that hold staged outcomes back. Index: `dispatches_open`."""
    return [row["id"] for row in await conn.fetch(_OF, run_id, workflow_id)]
