"""Saved definitions of a workspace: a name, its versions, and the events that start a run of the newest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.db import connectors, outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.config_profiles import with_profiles
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection
from runlane.db.tables import definition_versions, workflow_definitions
from runlane.definitions import BUILTIN, Definition, foreign_tools, load_definition, parse_definition
from runlane.errors import Conflict, Invalid, NotFound
from runlane.given_names import check_given_name

MAX_DEFINITIONS: Final = 100
"""Saved definitions of one workspace: an event may start a run of each."""

MAX_VERSIONS: Final = 100
"""Versions that are kept of each; a run has the body of its own."""

ORDERS: Final[Orders] = {
    "created_at": (workflow_definitions.c.id,),
    "name": (workflow_definitions.c.name, workflow_definitions.c.id),
}
VERSION_ORDERS: Final[Orders] = {"version": (definition_versions.c.version,)}


@dataclass(frozen=True, slots=True)
class Found:
    """A definition, and which version of which saved one it is; None: built in, or sent with the request."""

    definition: Definition
    definition_id: UUID | None = None
    version: int | None = None


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

_KEEP: Final = f"""
WITH gone AS (
  DELETE FROM definition_versions
  WHERE workspace_id = $1 AND definition_id = $2 AND version <= $3 - {MAX_VERSIONS}
)
INSERT INTO definition_versions (workspace_id, definition_id, version, body, saved_by)
VALUES ($1, $2, $3, $4, $5)
"""

_FORGET: Final = "DELETE FROM gathered_targets WHERE workspace_id = $1 AND definition_id = $2"

_FIND: Final = "SELECT * FROM workflow_definitions WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL"

_BY_NAME: Final = """
SELECT id, version, body FROM workflow_definitions
WHERE workspace_id = $1 AND name = $2 AND deleted_at IS NULL
"""

_DELETE: Final = """
UPDATE workflow_definitions SET deleted_at = clock_timestamp()
WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING *
"""


async def read_definition(
    conn: Connection, workspace_id: UUID, source: bytes | str | Mapping[str, object]
) -> Definition:
    """Reads a definition whose steps may name connectors of the workspace; a statement only if some do.

    Raises:
        Invalid: `definition.invalid`, `definition.inline_secret`.
    """
    document = load_definition(source)
    return parse_definition(document, await connectors.named(conn, workspace_id, foreign_tools(document)))


async def find_definition(conn: Connection, workspace_id: UUID, source: str | Mapping[str, object]) -> Found:
    """Finds a definition by name, built in or the newest version of a saved one, or reads one that was sent.

    Raises:
        Invalid: `definition.unknown`, `definition.invalid`.
    """
    if not isinstance(source, str):
        return Found(await read_definition(conn, workspace_id, source))
    if source in BUILTIN:
        return Found(BUILTIN[source])
    row = await conn.fetchrow(_BY_NAME, workspace_id, source)
    if row is None:
        detail = f"no definition of that name is saved or built in ({', '.join(sorted(BUILTIN))})"
        raise Invalid(detail, code="definition.unknown", fields={"definition": detail})
    definition = await read_definition(conn, workspace_id, row["body"])
    return Found(definition, row["id"], row["version"])


async def save_definition(
    conn: Connection, workspace_id: UUID, definition: Definition, act: Act
) -> dict[str, object]:
    """Saves a definition under its name, as a new version if there is one; runs keep what they began with.

    What was gathered for its next run is dropped if no event starts one any more.

    A repeated call makes one version more, which says the same.

    Raises:
        Invalid: `name.ambiguous`, `config_profile.unknown`.
        Conflict: `definition.builtin`, the name is one of ours; `definition.too_many`.
    """
    check_given_name(definition.name)
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
    await conn.execute(_KEEP, workspace_id, row["id"], row["version"], row["body"], act.name)
    if not definition.on:
        await conn.execute(_FORGET, workspace_id, row["id"])
    action = Action.DEFINITION_CREATE if row["version"] == 1 else Action.DEFINITION
    deed = _deed(action, workspace_id, row["id"], f"{row['name']} {row['version']}")
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


async def get_definition(conn: Connection, workspace_id: UUID, definition_id: UUID) -> dict[str, object]:
    """A saved definition in its newest version.

    Raises:
        NotFound: `definition.not_found`.
    """
    row = await conn.fetchrow(_FIND, workspace_id, definition_id)
    if row is None:
        raise NotFound("no such definition", code="definition.not_found")
    return dict(row)


async def list_versions(
    conn: AsyncConnection, workspace_id: UUID, definition_id: UUID, page: PageRequest
) -> Page:
    """Versions of a saved definition, the newest first. Index: the primary key of `definition_versions`."""
    statement = select(definition_versions).where(
        definition_versions.c.workspace_id == workspace_id,
        definition_versions.c.definition_id == definition_id,
    )
    return await fetch_page(conn, statement, VERSION_ORDERS, page)


def _deed(action: Action, workspace_id: UUID, definition_id: UUID, value: str) -> Deed:
    subject = names.definition_subject(definition_id)
    return Deed(action, workspace_id, subject, ordinal=value, value=value)
