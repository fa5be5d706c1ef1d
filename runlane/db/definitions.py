"""Saved definitions of a workspace: a name, its newest version, and the events that start a run of it."""

from typing import Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.config_profiles import with_profiles
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection
from runlane.db.tables import workflow_definitions
from runlane.definitions import BUILTIN, Definition
from runlane.errors import Conflict, NotFound

MAX_DEFINITIONS: Final = 100
"""Saved definitions of one workspace: an event may start a run of each."""

ORDERS: Final[Orders] = {
    "created_at": (workflow_definitions.c.id,),
    "name": (workflow_definitions.c.name, workflow_definitions.c.id),
}

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_COUNT: Final = """
SELECT count(*)::int FROM workflow_definitions WHERE workspace_id = $1 AND deleted_at IS NULL AND name <> $2
"""

_SAVE: Final = """
INSERT INTO workflow_definitions (workspace_id, name, body) VALUES ($1, $2, $3)
ON CONFLICT (workspace_id, name) WHERE deleted_at IS NULL
DO UPDATE SET body = excluded.body, version = workflow_definitions.version + 1
RETURNING *
"""

_DELETE: Final = """
UPDATE workflow_definitions SET deleted_at = clock_timestamp()
WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING *
"""


async def save_definition(
    conn: Connection, workspace_id: UUID, definition: Definition, act: Act
) -> dict[str, object]:
    """Saves a definition under its name, as a new version if there is one; runs keep what they began with.

    Raises:
        Invalid: `config_profile.unknown`.
        Conflict: `definition.builtin`, the name is one of ours; `definition.too_many`.
    """
    await with_profiles(conn, workspace_id, definition)
    if definition.name in BUILTIN:
        raise Conflict("a built-in definition has this name", code="definition.builtin")
    await conn.execute(_LOCK, f"definitions/{workspace_id}")
    if await conn.fetchval(_COUNT, workspace_id, definition.name) >= MAX_DEFINITIONS:
        detail = f"a workspace has at most {MAX_DEFINITIONS} definitions"
        raise Conflict(detail, code="definition.too_many")
    row = await conn.fetchrow(_SAVE, workspace_id, definition.name, definition.as_json())
    if row is None:
        raise NotFound("no such workspace", code="workspace.not_found")
    deed = _deed(Action.DEFINITION, workspace_id, row["id"], f"{row['name']} {row['version']}")
    await outbox.insert(conn, [acted(act, deed)])
    return dict(row)


async def delete_definition(
    conn: Connection, workspace_id: UUID, definition_id: UUID, act: Act
) -> dict[str, object]:
    """Deletes a saved definition: no event starts a run of it any more; its runs go on.

    Raises:
        NotFound: `definition.not_found`, also when it was deleted before.
    """
    row = await conn.fetchrow(_DELETE, workspace_id, definition_id)
    if row is None:
        raise NotFound("no such definition", code="definition.not_found")
    deed = _deed(Action.DEFINITION_DELETE, workspace_id, definition_id, row["name"])
    await outbox.insert(conn, [acted(act, deed)])
    return dict(row)


async def list_definitions(conn: AsyncConnection, workspace_id: UUID, page: PageRequest) -> Page:
    """Saved definitions of a workspace that are not deleted."""
    statement = select(workflow_definitions).where(
        workflow_definitions.c.workspace_id == workspace_id, workflow_definitions.c.deleted_at.is_(None)
    )
    return await fetch_page(conn, statement, ORDERS, page)


def _deed(action: Action, workspace_id: UUID, definition_id: UUID, value: str) -> Deed:
    subject = names.definition_subject(definition_id)
    return Deed(action, workspace_id, subject, ordinal=value, value=value)
