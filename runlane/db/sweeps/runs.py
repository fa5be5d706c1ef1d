"""Runs that nobody drives, or that stopped advancing; jobs whose batch nobody waits for.

Rows of jobs are not touched here: the workflow that dispatched is asked to look, a lost one is started again
and adopts what it finds, and what no workflow waits for is given to the settle.
Source: Job registry, When something goes wrong.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import nudges
from runlane.db.commands import CommandKind
from runlane.db.guards import IN_PROGRESS
from runlane.db.pool import Connection

LATE_S: Final = 30
"""A nudge that was not heard of for this long is repeated."""

YOUNG_S: Final = 60
"""A run younger than this may still be on its way to Temporal."""

ORPHANED_S: Final = 120
"""A batch whose dispatch or shard has been closed for this long is waited for by nobody."""

STALLED_S: Final = 120
LOOKBACK_DAYS: Final = 7
STALLED_AT_ONCE: Final = 50
"""Source: Job registry, When something goes wrong (7 days and 50 runs per sweep)."""

_TOLD: Final = f"""
SELECT FROM commands c WHERE c.done_at IS NULL AND c.kind = '{CommandKind.NUDGE}'
"""

_REPEAT: Final = f"""
WITH late_runs AS (
  SELECT id FROM job_histories h
  WHERE closed_at IS NULL AND nudged_at < clock_timestamp() - interval '{LATE_S} s'
    AND NOT EXISTS ({_TOLD} AND c.workflow_id = '{names.RUN_PREFIX}' || h.id)
  LIMIT $1 FOR UPDATE SKIP LOCKED
), runs AS (
  UPDATE job_histories SET nudged_at = clock_timestamp()
  FROM late_runs l WHERE job_histories.id = l.id
  RETURNING job_histories.workspace_id, '{names.RUN_PREFIX}' || job_histories.id AS workflow_id
), late_shards AS (
  SELECT s.run_id, s.step_id, s.number FROM job_histories h
  JOIN run_shards s ON s.run_id = h.id AND s.closed_at IS NULL
    AND s.nudged_at < clock_timestamp() - interval '{LATE_S} s'
  WHERE h.closed_at IS NULL AND NOT EXISTS ({_TOLD} AND c.workflow_id = s.workflow_id)
  LIMIT $1 FOR UPDATE OF s SKIP LOCKED
), shards AS (
  UPDATE run_shards SET nudged_at = clock_timestamp()
  FROM late_shards l
  WHERE (run_shards.run_id, run_shards.step_id, run_shards.number) = (l.run_id, l.step_id, l.number)
  RETURNING run_shards.workspace_id, run_shards.workflow_id
), written AS (
  INSERT INTO commands (workspace_id, kind, workflow_id)
  SELECT workspace_id, '{CommandKind.NUDGE}', workflow_id FROM (TABLE runs UNION ALL TABLE shards) w
  RETURNING 1
)
SELECT count(*), pg_notify('{names.COMMANDS_CHANNEL}', '') FROM written
"""

_UNSTARTED: Final = f"""
h.closed_at IS NULL AND NOT EXISTS (
  SELECT FROM commands c WHERE c.done_at IS NULL AND c.kind = '{CommandKind.START_RUN}'
    AND c.workflow_id = '{names.RUN_PREFIX}' || h.id)
"""

_OPEN: Final = f"""
SELECT h.id FROM job_histories h
WHERE h.id > $1 AND h.created_at < clock_timestamp() - interval '{YOUNG_S} s' AND {_UNSTARTED}
ORDER BY h.id LIMIT $2
"""

_START: Final = f"""
WITH written AS (
  INSERT INTO commands (workspace_id, kind, workflow_id)
  SELECT h.workspace_id, '{CommandKind.START_RUN}', '{names.RUN_PREFIX}' || h.id FROM job_histories h
  WHERE h.id = ANY($1::uuid[]) AND {_UNSTARTED}
  RETURNING split_part(workflow_id, '/', 2)::uuid AS id
)
SELECT id, pg_notify('{names.COMMANDS_CHANNEL}', '') FROM written
"""

# Worker by worker first, dispatch by dispatch below: with many finished rows the planner takes live ones for
# few, and would look up something for each. A life that began after a claim is another one than claimed; the
# same life may join again, and then a workflow looks for nothing.
_UNOWNED: Final = f"""
WITH held AS MATERIALIZED (
  SELECT worker_id, min(picked_at) AS since FROM jobs
  WHERE completed_at IS NULL AND dispatch_id IS NOT NULL AND status = {IN_PROGRESS}
  GROUP BY worker_id
), gone AS MATERIALIZED (
  SELECT h.worker_id FROM held h JOIN workers w ON w.id = h.worker_id
  WHERE w.status IN ('offline', 'revoked') OR w.deleted_at IS NOT NULL OR w.joined_at > h.since
)
SELECT DISTINCT d.workflow_id
FROM jobs j JOIN dispatches d ON d.id = j.dispatch_id
WHERE j.completed_at IS NULL AND j.dispatch_id IS NOT NULL AND j.status = {IN_PROGRESS}
  AND EXISTS (SELECT FROM gone) AND j.worker_id IN (SELECT worker_id FROM gone)
LIMIT $1
"""

_ORPHANED: Final = f"""
WITH out AS MATERIALIZED (
  SELECT DISTINCT dispatch_id FROM jobs
  WHERE completed_at IS NULL AND dispatch_id IS NOT NULL AND dispatch_id > $1
)
SELECT out.dispatch_id FROM out
LEFT JOIN LATERAL (
  SELECT d.id, d.workflow_id, d.closed_at FROM dispatches d WHERE d.id = out.dispatch_id OFFSET 0
) d ON true
LEFT JOIN LATERAL (
  SELECT s.closed_at FROM run_shards s WHERE s.workflow_id = d.workflow_id OFFSET 0
) s ON true
WHERE d.id IS NULL OR d.closed_at < clock_timestamp() - interval '{ORPHANED_S} s'
   OR s.closed_at < clock_timestamp() - interval '{ORPHANED_S} s'
ORDER BY out.dispatch_id LIMIT $2
"""

_RUNS_OF: Final = """
SELECT DISTINCT run_id FROM jobs WHERE dispatch_id = ANY($1::uuid[]) AND completed_at IS NULL
"""

_STALLED: Final = f"""
SELECT h.id FROM job_histories h
WHERE h.closed_at IS NULL AND h.created_at > clock_timestamp() - interval '{LOOKBACK_DAYS} days'
  AND h.created_at < clock_timestamp() - interval '{STALLED_S} s'
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.run_id = h.id AND j.completed_at IS NULL)
ORDER BY random() LIMIT {STALLED_AT_ONCE}
"""


async def repeat_nudges(conn: Connection, limit: int) -> int:
    """Repeats up to `limit` nudges of runs and as many of shards that were not heard of; returns how many.

    A signal may be lost with the workflow that it reached; one that was not sent yet is not doubled.
    """
    return int(await conn.fetchval(_REPEAT, limit))


async def find_open_runs(conn: Connection, after: UUID, limit: int) -> list[UUID]:
    """Open runs that should have a workflow by now. Index: `job_histories_open`."""
    return [row["id"] for row in await conn.fetch(_OPEN, after, limit)]


async def start_again(conn: Connection, run_ids: Sequence[UUID]) -> list[UUID]:
    """Writes a start for each that is open and has none to come; a start finds a workflow that runs."""
    return [row["id"] for row in await conn.fetch(_START, run_ids)]


async def nudge_unowned(conn: Connection, limit: int) -> int:
    """Asks workflows to look whose jobs are with a worker that is gone. Index: `jobs_dispatched`."""
    rows = await conn.fetch(_UNOWNED, limit)
    return await nudges.nudge(conn, [row["workflow_id"] for row in rows]) if rows else 0


async def find_orphaned(conn: Connection, after: UUID, limit: int) -> list[UUID]:
    """Dispatches with live jobs that no workflow waits for. Index: `jobs_dispatched`."""
    return [row["dispatch_id"] for row in await conn.fetch(_ORPHANED, after, limit)]


async def runs_of(conn: Connection, dispatch_ids: Sequence[UUID]) -> list[UUID]:
    """Runs of the live jobs of these dispatches."""
    return [row["run_id"] for row in await conn.fetch(_RUNS_OF, dispatch_ids)]


async def find_stalled(conn: Connection) -> list[UUID]:
    """Up to 50 runs of the last 7 days that are unfinished without a live job; others the next time.

    Indexes: `job_histories_open`, `jobs_live`.
    """
    return [row["id"] for row in await conn.fetch(_STALLED)]


async def nudge(conn: Connection, run_ids: Sequence[UUID]) -> list[UUID]:
    """Asks runs to advance; returns those that had not been asked already, as far as can be told."""
    asked = await nudges.nudge(conn, [names.run_workflow_id(run_id) for run_id in run_ids])
    return list(run_ids[:asked])
