"""Selections: the targets that a run or a schedule is about: single ones, groups and tags, in any mix.

What is selected is what any of them names. It is decided by statements when a run starts, and written as the
run's own targets: a selection of 100,000 is rows, and no process holds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection
from runlane.errors import NotFound


@dataclass(frozen=True, slots=True)
class Selection:
    """Targets by id, groups by id, and tags; what is deleted by then is left out."""

    targets: Sequence[UUID] = ()
    groups: Sequence[UUID] = ()
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Where the targets of a run come from: a query of `target_id`.

    `$1` is the workspace, `$3` the first value. `taken` is a statement that the query reads from.
    """

    query: str
    values: tuple[object, ...]
    taken: str | None = None


def in_group(target: str, group: str) -> str:
    """SQL: whether a target (the alias of its row) is in the group of this id (an expression)."""
    return f"""EXISTS (
  SELECT FROM target_groups g
  WHERE g.workspace_id = {target}.workspace_id AND g.id = {group}
    AND (g.tags <> '{{}}' AND {target}.tags @> g.tags OR EXISTS (
      SELECT FROM target_group_members m WHERE m.group_id = g.id AND m.target_id = {target}.id)))"""


_OF_GROUPS: Final = """
SELECT t.id AS target_id FROM target_groups g
JOIN target_group_members m ON m.group_id = g.id
JOIN targets t ON t.id = m.target_id AND t.deleted_at IS NULL
WHERE g.workspace_id = $1 AND g.id = ANY({value}::uuid[])
UNION
SELECT t.id FROM target_groups g
JOIN targets t ON t.workspace_id = g.workspace_id AND t.tags @> g.tags AND t.deleted_at IS NULL
WHERE g.workspace_id = $1 AND g.id = ANY({value}::uuid[]) AND g.tags <> '{{}}'
"""

_BY_ID: Final = """
SELECT id AS target_id FROM targets
WHERE workspace_id = $1 AND id = ANY({value}::uuid[]) AND deleted_at IS NULL
"""

_BY_TAG: Final = """
SELECT id AS target_id FROM targets
WHERE workspace_id = $1 AND tags && {value}::text[] AND deleted_at IS NULL
"""

_OF_RUN: Final = """
SELECT r.target_id FROM run_targets r
JOIN targets t ON t.id = r.target_id AND t.deleted_at IS NULL
WHERE r.workspace_id = $1 AND r.run_id = $3
"""

OF_GROUP: Final = _OF_GROUPS.format(value="ARRAY[$2::uuid]")
"""Targets of one group: `$1` the workspace, `$2` the group."""

_MISSING: Final = """
SELECT id FROM unnest($2::uuid[]) u (id)
WHERE NOT EXISTS (SELECT FROM targets t WHERE t.workspace_id = $1 AND t.id = u.id AND t.deleted_at IS NULL)
"""

_GROUPS: Final = """
SELECT u.name, g.id FROM unnest($2::text[]) u (name)
LEFT JOIN target_groups g ON g.workspace_id = $1 AND (g.name = u.name OR g.id::text = lower(u.name))
"""

_KEEP: Final = """
SELECT id FROM target_groups WHERE workspace_id = $1 AND id = ANY($2::uuid[]) ORDER BY id FOR KEY SHARE
"""


def selected(selection: Selection) -> Source:
    """The targets of a selection; what it does not say costs nothing."""
    said: list[tuple[str, list[UUID] | list[str]]] = [(_BY_ID, list(selection.targets))]
    if selection.tags:
        said.append((_BY_TAG, list(selection.tags)))
    if selection.groups:
        said.append((_OF_GROUPS, list(selection.groups)))
    query = "UNION".join(part.format(value=f"${number}") for number, (part, _) in enumerate(said, 3))
    return Source(query, tuple(values for _, values in said))


def of_run(run_id: UUID) -> Source:
    """The targets of another run that are still there."""
    return Source(_OF_RUN, (run_id,))


async def missing_targets(conn: Connection, workspace_id: UUID, target_ids: Sequence[UUID]) -> list[UUID]:
    """Those of these targets that are not in the workspace."""
    if not target_ids:
        return []
    return [row["id"] for row in await conn.fetch(_MISSING, workspace_id, list(target_ids))]


async def find_groups(conn: Connection, workspace_id: UUID, groups: Sequence[str]) -> list[UUID]:
    """Ids of groups that are named, or said by id.

    Raises:
        NotFound: `group.not_found`, with those that are not there.
    """
    if not groups:
        return []
    rows = await conn.fetch(_GROUPS, workspace_id, list(groups))
    if missing := sorted({row["name"] for row in rows if row["id"] is None}):
        detail = f"no such group: {', '.join(missing[:5])}"
        raise NotFound(detail, code="group.not_found", fields={"groups": detail})
    return sorted({row["id"] for row in rows})


async def keep_groups(conn: Connection, workspace_id: UUID, groups: Sequence[str]) -> list[UUID]:
    """The same for what goes on to be about them: none is deleted until the caller's transaction has ended.

    Raises:
        NotFound: `group.not_found`.
    """
    found = await find_groups(conn, workspace_id, groups)
    if found and len(await conn.fetch(_KEEP, workspace_id, found)) < len(found):
        return await find_groups(conn, workspace_id, groups)  # says which was deleted meanwhile
    return found
