"""Rows of operations: the intent, written with the first of its jobs, before others carry it on."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.acts import Act, Action
from runlane.db.pool import Connection, Record
from runlane.errors import NotFound

CHUNK: Final = 1_000
"""Jobs of one transaction."""

_INSERT: Final = """
INSERT INTO operations (workspace_id, action, filter, reason, created_by, actor)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING *
"""


async def write(
    conn: Connection, workspace_id: UUID, action: Action, which: Mapping[str, str], act: Act
) -> Record:
    """Writes an operation: what is done to which jobs, by whom and why.

    Raises:
        NotFound: `workspace.not_found`.
    """
    actor = {"id": act.actor.id, "type": act.actor.type} if act.actor else None
    row = await conn.fetchrow(_INSERT, workspace_id, action, which, act.clean_reason, act.name, actor)
    if row is None:
        raise NotFound("no such workspace", code="workspace.not_found")
    return row


async def call(conn: Connection) -> None:
    """Wakes who carries operations on, once the caller's transaction has committed."""
    await conn.execute("SELECT pg_notify($1, '')", names.OPERATIONS_CHANNEL)
