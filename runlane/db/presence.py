"""Presence of scan workers, as the replicas of the API see it on the control streams they hold.

`stream_seen_at` is the last sign on the stream, NULL while it is broken. A worker goes off line when a
replica saw its stream break and nothing came back, or when nobody has seen a sign for long: then its replica
is gone too. The end of a replica alone is never a worker's disconnect. One that was taken off line because it
does not poll comes back on line when it does; see `runlane.db.polls`.
"""

from collections.abc import Sequence
from uuid import UUID

from runlane import names
from runlane.db.classes import call_blocked, call_stranded
from runlane.db.losses import note_losses
from runlane.db.pool import Connection
from runlane.db.workers import time_out

_TELL_GATEWAYS = f"SELECT id, pg_notify('{names.WORKERS_CHANNEL}', id::text) FROM changed"

_BACK = "CASE WHEN drained_at IS NULL THEN 'online' ELSE 'draining' END"

_OPEN_STREAM = f"""
WITH changed AS (
  UPDATE workers
  SET stream_seen_at = clock_timestamp(), beat_at = clock_timestamp(), stream_replica = $3,
      status = CASE WHEN status = 'offline' AND not_polling = '{{}}' THEN {_BACK} ELSE status END
  WHERE id = $1 AND incarnation = $2 AND status <> 'revoked' AND deleted_at IS NULL
  RETURNING id
)
{_TELL_GATEWAYS}
"""

_TOUCH_STREAMS = f"""
UPDATE workers w
SET stream_seen_at = clock_timestamp(), stream_replica = $1,
    status = CASE WHEN w.status = 'offline' AND w.not_polling = '{{}}' THEN {_BACK} ELSE w.status END
FROM unnest($2::uuid[], $3::uuid[]) AS s (worker_id, incarnation)
WHERE w.id = s.worker_id AND w.incarnation = s.incarnation AND w.status <> 'revoked' AND w.deleted_at IS NULL
RETURNING w.id, old.status = 'offline' AND new.status = 'online' AS is_back
"""

_CLOSE_STREAM = f"""
WITH changed AS (
  UPDATE workers SET stream_seen_at = NULL
  WHERE id = $1 AND incarnation = $2 AND stream_replica = $3
  RETURNING id
)
{_TELL_GATEWAYS}
"""

_DISCONNECT = """
UPDATE workers SET status = 'offline'
WHERE id = $1 AND incarnation = $2 AND stream_seen_at IS NULL AND status IN ('online', 'draining')
RETURNING *, clock_timestamp() AS gone_at
"""

_SILENT = """
UPDATE workers SET status = 'offline', stream_seen_at = NULL
WHERE status IN ('online', 'draining') AND deleted_at IS NULL
  AND coalesce(stream_seen_at, greatest(beat_at, joined_at)) < clock_timestamp() - make_interval(secs => $1)
RETURNING *, clock_timestamp() AS gone_at
"""


async def open_stream(conn: Connection, worker_id: UUID, incarnation: UUID, replica: str) -> bool:
    """Notes that this life's control stream is open at `replica`; False if the life is over."""
    if await conn.fetchval(_OPEN_STREAM, worker_id, incarnation, replica) is None:
        return False
    await call_blocked(conn, [worker_id])
    return True


async def touch_streams(conn: Connection, replica: str, streams: Sequence[tuple[UUID, UUID]]) -> set[UUID]:
    """Notes that these workers' streams (worker, incarnation) are open; returns the workers still valid."""
    workers, incarnations = [worker for worker, _ in streams], [incarnation for _, incarnation in streams]
    rows = await conn.fetch(_TOUCH_STREAMS, replica, workers, incarnations)
    await call_blocked(conn, [row["id"] for row in rows if row["is_back"]])
    return {row["id"] for row in rows}


async def close_stream(conn: Connection, worker_id: UUID, incarnation: UUID, replica: str) -> None:
    """Notes that a stream is broken, unless the worker has opened one at another replica since."""
    await conn.execute(_CLOSE_STREAM, worker_id, incarnation, replica)


async def disconnect_if_gone(conn: Connection, worker_id: UUID, incarnation: UUID) -> bool:
    """Takes a worker whose stream did not come back off line and has its jobs looked after.

    Source: Job registry, When something goes wrong (a disconnected worker's jobs are released immediately).
    """
    row = await conn.fetchrow(_DISCONNECT, worker_id, incarnation)
    if row is None:
        return False
    await note_losses(conn, [worker_id])
    await time_out(conn, row, "disconnected")
    await call_stranded(conn, [worker_id])
    return True


async def disconnect_silent(conn: Connection, silent_s: float) -> list[UUID]:
    """Takes workers off line whose stream nobody has seen for `silent_s`: their replica died with them."""
    rows = await conn.fetch(_SILENT, silent_s)
    await note_losses(conn, [row["id"] for row in rows])
    for row in rows:
        await time_out(conn, row, "silent")
    await call_stranded(conn, [row["id"] for row in rows])
    return [row["id"] for row in rows]


_RUN_WORKSPACE = "SELECT workspace_id FROM job_histories WHERE id = $1"


async def workspace_of_run(conn: Connection, run_id: UUID) -> UUID | None:
    """Workspace of a run; None if there is no such run."""
    workspace_id: UUID | None = await conn.fetchval(_RUN_WORKSPACE, run_id)
    return workspace_id
