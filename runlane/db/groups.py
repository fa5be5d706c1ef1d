"""Groups of targets: a name, members, and perhaps a rule by tags. What a run, schedule or window is about.

A group is of targets and not of assets: a run is about targets, and its assets are found by it. Members are
rows; a rule takes in whatever has all of its tags by the time somebody asks. Both count.
"""

from asyncio import to_thread
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection, Record
from runlane.db.selections import OF_GROUP, missing_targets
from runlane.db.tables import target_group_members, target_groups, targets
from runlane.errors import Conflict, Invalid, NotFound, Stale
from runlane.given_names import check_given_name
from runlane.tools.target_files import check_tags
from runlane.tools.targets import parse_target

MAX_GROUPS: Final = 200
"""Of a workspace."""

ORDERS: Final[Orders] = {
    "created_at": (target_groups.c.id,),
    "name": (target_groups.c.name, target_groups.c.id),
}
MEMBER_ORDERS: Final[Orders] = {"value": (targets.c.value, targets.c.id), "created_at": (targets.c.id,)}


@dataclass(frozen=True, slots=True)
class Members:
    """Targets that come into a group or leave it: by id, by spelling, and all that have any of these tags."""

    targets: Sequence[UUID] = ()
    values: Sequence[str] = ()
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class GroupEdit:
    """What a caller wants changed, and the version that this was made from. None: it stays."""

    version: int
    name: str | None = None
    tags: Sequence[str] | None = None


_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"

_COUNT: Final = "SELECT count(*)::int FROM target_groups WHERE workspace_id = $1"

_INSERT: Final = """
INSERT INTO target_groups (workspace_id, name, tags, created_by) VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace_id, name) DO NOTHING
RETURNING *
"""

_FIND: Final = "SELECT * FROM target_groups WHERE workspace_id = $1 AND id = $2"

_HOLD: Final = f"{_FIND} FOR UPDATE"

_IS_TAKEN: Final = """
SELECT EXISTS (SELECT FROM target_groups WHERE workspace_id = $1 AND name = $2 AND id <> $3)
"""

_EDIT: Final = """
UPDATE target_groups SET name = $3, tags = $4, version = version + 1 WHERE workspace_id = $1 AND id = $2
RETURNING *
"""

_TOUCH: Final = """
UPDATE target_groups SET version = version + 1 WHERE workspace_id = $1 AND id = $2 RETURNING *
"""

_USERS: Final = """
SELECT 'schedule ' || name AS name FROM schedules
WHERE workspace_id = $1 AND deleted_at IS NULL AND run -> 'groups' ? $2::uuid::text
UNION ALL
SELECT 'blackout window ' || id FROM blackout_windows WHERE workspace_id = $1 AND group_id = $2
UNION ALL
SELECT 'notification rule ' || name FROM notification_rules WHERE workspace_id = $1 AND group_id = $2
UNION ALL
SELECT 'project ' || p.name FROM projects p JOIN project_scopes s ON s.project_id = p.id
WHERE p.workspace_id = $1 AND p.deleted_at IS NULL AND s.kind = 'group' AND s.value = $2::uuid::text
LIMIT 5
"""

_DELETE: Final = "DELETE FROM target_groups WHERE workspace_id = $1 AND id = $2"

_NETWORKS: Final = "SELECT allowed_networks::text[] FROM workspaces WHERE id = $1"

_NAMED: Final = """
SELECT t.id FROM targets t
WHERE t.workspace_id = $1 AND t.deleted_at IS NULL
  AND (t.id = ANY($3::uuid[]) OR t.value = ANY($4::text[]) OR t.tags && $5::text[])
"""

_UNKNOWN: Final = """
SELECT u.value FROM unnest($2::text[]) u (value)
WHERE NOT EXISTS (SELECT FROM targets t
                  WHERE t.workspace_id = $1 AND t.value = u.value AND t.deleted_at IS NULL)
"""

_ADD: Final = f"""
INSERT INTO target_group_members (workspace_id, group_id, target_id)
SELECT $1, $2, id FROM ({_NAMED}) named
ON CONFLICT DO NOTHING
"""

_REMOVE: Final = f"""
DELETE FROM target_group_members WHERE workspace_id = $1 AND group_id = $2 AND target_id IN ({_NAMED})
"""

_COUNTS: Final = f"""
SELECT (SELECT count(*)::int FROM target_group_members WHERE workspace_id = $1 AND group_id = $2) AS members,
       (SELECT count(*)::int FROM ({OF_GROUP}) inside) AS targets
"""


async def create_group(
    conn: Connection, workspace_id: UUID, name: str, tags: Sequence[str], created_by: str | None = None
) -> dict[str, object]:
    """Makes a group without members; with tags, whatever has all of them is in it.

    Raises:
        Invalid: `name.ambiguous`, `targets.tags`.
        Conflict: `group.duplicate`, the name is taken; `group.too_many`.
    """
    check_given_name(name)
    rule = _rule(tags)
    await conn.execute(_LOCK, f"groups/{workspace_id}")
    if await conn.fetchval(_COUNT, workspace_id) >= MAX_GROUPS:
        raise Conflict(f"a workspace has at most {MAX_GROUPS} groups", code="group.too_many")
    row = await conn.fetchrow(_INSERT, workspace_id, name, rule, created_by)
    if row is None:
        raise _duplicate()
    return await _counted(conn, row)


async def edit_group(
    conn: Connection, workspace_id: UUID, group_id: UUID, edit: GroupEdit
) -> dict[str, object]:
    """Renames a group or gives it another rule; what refers to it goes on to.

    Raises:
        NotFound: `group.not_found`.
        Stale: `etag.stale`, it was changed since that version.
        Invalid: `name.ambiguous`, `targets.tags`.
        Conflict: `group.duplicate`.
    """
    row = await _hold(conn, workspace_id, group_id)
    if row["version"] != edit.version:
        raise Stale(f"the group was changed: it is version {row['version']} now")
    name = edit.name or row["name"]
    check_given_name(name)
    rule = row["tags"] if edit.tags is None else _rule(edit.tags)
    await conn.execute(_LOCK, f"groups/{workspace_id}")
    if await conn.fetchval(_IS_TAKEN, workspace_id, name, group_id):
        raise _duplicate()
    (edited,) = await conn.fetch(_EDIT, workspace_id, group_id, name, rule)
    return await _counted(conn, edited)


async def delete_group(conn: Connection, workspace_id: UUID, group_id: UUID) -> dict[str, object]:
    """Deletes a group that nothing refers to; its targets and runs stay.

    Raises:
        NotFound: `group.not_found`.
        Conflict: `group.in_use`, a schedule, a blackout window, a rule of notifications or a project is about
            it: without it, more would be scanned or told than was meant, or less.
    """
    row = await _hold(conn, workspace_id, group_id)
    if users := [user["name"] for user in await conn.fetch(_USERS, workspace_id, group_id)]:
        raise Conflict(f"it is used by: {', '.join(users)}", code="group.in_use")
    answer = await _counted(conn, row)
    await conn.execute(_DELETE, workspace_id, group_id)
    return answer


async def add_members(
    conn: Connection, workspace_id: UUID, group_id: UUID, members: Members
) -> dict[str, object]:
    """Takes targets into a group in one statement, however many; those in it already stay.

    Raises:
        NotFound: `group.not_found`; `target.not_found`, with those that are not there: then none is taken in.
        Invalid: `group.no_member`, nothing was said.
    """
    row = await _hold(conn, workspace_id, group_id)
    values = await _spellings(conn, workspace_id, members)
    missing = [str(each) for each in await missing_targets(conn, workspace_id, members.targets)]
    missing += [each["value"] for each in await conn.fetch(_UNKNOWN, workspace_id, values)]
    if missing:
        detail = f"{len(missing)} are no targets of this workspace: {', '.join(sorted(missing)[:5])}"
        raise NotFound(detail, code="target.not_found", fields={"targets": detail})
    return await _change_members(conn, row, _ADD, (members, values))


async def remove_members(
    conn: Connection, workspace_id: UUID, group_id: UUID, members: Members
) -> dict[str, object]:
    """Takes members out of a group; what is not in it is passed over. What its rule takes in stays in.

    Raises:
        NotFound: `group.not_found`.
        Invalid: `group.no_member`.
    """
    row = await _hold(conn, workspace_id, group_id)
    values = await _spellings(conn, workspace_id, members)
    return await _change_members(conn, row, _REMOVE, (members, values))


async def get_group(conn: Connection, workspace_id: UUID, group_id: UUID) -> dict[str, object]:
    """A group with how many members it has, and how many targets are in it with those of its rule.

    Raises:
        NotFound: `group.not_found`.
    """
    row = await conn.fetchrow(_FIND, workspace_id, group_id)
    if row is None:
        raise NotFound("no such group", code="group.not_found")
    return await _counted(conn, row)


async def list_groups(conn: AsyncConnection, workspace_id: UUID, page: PageRequest) -> Page:
    """Groups of a workspace."""
    statement = select(target_groups).where(target_groups.c.workspace_id == workspace_id)
    return await fetch_page(conn, statement, ORDERS, page)


async def list_targets_of(
    conn: AsyncConnection, workspace_id: UUID, group_id: UUID, page: PageRequest
) -> Page:
    """Targets that are in a group now."""
    of_group = (target_groups.c.workspace_id == workspace_id, target_groups.c.id == group_id)
    rule = select(target_groups.c.tags).where(*of_group).scalar_subquery()
    members = select(target_group_members.c.target_id).where(
        target_group_members.c.workspace_id == workspace_id, target_group_members.c.group_id == group_id
    )
    fits = (func.cardinality(rule) > 0) & targets.c.tags.contains(rule)
    statement = select(targets).where(
        targets.c.workspace_id == workspace_id,
        targets.c.deleted_at.is_(None),
        or_(targets.c.id.in_(members), fits),
    )
    return await fetch_page(conn, statement, MEMBER_ORDERS, page)


async def _hold(conn: Connection, workspace_id: UUID, group_id: UUID) -> Record:
    row = await conn.fetchrow(_HOLD, workspace_id, group_id)
    if row is None:
        raise NotFound("no such group", code="group.not_found")
    return row


async def _spellings(conn: Connection, workspace_id: UUID, members: Members) -> list[str]:
    """What is said by spelling, in the one spelling of a target; what can be none is kept, and not found."""
    if not (members.targets or members.values or members.tags):
        raise Invalid("say targets, values or tags", code="group.no_member", fields={"targets": "empty"})
    networks = await conn.fetchval(_NETWORKS, workspace_id) or ()
    return await to_thread(_spelt, members.values, networks)  # others have their turn meanwhile


def _spelt(values: Sequence[str], networks: Sequence[str]) -> list[str]:
    found = []
    for value in values:
        try:
            found.append(parse_target(value, networks).value)
        except Invalid:
            found.append(value)
    return found


async def _change_members(
    conn: Connection, row: Record, statement: str, said: tuple[Members, Sequence[str]]
) -> dict[str, object]:
    members, values = said
    workspace_id, group_id = row["workspace_id"], row["id"]
    which = (list(members.targets), list(values), list(members.tags))
    changed = int((await conn.execute(statement, workspace_id, group_id, *which)).rpartition(" ")[2])
    if not changed:
        return await _counted(conn, row) | {"changed": 0}
    (touched,) = await conn.fetch(_TOUCH, workspace_id, group_id)
    return await _counted(conn, touched) | {"changed": changed}


async def _counted(conn: Connection, row: Record | Mapping[str, object]) -> dict[str, object]:
    counts = await conn.fetchrow(_COUNTS, row["workspace_id"], row["id"])
    return {**row, **(counts or {})}


def _rule(tags: Sequence[str]) -> list[str]:
    return sorted(set(check_tags(tags)))


def _duplicate() -> Conflict:
    detail = "there is a group of that name"
    return Conflict(detail, code="group.duplicate", fields={"name": detail})
