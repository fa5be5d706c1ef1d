"""Scan workers that nobody has heard of for a minute.

The replicas of the API notice a broken stream themselves, and sooner; this is for what they missed. While no
replica confirms streams, silence says nothing about a worker.
Source: Job registry, When something goes wrong (a worker that goes silent).
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection
from runlane.db.workers import time_out

SILENT_S: Final = 60
"""Source: Job registry, When something goes wrong (a 60-second heartbeat sweep)."""

REPLICA_ALIVE_S: Final = 10
"""A replica of the API that confirmed its streams within this is there."""

_SILENT: Final = f"""
status IN ('online', 'draining') AND deleted_at IS NULL
AND coalesce(stream_seen_at, greatest(beat_at, joined_at)) < clock_timestamp() - interval '{SILENT_S} s'
AND EXISTS (SELECT FROM api_replicas
            WHERE seen_at > clock_timestamp() - interval '{REPLICA_ALIVE_S} s'
              AND steady_since < clock_timestamp() - interval '{SILENT_S} s')
"""

_FIND: Final = f"SELECT id FROM workers WHERE id > $1 AND {_SILENT} ORDER BY id LIMIT $2"

_TAKE_OFF: Final = f"""
UPDATE workers SET status = 'offline', stream_seen_at = NULL
WHERE id = ANY($1::uuid[]) AND {_SILENT}
RETURNING *, clock_timestamp() AS gone_at
"""

_NOTE: Final = """
INSERT INTO api_replicas (replica, steady_since)
VALUES ($1, clock_timestamp() - make_interval(secs => $2))
ON CONFLICT (replica) DO UPDATE SET steady_since = excluded.steady_since, seen_at = clock_timestamp()
"""


async def note_replica(conn: Connection, replica: str, steady_s: float) -> None:
    """Notes that a replica of the API has confirmed its streams for so long without a failure."""
    await conn.execute(_NOTE, replica, steady_s)


async def find_silent(conn: Connection, after: UUID, limit: int) -> list[UUID]:
    """Workers that are on line in their rows, and silent. Index: `workers_live`."""
    return [row["id"] for row in await conn.fetch(_FIND, after, limit)]


async def take_off_line(conn: Connection, worker_ids: Sequence[UUID]) -> list[UUID]:
    """Takes them off line, says so, and has their jobs looked after by the workflows that wait for them."""
    rows = await conn.fetch(_TAKE_OFF, worker_ids)
    for row in rows:
        await time_out(conn, row, "silent")
    return [row["id"] for row in rows]
