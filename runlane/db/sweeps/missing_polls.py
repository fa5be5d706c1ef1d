"""Scan workers that beat but take no work, though they could and some waits in a class of theirs.

Such a worker is told to renew its polls, again by every sweep; if that does not help it is lost, and comes
back on line when it polls. While no gateway notes polls, a missing one says nothing about a worker.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import orjson

from runlane import names
from runlane.db.classes import CLASS_QUEUE, call_stranded
from runlane.db.guards import IN_PROGRESS, LIVE_JOB, PENDING
from runlane.db.losses import note_losses
from runlane.db.pool import Connection
from runlane.db.workers import time_out

GATEWAY_ALIVE_S: Final = 15
"""A gateway that noted polls within this is there."""

_LONG_AGO: Final = "clock_timestamp() - make_interval(secs => {s})"

# A batch that waits: none of its jobs was claimed. A batch in hand: one of them is the worker's.
_MEMBER: Final = f"j.dispatch_id = d.id AND j.{LIVE_JOB} AND j.dispatch_id IS NOT NULL"
_IDLE: Final = f"""
ARRAY(
  SELECT t.toolset FROM unnest(w.toolsets) AS t (toolset)
  WHERE greatest(w.joined_at, (SELECT p.polled_at FROM worker_polls p
                               WHERE p.worker_id = w.id AND p.toolset = t.toolset)) < {_LONG_AGO}
    AND EXISTS (
      SELECT FROM dispatches d
      WHERE d.task_queue = {CLASS_QUEUE} AND d.closed_at IS NULL AND d.created_at < {_LONG_AGO}
        AND EXISTS (SELECT FROM jobs j WHERE {_MEMBER} AND j.status = {PENDING}))
    AND coalesce((w.slots ->> t.toolset)::int, 1) > (
      SELECT count(DISTINCT d.id)
      FROM dispatches d
      JOIN jobs j ON {_MEMBER} AND j.status = {IN_PROGRESS} AND j.worker_id = w.id
      WHERE d.task_queue = {CLASS_QUEUE} AND d.closed_at IS NULL)
  ORDER BY 1)
"""

_IS_HEARD: Final = f"""w.status = 'online' AND w.stream_seen_at IS NOT NULL AND w.deleted_at IS NULL
  AND EXISTS (SELECT FROM gateway_replicas g
              WHERE g.seen_at > clock_timestamp() - interval '{GATEWAY_ALIVE_S} s'
                AND g.steady_since < {_LONG_AGO})"""

_FIND: Final = f"""
SELECT w.id FROM workers w
WHERE w.id > $1 AND w.status IN ('online', 'offline') AND w.stream_seen_at IS NOT NULL
  AND (w.not_polling <> '{{}}' OR ({_IS_HEARD} AND {_IDLE} <> '{{}}'))
ORDER BY w.id LIMIT $2
""".replace("{s}", "$3")

_SUSPECT: Final = f"""
UPDATE workers w SET not_polling = i.toolsets, not_polling_since = clock_timestamp()
FROM (SELECT w.id, {_IDLE} AS toolsets FROM workers w WHERE w.id = ANY($1::uuid[]) AND {_IS_HEARD}) i
WHERE w.id = i.id AND w.not_polling = '{{}}' AND i.toolsets <> '{{}}'
RETURNING w.id
""".replace("{s}", "$2")

_TAKE_OFF: Final = f"""
UPDATE workers w SET status = 'offline'
WHERE w.id = ANY($1::uuid[]) AND w.not_polling_since < {_LONG_AGO} AND {_IS_HEARD}
  AND {_IDLE} && w.not_polling
RETURNING w.*, clock_timestamp() AS gone_at
""".replace("{s}", "$2")

_SUSPECTED: Final = "SELECT id, not_polling FROM workers WHERE id = ANY($1::uuid[]) AND not_polling <> '{}'"

_TELL: Final = f"SELECT pg_notify('{names.CONTROL_CHANNEL}', n) FROM unnest($1::text[]) AS u (n)"


async def find_idle(conn: Connection, after: UUID, limit: int, poll_s: float) -> list[UUID]:
    """Workers that let work wait for `poll_s`, and those that were told so. Index: `dispatches_queued`."""
    return [row["id"] for row in await conn.fetch(_FIND, after, limit, poll_s)]


async def tell_or_take_off(conn: Connection, worker_ids: Sequence[UUID], poll_s: float) -> list[UUID]:
    """Tells them to renew their polls; takes those off line that were told `poll_s` ago. Returns who changed.

    Whoever was told before is told again: the word is a hint that may be lost.
    """
    suspected = [row["id"] for row in await conn.fetch(_SUSPECT, list(worker_ids), poll_s)]
    rows = await conn.fetch(_TAKE_OFF, list(worker_ids), poll_s)
    gone = [row["id"] for row in rows]
    await note_losses(conn, gone)
    for row in rows:
        await time_out(conn, row, "not_polling")
    await call_stranded(conn, gone)
    await conn.execute(
        _TELL, [_notice(row["id"], row["not_polling"]) for row in await conn.fetch(_SUSPECTED, worker_ids)]
    )
    return [*suspected, *gone]


def _notice(worker_id: UUID, toolsets: Sequence[str]) -> str:
    return orjson.dumps(
        {"kind": "renew_polls", "worker": str(worker_id), "toolsets": list(toolsets)}
    ).decode()
