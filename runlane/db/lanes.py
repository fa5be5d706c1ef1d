"""What a lane keeps: checkpoint and sign of life (one row per lane), inbox (one row per received event)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from runlane.db.locks import lane_turn, try_lock
from runlane.db.pool import Connection

INBOX_RETENTION: Final = timedelta(days=8)
"""A day more than the outbox is kept: what cannot be read again cannot come twice."""

# A new lane begins with the oldest event that the outbox still has.
_ENSURE: Final = """
INSERT INTO lane_checkpoints (lane, last_seq, live_at)
SELECT $1, coalesce((SELECT min(bus_seq) - 1 FROM outbox WHERE bus_seq IS NOT NULL),
                    (SELECT last_seq FROM bus_state)), clock_timestamp()
ON CONFLICT (lane) DO NOTHING
"""

_ADVANCE: Final = """
UPDATE lane_checkpoints SET
  last_seq = $2, last_entry_id = coalesce($3, last_entry_id), lost = lost + $4,
  live_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE lane = $1 AND last_seq < $2
"""

_RECEIVE: Final = """
INSERT INTO lane_inbox (lane, event_id) SELECT $1, e FROM unnest($2::uuid[]) e
ON CONFLICT DO NOTHING
RETURNING event_id
"""

_PRUNE: Final = """
DELETE FROM lane_inbox WHERE (lane, event_id) IN (
  SELECT lane, event_id FROM lane_inbox WHERE received_at < clock_timestamp() - $1::interval LIMIT $2
)
"""


@dataclass(frozen=True, slots=True)
class Advance:
    """How far a lane came. `lost`: events on the way that neither stream nor outbox has any more."""

    last_seq: int
    entry_id: str | None = None
    lost: int = 0


async def ensure(conn: Connection, lane: str) -> None:
    """Makes the lane's row if it has none."""
    await conn.execute(_ENSURE, lane)


async def take_turn(conn: Connection, lane: str) -> bool:
    """Whether this transaction alone drives the lane, until it ends."""
    return await try_lock(conn, lane_turn(lane))


async def checkpoint(conn: Connection, lane: str) -> int:
    """Locks the lane's row and reads how far it came: everything up to there was handled."""
    last: int = await conn.fetchval("SELECT last_seq FROM lane_checkpoints WHERE lane = $1 FOR UPDATE", lane)
    return last


async def receive(conn: Connection, lane: str, event_ids: Sequence[UUID]) -> set[UUID]:
    """Puts events into the lane's inbox; returns those that were new; the others were handled before."""
    rows = await conn.fetch(_RECEIVE, lane, event_ids)
    return {row["event_id"] for row in rows}


async def advance(conn: Connection, lane: str, to: Advance) -> None:
    """Moves the checkpoint forward, never back, and counts what was lost on the way."""
    await conn.execute(_ADVANCE, lane, to.last_seq, to.entry_id, to.lost)


async def beat(conn: Connection, lane: str) -> None:
    """Says that the lane's loop lives: the relay waits for it."""
    await conn.execute("UPDATE lane_checkpoints SET live_at = clock_timestamp() WHERE lane = $1", lane)


async def prune_inbox(conn: Connection, limit: int) -> int:
    """Drops up to `limit` inbox rows that are past their retention; returns how many."""
    status = await conn.execute(_PRUNE, INBOX_RETENTION, limit)
    return int(status.rpartition(" ")[2])
