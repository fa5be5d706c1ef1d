"""What leaves the event tables: days of the outbox that everybody has handled, audit events once archived."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from runlane.db.outbox import LANE_DEAD_AFTER
from runlane.db.pool import Connection, Record

OUTBOX_DAYS: Final = 7
"""The functions of the schema refuse younger days."""

_DAYS: Final = f"""
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'outbox'::regclass AND c.relname ~ '^outbox_[0-9]{{8}}$'
  AND c.relname < 'outbox_' || to_char(clock_timestamp() - interval '{OUTBOX_DAYS} days', 'YYYYMMDD')
ORDER BY 1
"""

# Events that came before their day's partition are in this one, which is never dropped.
_STRAYS: Final = f"""
WITH handled AS (
  SELECT least(published_seq, (SELECT min(last_seq) FROM lane_checkpoints
                               WHERE live_at > clock_timestamp() - $2::interval)) AS seq
  FROM bus_state
), gone AS (
  DELETE FROM outbox_default WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM outbox_default
    WHERE created_at < clock_timestamp() - interval '{OUTBOX_DAYS} days'
      AND bus_seq <= (SELECT seq FROM handled)
    LIMIT $1))
  RETURNING bus_seq
), noted AS (
  UPDATE bus_state SET pruned_seq = greatest(pruned_seq, (SELECT max(bus_seq) FROM gone))
  WHERE EXISTS (SELECT FROM gone)
)
SELECT count(*) FROM gone
"""

_AUDIT: Final = """
SELECT audit_id, workspace_id, event_id, bus_seq, type, subject, actor_id, actor_type, outcome, severity,
       data, occurred_at, recorded_at, recorded_at < clock_timestamp() - make_interval(days => $2) AS is_old
FROM audit_events ORDER BY audit_id LIMIT $1
"""


@dataclass(frozen=True, slots=True)
class Archived:
    """Audit events from `first_id` to `last_id`, and the object that has them."""

    first_id: int
    last_id: int
    events: int
    key: str
    sha256: bytes


async def old_days(conn: Connection) -> list[str]:
    """Partitions of the outbox that are old enough to go, oldest first."""
    return [row["relname"] for row in await conn.fetch(_DAYS)]


async def drop_day(conn: Connection, partition: str) -> bool | None:
    """Drops a partition that everybody has handled; False: somebody has not, None: it is busy."""
    try:
        async with conn.transaction():
            return bool(await conn.fetchval("SELECT runlane_drop_outbox_partition($1)", partition))
    except asyncpg.LockNotAvailableError:
        return None


async def drop_strays(conn: Connection, limit: int) -> int:
    """Deletes up to `limit` old events that are in no day's partition; returns how many."""
    return int(await conn.fetchval(_STRAYS, limit, LANE_DEAD_AFTER))


async def oldest_audit(conn: Connection, limit: int, days: int) -> Sequence[Record]:
    """The oldest audit events that are so many days old, in order, without a gap. Index: the primary key."""
    rows = await conn.fetch(_AUDIT, limit, days)
    young = next((at for at, row in enumerate(rows) if not row["is_old"]), len(rows))
    return rows[:young]


async def drop_audit(conn: Connection, archived: Archived) -> None:
    """Deletes archived audit events and notes where they are.

    Raises:
        asyncpg.PostgresError: they are not exactly those of the archive, or too young.
    """
    await conn.execute(
        "SELECT runlane_drop_archived_audit($1, $2, $3, $4, $5)",
        archived.first_id,
        archived.last_id,
        archived.events,
        archived.key,
        archived.sha256,
    )
