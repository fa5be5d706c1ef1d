"""Classes of workers that come to life or die, and the workflows that this concerns.

A workflow whose jobs nobody serves sleeps: it is called when a worker comes on line. One whose batches lie on
a queue that nobody polls any more is called, too: it takes them back and dispatches them where they are
served.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import nudges
from runlane.db.guards import IN_PROGRESS, LIVE_JOB
from runlane.db.pool import Connection

_BLOCKED = f"""
WITH blocked AS (
  SELECT DISTINCT h.id
  FROM workers w
  JOIN job_histories h ON h.closed_at IS NULL AND h.blocked_reason IS NOT NULL
  JOIN workspaces s ON s.id = h.workspace_id
  WHERE w.id = ANY($1::uuid[])
    AND (w.workspace_id = h.workspace_id OR (w.scope = 'shared' AND s.allow_shared))
)
SELECT '{names.RUN_PREFIX}' || id AS workflow_id FROM blocked
UNION ALL
SELECT r.workflow_id FROM run_shards r JOIN blocked b ON b.id = r.run_id WHERE r.closed_at IS NULL
"""

CLASS_QUEUE: Final = f"""CASE w.scope
  WHEN 'shared' THEN '{names.SHARED_QUEUE_PREFIX}' || t.toolset
  ELSE '{names.SCAN_QUEUE_PREFIX}' || w.workspace_id || coalesce('{names.NETWORK_PART}' || w.network_id, '')
       || '.' || t.toolset END"""
"""Task queue of a worker `w` for a tool set `t`."""

# A workflow with jobs in progress on a worker that has left is about to read how they ended: one that looks
# before would take for lost what was given back.
_STRANDED = f"""
SELECT DISTINCT d.workflow_id
FROM workers w
CROSS JOIN unnest(w.toolsets) AS t (toolset)
JOIN dispatches d ON d.closed_at IS NULL AND d.task_queue = {CLASS_QUEUE}
WHERE w.id = ANY($1::uuid[])
  AND NOT EXISTS (
    SELECT FROM workers o
    WHERE o.status = 'online' AND o.deleted_at IS NULL AND t.toolset = ANY(o.toolsets) AND o.scope = w.scope
      AND o.workspace_id IS NOT DISTINCT FROM w.workspace_id
      AND o.network_id IS NOT DISTINCT FROM w.network_id)
  AND NOT EXISTS (
    SELECT FROM jobs j
    JOIN dispatches mine ON mine.id = j.dispatch_id AND mine.workflow_id = d.workflow_id
    WHERE j.worker_id = w.id AND j.{LIVE_JOB} AND j.dispatch_id IS NOT NULL AND j.status = {IN_PROGRESS})
"""


async def call_blocked(conn: Connection, worker_ids: Sequence[UUID]) -> int:
    """Asks the workflows of blocked runs to look that these workers, now on line, may serve."""
    if not worker_ids:
        return 0
    rows = await conn.fetch(_BLOCKED, list(worker_ids))
    return await nudges.nudge(conn, [row["workflow_id"] for row in rows]) if rows else 0


async def call_stranded(conn: Connection, worker_ids: Sequence[UUID]) -> int:
    """Asks the workflows to look whose batches wait on queues that only these workers served."""
    if not worker_ids:
        return 0
    rows = await conn.fetch(_STRANDED, list(worker_ids))
    return await nudges.nudge(conn, [row["workflow_id"] for row in rows]) if rows else 0
