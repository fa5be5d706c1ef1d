"""Which pending job is the oldest, for each tool set and priority.

Urgent jobs go before all others of their workspace; what they hold back, perhaps for ever, is seen here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from runlane.db.guards import LIVE_JOB, PENDING
from runlane.db.pool import Connection
from runlane.jobs import Priority

_HEADS: Final = f"""
WITH steps AS (
  SELECT s.run_id, s.step_id, t.toolset FROM job_histories h
  JOIN run_steps s ON s.run_id = h.id AND s.closed_at IS NULL
  JOIN tools t ON t.id = s.tool_id
  WHERE h.workspace_id = $1 AND h.closed_at IS NULL
), heads AS (
  SELECT s.toolset, j.* FROM steps s CROSS JOIN generate_series(0, {len(Priority) - 1}) p
  CROSS JOIN LATERAL (
    SELECT j.id, j.run_id, j.step_id, j.priority, j.created_at FROM jobs j
    WHERE j.run_id = s.run_id AND j.step_id = s.step_id AND j.priority = p AND j.{LIVE_JOB}
      AND j.dispatch_id IS NULL AND j.status = {PENDING}
    ORDER BY j.created_at, j.id LIMIT 1) j
  UNION ALL
  SELECT s.toolset, j.id, j.run_id, j.step_id, j.priority, j.created_at FROM steps s
  JOIN dispatches d ON d.run_id = s.run_id AND d.step_id = s.step_id AND d.closed_at IS NULL
  JOIN jobs j ON j.dispatch_id = d.id AND j.{LIVE_JOB} AND j.status = {PENDING}
)
SELECT DISTINCT ON (toolset, priority) toolset, priority, id AS job_id, run_id, step_id, created_at AS since,
       extract(epoch FROM statement_timestamp() - created_at)::float8 AS waited_s
FROM heads ORDER BY toolset, priority, created_at, id
"""


@dataclass(frozen=True, slots=True)
class Head:
    """The job of a tool set and a priority that has waited longest."""

    toolset: str
    priority: Priority
    job_id: UUID
    run_id: UUID
    step_id: str
    since: datetime
    """When it was written; what held it back since, its own back-off included, `why` says."""
    waited_s: float


async def heads(conn: Connection, workspace_id: UUID) -> Sequence[Head]:
    """What has waited longest, by tool set and priority; nothing where nothing waits.

    A look for each priority of each open step, and at what is out, however many jobs wait. Indexes:
    `job_histories_open_of`, `jobs_dispatchable`, `dispatches_open`, `jobs_dispatched`.
    """
    rows = await conn.fetch(_HEADS, workspace_id)
    return [Head(**{**row, "priority": list(Priority)[row["priority"]]}) for row in rows]
