"""Projects: named sets of rules over assets, made, changed and deleted by people.

Which assets are in one is decided later, portion by portion (`runlane.db.memberships`): a change of rules
costs the caller nothing, however many assets there are. A deleted project keeps its row, so that its runs say
what they were for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act
from runlane.db.inventory_tables import assets
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection, Record
from runlane.db.project_tables import project_assets, projects
from runlane.db.selections import keep_groups, missing_targets
from runlane.errors import Conflict, Invalid, NotFound, Stale
from runlane.events import EVENT_CATALOG, envelope
from runlane.events.automation_payloads import ProjectPayload
from runlane.given_names import check_given_name
from runlane.projects import Rule, RuleKind, parse_rules

MAX_PROJECTS: Final = 50
"""Of a workspace."""

ORDERS: Final[Orders] = {"created_at": (projects.c.id,), "name": (projects.c.name, projects.c.id)}
ASSET_ORDERS: Final[Orders] = {
    "value": (assets.c.value, assets.c.id),
    "since": (project_assets.c.since, assets.c.id),
}


@dataclass(frozen=True, slots=True)
class ProjectEdit:
    """What a caller wants changed, and the version that this was made from. None: it stays."""

    version: int
    name: str | None = None
    rules: Sequence[Rule] | None = None


_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('projects/' || $1::uuid::text, 0))"

_COUNT: Final = "SELECT count(*)::int FROM projects WHERE workspace_id = $1 AND deleted_at IS NULL"

_IS_TAKEN: Final = """
SELECT EXISTS (SELECT FROM projects
               WHERE workspace_id = $1 AND name = $2 AND deleted_at IS NULL AND id IS DISTINCT FROM $3)
"""

_INSERT: Final = "INSERT INTO projects (workspace_id, name, created_by) VALUES ($1, $2, $3) RETURNING *"

_FIND: Final = "SELECT * FROM projects WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL"

_HOLD: Final = f"{_FIND} FOR NO KEY UPDATE"

_RENAME: Final = """
UPDATE projects SET name = $3, version = version + 1 WHERE workspace_id = $1 AND id = $2 RETURNING *
"""

_BEGIN_ANEW: Final = """
UPDATE projects SET changed_at = clock_timestamp(), due_at = clock_timestamp(), looked_up_to = NULL
WHERE workspace_id = $1 AND id = $2
RETURNING *
"""

_DELETE: Final = """
UPDATE projects SET deleted_at = clock_timestamp(), version = version + 1 WHERE workspace_id = $1 AND id = $2
RETURNING *
"""

_FORGET: Final = (
    "DELETE FROM project_scopes WHERE workspace_id = $1 AND project_id = $2",
    "DELETE FROM project_assets WHERE workspace_id = $1 AND project_id = $2",
    "DELETE FROM gathered_targets WHERE workspace_id = $1 AND project_id = $2",
)

_DROP_RULES: Final = _FORGET[0]

_ADD_RULES: Final = """
INSERT INTO project_scopes (workspace_id, project_id, kind, value)
SELECT $1, $2, u.* FROM unnest($3::text[], $4::text[]) u
"""

_RULES: Final = """
SELECT kind, value FROM project_scopes WHERE workspace_id = $1 AND project_id = $2 ORDER BY kind, value
"""

_ASSETS: Final = "SELECT count(*)::int FROM project_assets WHERE workspace_id = $1 AND project_id = $2"


async def create_project(
    conn: Connection, workspace_id: UUID, name: str, rules: Sequence[Rule], act: Act
) -> dict[str, object]:
    """Makes a project; the assets that its rules fit come in soon.

    Raises:
        Invalid: `name.ambiguous`; `project.rules`, with everything that is wrong with them.
        Conflict: `project.duplicate`, the name is taken; `project.too_many`.
    """
    check_given_name(name)
    kept = await _checked(conn, workspace_id, rules)
    await conn.execute(_LOCK, workspace_id)
    if await conn.fetchval(_COUNT, workspace_id) >= MAX_PROJECTS:
        raise Conflict(f"a workspace has at most {MAX_PROJECTS} projects", code="project.too_many")
    await _check_name(conn, workspace_id, name, None)
    (row,) = await conn.fetch(_INSERT, workspace_id, name, act.name)
    await _add_rules(conn, row, kept)
    await _say(conn, row, act)
    return await _shown(conn, row)


async def edit_project(
    conn: Connection, workspace_id: UUID, project_id: UUID, edit: ProjectEdit, act: Act
) -> dict[str, object]:
    """Renames a project, or gives it other rules: assets come in and leave soon.

    Raises:
        NotFound: `project.not_found`.
        Stale: `etag.stale`, it was changed since that version.
        Invalid, Conflict: as `create_project`.
    """
    kept = None if edit.rules is None else await _checked(conn, workspace_id, edit.rules)
    row = await _hold(conn, workspace_id, project_id)
    if row["version"] != edit.version:
        raise Stale(f"the project was changed: it is version {row['version']} now")
    name = edit.name or row["name"]
    check_given_name(name)
    await conn.execute(_LOCK, workspace_id)
    await _check_name(conn, workspace_id, name, project_id)
    (row,) = await conn.fetch(_RENAME, workspace_id, project_id, name)
    if kept is not None:
        await conn.execute(_DROP_RULES, workspace_id, project_id)
        await _add_rules(conn, row, kept)
        (row,) = await conn.fetch(_BEGIN_ANEW, workspace_id, project_id)
    await _say(conn, row, act)
    return await _shown(conn, row)


async def delete_project(
    conn: Connection, workspace_id: UUID, project_id: UUID, act: Act
) -> dict[str, object]:
    """Deletes a project and what was gathered for its next runs; its assets and runs stay.

    Raises:
        NotFound: `project.not_found`.
    """
    found = await _shown(conn, await _hold(conn, workspace_id, project_id))
    (row,) = await conn.fetch(_DELETE, workspace_id, project_id)
    for statement in _FORGET:
        await conn.execute(statement, workspace_id, project_id)
    await _say(conn, row, act)
    return {**found, "version": row["version"]}


async def get_project(conn: Connection, workspace_id: UUID, project_id: UUID) -> dict[str, object]:
    """A project with its rules, and how many assets are in it.

    Raises:
        NotFound: `project.not_found`.
    """
    row = await conn.fetchrow(_FIND, workspace_id, project_id)
    if row is None:
        raise _not_found()
    return await _shown(conn, row)


async def list_projects(conn: AsyncConnection, workspace_id: UUID, page: PageRequest) -> Page:
    """Projects of a workspace."""
    statement = select(projects).where(
        projects.c.workspace_id == workspace_id, projects.c.deleted_at.is_(None)
    )
    return await fetch_page(conn, statement, ORDERS, page)


async def list_assets_of(
    conn: AsyncConnection, workspace_id: UUID, project_id: UUID, page: PageRequest
) -> Page:
    """Assets that are in a project now, with since when."""
    shown = (assets.c.id, assets.c.target_id, assets.c.value, project_assets.c.since)
    statement = (
        select(*shown)
        .join(project_assets, project_assets.c.asset_id == assets.c.id)
        .where(project_assets.c.workspace_id == workspace_id, project_assets.c.project_id == project_id)
    )
    return await fetch_page(conn, statement, ASSET_ORDERS, page)


async def _checked(conn: Connection, workspace_id: UUID, said: Sequence[Rule]) -> list[Rule]:
    """Rules in their one spelling, each once; groups by id, kept until the caller's transaction has ended."""
    kept, faults = parse_rules(said)
    targets = [UUID(rule.value) for rule in kept.values() if rule.kind is RuleKind.TARGET]
    missing = {str(each) for each in await missing_targets(conn, workspace_id, targets)}
    found: set[Rule] = set()
    for path, rule in kept.items():
        if rule.kind is RuleKind.TARGET and rule.value in missing:
            faults[path] = "no such target"
        elif rule.kind is RuleKind.GROUP:
            try:
                (group_id,) = await keep_groups(conn, workspace_id, [rule.value])
                found.add(Rule(rule.kind, str(group_id)))
            except NotFound:
                faults[path] = "no such group"
        else:
            found.add(rule)
    if faults:
        raise Invalid("some of the rules mean nothing", code="project.rules", fields=faults)
    return sorted(found)


async def _add_rules(conn: Connection, row: Record, rules: Sequence[Rule]) -> None:
    kinds, values = [rule.kind for rule in rules], [rule.value for rule in rules]
    await conn.execute(_ADD_RULES, row["workspace_id"], row["id"], kinds, values)


async def _check_name(conn: Connection, workspace_id: UUID, name: str, own: UUID | None) -> None:
    if await conn.fetchval(_IS_TAKEN, workspace_id, name, own):
        detail = "there is a project of that name"
        raise Conflict(detail, code="project.duplicate", fields={"name": detail})


async def _hold(conn: Connection, workspace_id: UUID, project_id: UUID) -> Record:
    row = await conn.fetchrow(_HOLD, workspace_id, project_id)
    if row is None:
        raise _not_found()
    return row


async def _shown(conn: Connection, row: Record) -> dict[str, object]:
    rules = await conn.fetch(_RULES, row["workspace_id"], row["id"])
    count = await conn.fetchval(_ASSETS, row["workspace_id"], row["id"])
    return {**row, "rules": [dict(rule) for rule in rules], "assets": count}


async def _say(conn: Connection, row: Record, act: Act) -> None:
    tree = EVENT_CATALOG.project
    is_first = row["version"] == 1
    leaf = tree.deleted if row["deleted_at"] else tree.created if is_first else tree.updated
    told = envelope(
        leaf,
        ProjectPayload(project_id=row["id"], name=row["name"]),
        workspace_id=row["workspace_id"],
        subject=names.project_subject(row["id"]),
        ordinal=row["version"],
        actor=act.actor,
    )
    await outbox.insert(conn, [told])


def _not_found() -> NotFound:
    return NotFound("no such project", code="project.not_found")
