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

_ENSURE: Final = """
INSERT INTO lane_checkpoints (lane, last_seq, read_seq, start_seq, live_at)
SELECT $1, start.seq, start.seq, start.seq, clock_timestamp()
FROM (SELECT coalesce((SELECT min(bus_seq) - 1 FROM outbox WHERE bus_seq IS NOT NULL AND $2),
                      (SELECT last_seq FROM bus_state)) AS seq) AS start
ON CONFLICT (lane) DO NOTHING
"""

# What left the outbox is younger than what leaves the inbox, so the inbox is sure of what comes after it.
_POSITION: Final = """
SELECT last_seq, read_seq, least(last_seq, greatest(start_seq, (SELECT pruned_seq FROM bus_state)))
FROM lane_checkpoints WHERE lane = $1 FOR UPDATE
"""

_ADVANCE: Final = """
UPDATE lane_checkpoints SET
  last_seq = greatest(last_seq, $2), read_seq = greatest(last_seq, $2, $5),
  last_entry_id = coalesce($3, last_entry_id), lost = lost + $4,
  live_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE lane = $1
"""

_RECEIVE: Final = """
INSERT INTO lane_inbox (lane, event_id) SELECT $1, e FROM unnest($2::uuid[]) e
ON CONFLICT DO NOTHING
RETURNING event_id
"""

_PRUNE: Final = """
DELETE FROM lane_inbox WHERE (lane, event_id) IN (
  SELECT lane, event_id FROM lane_inbox WHERE received_at < clock_timestamp() - $1::interval
  ORDER BY received_at LIMIT $2
)
"""


@dataclass(frozen=True, slots=True)
class Advance:
    """How far a lane has handled. `lost`: events on the way that neither stream nor outbox has any more."""

    last_seq: int
    entry_id: str | None = None
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Position:
    """How far a lane came. Everything up to `last_seq` was handled, everything up to `read_seq` was read.

    `old_seq`: what comes again from before is old, whatever the inbox says; behind it the inbox knows.
    """

    last_seq: int
    read_seq: int
    old_seq: int = 0


async def ensure(conn: Connection, lane: str, *, from_oldest: bool) -> None:
    """Makes the lane's row if it has none: it begins with the oldest event of the outbox, or the next."""
    await conn.execute(_ENSURE, lane, from_oldest)


async def bound_turns(conn: Connection, idle: timedelta) -> None:
    """Has the server end a turn of this session that nobody continues, so that another instance can go on."""
    await conn.execute(
        "SELECT set_config('idle_in_transaction_session_timeout', $1, false)",
        str(int(idle.total_seconds() * 1000)),
    )


async def take_turn(conn: Connection, lane: str) -> bool:
    """Whether this transaction alone drives the lane, until it ends."""
    return await try_lock(conn, lane_turn(lane))


async def position(conn: Connection, lane: str) -> Position:
    """Locks the lane's row and reads how far it came."""
    (row,) = await conn.fetch(_POSITION, lane)
    return Position(*row.values())


async def published(conn: Connection) -> int:
    """The newest event that is on the stream, or was."""
    number: int = await conn.fetchval("SELECT published_seq FROM bus_state")
    return number


async def rewind(conn: Connection, lane: str) -> None:
    """Has the lane read again from its checkpoint on: the inbox knows what it has handled of it."""
    await conn.execute("UPDATE lane_checkpoints SET read_seq = last_seq WHERE lane = $1", lane)


async def receive(conn: Connection, lane: str, event_ids: Sequence[UUID]) -> set[UUID]:
    """Puts events into the lane's inbox; returns those that were new; the others were handled before."""
    rows = await conn.fetch(_RECEIVE, lane, event_ids)
    return {row["event_id"] for row in rows}


async def advance(conn: Connection, lane: str, to: Advance, *, read_seq: int) -> None:
    """Moves the checkpoint forward, never back, counts what was lost on the way, and says that it lives."""
    await conn.execute(_ADVANCE, lane, to.last_seq, to.entry_id, to.lost, read_seq)


async def prune_inbox(conn: Connection, limit: int) -> int:
    """Drops up to `limit` inbox rows that are past their retention; returns how many."""
    status = await conn.execute(_PRUNE, INBOX_RETENTION, limit)
    return int(status.rpartition(" ")[2])
