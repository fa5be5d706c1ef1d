"""Nudges: "look at your rows", as a flag on the workflow's row and one signal command per flip.

However often a workflow is asked to look before it does, it gets one signal: only the statement that turns
the flag on writes a command. The workflow turns it off in the read that begins its turn.

Whoever nudges holds the flag until its transaction ends, also a flag that was on already. Otherwise the
workflow could turn it off and read the rows between the nudge and the commit of what the nudge is about: it
would see nothing, and nobody would call it again. Now its read waits for the commit.
"""

from collections.abc import Sequence
from uuid import UUID

from runlane import names
from runlane.db.commands import CommandKind
from runlane.db.guards import IN_PROGRESS
from runlane.db.pool import Connection

_RUNS = f"""
job_histories
WHERE '{names.RUN_PREFIX}' || id = ANY($1::text[]) AND id = ANY($2::uuid[]) AND closed_at IS NULL
"""

_SHARDS = "run_shards WHERE workflow_id = ANY($1::text[]) AND closed_at IS NULL"


def _statement(lock: str, passed_over: str = "") -> str:
    return f"""
WITH held AS (
  SELECT id, nudged_at FROM {_RUNS} ORDER BY id {lock}
), flipped AS (
  UPDATE job_histories h SET nudged_at = clock_timestamp()
  FROM held
  WHERE h.id = held.id AND held.nudged_at IS NULL
  RETURNING h.workspace_id, '{names.RUN_PREFIX}' || h.id AS workflow_id
), held_shards AS (
  SELECT workflow_id, nudged_at FROM {_SHARDS} ORDER BY workflow_id {lock}
), flipped_shards AS (
  UPDATE run_shards s SET nudged_at = clock_timestamp()
  FROM held_shards
  WHERE s.workflow_id = held_shards.workflow_id AND held_shards.nudged_at IS NULL
  RETURNING s.workspace_id, s.workflow_id
), written AS (
  INSERT INTO commands (workspace_id, kind, workflow_id)
  SELECT workspace_id, '{CommandKind.NUDGE}', workflow_id
  FROM (TABLE flipped UNION ALL TABLE flipped_shards {passed_over}) f
  RETURNING 1
)
SELECT count(*), pg_notify('{names.COMMANDS_CHANNEL}', '') FROM written
"""


_NUDGE = _statement("FOR NO KEY UPDATE")

_NUDGE_UNHELD = _statement(
    "FOR NO KEY UPDATE SKIP LOCKED",
    f"""
    UNION ALL SELECT workspace_id, '{names.RUN_PREFIX}' || id FROM {_RUNS} AND id NOT IN (SELECT id FROM held)
    UNION ALL SELECT workspace_id, workflow_id FROM {_SHARDS}
      AND workflow_id NOT IN (SELECT workflow_id FROM held_shards)""",
)

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

_BLOCKED = """
SELECT id FROM job_histories
WHERE closed_at IS NULL AND blocked_reason IS NOT NULL AND ($1::uuid IS NULL OR workspace_id = $1)
ORDER BY id
"""


async def nudge(conn: Connection, workflow_ids: Sequence[str]) -> int:
    """Asks workflows to look at their rows; returns how many had not been asked already.

    In the transaction of what they are to see. Locks the rows of runs, then of shards, each by their ids; a
    workflow that is about to look waits until the transaction ends.
    """
    return int(await conn.fetchval(_NUDGE, list(workflow_ids), _runs_among(workflow_ids)))


async def nudge_unheld(conn: Connection, workflow_ids: Sequence[str]) -> int:
    """As `nudge`, from a transaction that has locked jobs: who holds a run's row may wait for those.

    A workflow whose row is held gets a signal without the flag: whoever holds it may let it look, or commit
    a flag of its own, before this transaction ends.
    """
    return int(await conn.fetchval(_NUDGE_UNHELD, list(workflow_ids), _runs_among(workflow_ids)))


def _runs_among(workflow_ids: Sequence[str]) -> list[UUID]:
    return [UUID(parts[1]) for parts in (name.split("/") for name in workflow_ids) if len(parts) == 2]


async def nudge_for_worker(conn: Connection, worker_id: UUID) -> int:
    """Asks every workflow that has a job in progress on this worker: the worker is gone or revoked."""
    rows = await conn.fetch(_OF_WORKER, worker_id)
    return await nudge(conn, [row["workflow_id"] for row in rows])


async def nudge_blocked(conn: Connection, workspace_id: UUID | None) -> None:
    """Asks the runs of a workspace, or of all (None), that wait for something which may be there now."""
    rows = await conn.fetch(_BLOCKED, workspace_id)
    if rows:
        await nudge_runs(conn, [row["id"] for row in rows])


async def nudge_runs(conn: Connection, run_ids: Sequence[UUID]) -> int:
    """Asks the workflows of these runs and of their open shards to look."""
    rows = await conn.fetch(_OF_RUNS, list(run_ids))
    return await nudge(conn, [row[0] for row in rows])
