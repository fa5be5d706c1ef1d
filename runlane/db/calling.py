"""Calls to deliver: one command for each endpoint and time, whoever finds that something is due.

The manner of nudges: what is called for is on the endpoint's row, and only the statement that makes it
earlier writes a command. Whoever begins to deliver empties it, under the lock of that row, so that it sees
what the call is about.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.commands import CommandKind
from runlane.db.pool import Connection

# In an ordered endpoint nothing passes the first one. Indexes: `deliveries_pending`, `deliveries_ordered`.
_CALL: Final = f"""
WITH held AS (
  SELECT id, workspace_id, is_ordered, paused_until, called_for FROM integrations
  WHERE id = ANY($1::uuid[]) AND status = 'active' AND deleted_at IS NULL
  ORDER BY id FOR NO KEY UPDATE
), waiting AS (
  SELECT h.id, h.workspace_id, h.called_for, greatest(first.due_at, h.paused_until) AS due_at
  FROM held h CROSS JOIN LATERAL (
    (SELECT d.due_at FROM deliveries d
     WHERE h.is_ordered AND d.integration_id = h.id AND d.state = 'pending'
     ORDER BY d.sequence, d.id LIMIT 1)
    UNION ALL
    (SELECT d.due_at FROM deliveries d
     WHERE NOT h.is_ordered AND d.integration_id = h.id AND d.state = 'pending'
     ORDER BY d.due_at LIMIT 1)
  ) AS first
), called AS (
  UPDATE integrations i SET called_for = w.due_at FROM waiting w
  WHERE i.id = w.id AND (w.called_for IS NULL OR w.called_for > w.due_at)
  RETURNING i.workspace_id, i.id, w.due_at
), written AS (
  INSERT INTO commands (workspace_id, kind, workflow_id, due_at)
  SELECT workspace_id, '{CommandKind.DELIVER}', '{names.DELIVER_PREFIX}' || id, due_at FROM called
  RETURNING 1
)
SELECT count(*)::int, pg_notify('{names.COMMANDS_CHANNEL}', '') FROM written
"""

LATE: Final = timedelta(minutes=1)
"""A delivery that has been due for so long is one that nobody makes."""

_UNHEARD: Final = """
SELECT i.id FROM integrations i
WHERE i.id > $1 AND i.status = 'active' AND i.deleted_at IS NULL
  AND (i.paused_until IS NULL OR i.paused_until < clock_timestamp() - $3::interval)
  AND EXISTS (SELECT FROM deliveries d WHERE d.integration_id = i.id AND d.state = 'pending'
              AND d.due_at < clock_timestamp() - $3::interval)
ORDER BY i.id LIMIT $2
"""

_FORGET: Final = """
UPDATE integrations SET called_for = NULL
WHERE id = ANY($1::uuid[]) AND called_for < clock_timestamp() - $2::interval
"""


async def call(conn: Connection, integration_ids: Sequence[UUID]) -> int:
    """Has the workflows of endpoints started when something is due there; returns how many it called.

    In the transaction of what is to be delivered. Harmless to repeat.
    """
    return int(await conn.fetchval(_CALL, list(integration_ids)))


async def find_unheard(conn: Connection, after: UUID, limit: int) -> list[UUID]:
    """Endpoints behind an id where something has been due for so long, and nobody delivers it."""
    return [row["id"] for row in await conn.fetch(_UNHEARD, after, limit, LATE)]


async def call_again(conn: Connection, integration_ids: Sequence[UUID]) -> list[UUID]:
    """Calls for endpoints once more whose call is that old: its workflow was lost. Harmless to repeat."""
    await conn.execute(_FORGET, list(integration_ids), LATE)
    await call(conn, integration_ids)
    return list(integration_ids)
