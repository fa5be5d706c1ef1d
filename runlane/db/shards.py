"""Rows of shards: child workflows that take over when a run's own budget of dispatches is used up."""

from uuid import UUID

from runlane import names
from runlane.db.pool import Connection

_LOCK = "SELECT workspace_id FROM job_histories WHERE id = $1 AND closed_at IS NULL FOR SHARE"

_NUMBERS = """
SELECT number, closed_at IS NULL AS is_open FROM run_shards WHERE run_id = $1 AND step_id = $2 ORDER BY number
"""

_OPEN = """
INSERT INTO run_shards (workspace_id, run_id, step_id, number, workflow_id) VALUES ($1, $2, $3, $4, $5)
"""

_CLOSE = """
UPDATE run_shards SET closed_at = clock_timestamp() WHERE workflow_id = $1 AND closed_at IS NULL
"""

_CLOSE_ALL = "UPDATE run_shards SET closed_at = clock_timestamp() WHERE run_id = $1 AND closed_at IS NULL"


async def open_shards(conn: Connection, run_id: UUID, step_id: str, count: int) -> list[int]:
    """Numbers of the step's open shards after topping them up to `count`; none for a closed run.

    Idempotent: open shards are answered again, so the caller starts those that it does not run yet.
    """
    workspace_id = await conn.fetchval(_LOCK, run_id)
    if workspace_id is None:
        return []
    rows = await conn.fetch(_NUMBERS, run_id, step_id)
    open_numbers = [row["number"] for row in rows if row["is_open"]]
    following = rows[-1]["number"] + 1 if rows else 0
    while len(open_numbers) < count:
        workflow_id = names.shard_workflow_id(run_id, step_id, following)
        await conn.execute(_OPEN, workspace_id, run_id, step_id, following, workflow_id)
        open_numbers.append(following)
        following += 1
    return open_numbers


async def close_shard(conn: Connection, workflow_id: str) -> None:
    """Marks a shard as ended; a second call changes nothing."""
    await conn.execute(_CLOSE, workflow_id)


async def close_shards(conn: Connection, run_id: UUID) -> None:
    """Marks all shards of a run as ended: its end or a new workflow of it leaves them nothing to do."""
    await conn.execute(_CLOSE_ALL, run_id)
