"""Nudges: "look at your rows", as a flag on the workflow's row and one signal command per flip.

However often a workflow is asked to look before it does, it gets one signal: only the statement that turns
the flag on writes a command. The workflow turns it off in the read that begins its turn.
"""

from collections.abc import Sequence
from uuid import UUID

from runlane import names
from runlane.db.commands import CommandKind
from runlane.db.guards import IN_PROGRESS
from runlane.db.pool import Connection

_NUDGE = f"""
WITH flipped AS (
  UPDATE job_histories SET nudged_at = clock_timestamp()
  WHERE '{names.RUN_PREFIX}' || id = ANY($1::text[]) AND id = ANY($2::uuid[])
    AND nudged_at IS NULL AND closed_at IS NULL
  RETURNING workspace_id, '{names.RUN_PREFIX}' || id AS workflow_id
), flipped_shards AS (
  UPDATE run_shards SET nudged_at = clock_timestamp()
  WHERE workflow_id = ANY($1::text[]) AND nudged_at IS NULL AND closed_at IS NULL
  RETURNING workspace_id, workflow_id
), written AS (
  INSERT INTO commands (workspace_id, kind, workflow_id)
  SELECT workspace_id, '{CommandKind.NUDGE}', workflow_id
  FROM (TABLE flipped UNION ALL TABLE flipped_shards) f
  RETURNING 1
)
SELECT count(*), pg_notify('{names.COMMANDS_CHANNEL}', '') FROM written
"""

_OF_WORKER = f"""
SELECT DISTINCT d.workflow_id
FROM jobs j
JOIN dispatches d ON d.id = j.dispatch_id
WHERE j.worker_id = $1 AND j.completed_at IS NULL AND j.dispatch_id IS NOT NULL AND j.status = {IN_PROGRESS}
"""

_OF_RUNS = f"""
SELECT '{names.RUN_PREFIX}' || id FROM unnest($1::uuid[]) AS r (id)
UNION ALL
SELECT workflow_id FROM run_shards WHERE run_id = ANY($1::uuid[]) AND closed_at IS NULL
"""


async def nudge(conn: Connection, workflow_ids: Sequence[str]) -> int:
    """Asks workflows to look at their rows; returns how many had not been asked already."""
    run_ids = [UUID(parts[1]) for parts in (name.split("/") for name in workflow_ids) if len(parts) == 2]
    return int(await conn.fetchval(_NUDGE, list(workflow_ids), run_ids))


async def nudge_for_worker(conn: Connection, worker_id: UUID) -> int:
    """Asks every workflow that has a job in progress on this worker: the worker is gone or revoked."""
    rows = await conn.fetch(_OF_WORKER, worker_id)
    return await nudge(conn, [row["workflow_id"] for row in rows])


async def nudge_runs(conn: Connection, run_ids: Sequence[UUID]) -> int:
    """Asks the workflows of these runs and of their open shards to look."""
    rows = await conn.fetch(_OF_RUNS, list(run_ids))
    return await nudge(conn, [row[0] for row in rows])
