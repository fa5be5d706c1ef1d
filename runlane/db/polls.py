"""When scan workers last asked for work, as the gateways see it: a row for each worker and tool set.

A worker may beat while its line for work is dead. Polls tell it from one that has nothing to do: they are
noted together every few seconds, never one by one. What follows is in `runlane.db.sweeps.missing_polls`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection

_NOTE: Final = """
INSERT INTO worker_polls (worker_id, toolset, polled_at)
SELECT DISTINCT w.id, p.toolset, clock_timestamp()
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS p (worker_id, incarnation, toolset)
JOIN workers w ON w.id = p.worker_id AND w.incarnation = p.incarnation
ORDER BY 1, 2
ON CONFLICT (worker_id, toolset) DO UPDATE SET polled_at = excluded.polled_at
"""

_SUSPECTED: Final = "SELECT id FROM workers WHERE id = ANY($1::uuid[]) AND not_polling <> '{}'"

_CLEAR: Final = """
UPDATE workers w SET not_polling = '{}', not_polling_since = NULL
WHERE w.id = $1 AND w.not_polling <> '{}' AND NOT EXISTS (
  SELECT FROM unnest(w.not_polling) AS t (toolset)
  WHERE NOT EXISTS (
    SELECT FROM worker_polls p
    WHERE p.worker_id = w.id AND p.toolset = t.toolset AND p.polled_at > w.not_polling_since))
"""

_NOTE_REPLICA: Final = """
INSERT INTO gateway_replicas (replica, steady_since)
VALUES ($1, clock_timestamp() - make_interval(secs => $2))
ON CONFLICT (replica) DO UPDATE SET steady_since = excluded.steady_since, seen_at = clock_timestamp()
"""

_FORGET: Final = "DELETE FROM worker_polls WHERE worker_id = $1"


@dataclass(frozen=True, slots=True)
class Polled:
    """A life of a worker that asked for work of a tool set."""

    worker_id: UUID
    incarnation: UUID
    toolset: str


async def note(conn: Connection, polled: Collection[Polled]) -> None:
    """Notes polls that are open, or were a moment ago; who was suspected and polls again is so no more.

    Not in a transaction: each row is locked by itself, so that gateways never wait for each other in a ring.
    """
    if not polled:
        return
    columns = zip(*((each.worker_id, each.incarnation, each.toolset) for each in polled), strict=True)
    await conn.execute(_NOTE, *columns)
    for row in await conn.fetch(_SUSPECTED, {each.worker_id for each in polled}):
        await conn.execute(_CLEAR, row["id"])


async def note_gateway(conn: Connection, replica: str, steady_s: float) -> None:
    """Notes that a gateway has noted polls for so long without a failure."""
    await conn.execute(_NOTE_REPLICA, replica, steady_s)


async def forget(conn: Connection, worker_id: UUID) -> None:
    """Forgets the polls of the earlier lives of a worker."""
    await conn.execute(_FORGET, worker_id)
