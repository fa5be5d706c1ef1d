"""The rows of limits: who may have how much. What they do to dispatch and claims: `runlane.db.limits`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import nudges
from runlane.db.acts import Act, Action
from runlane.db.guards import IN_PROGRESS, LIVE_JOB
from runlane.db.limits import scope_of, uses_of_limits
from runlane.db.pool import Connection, Record
from runlane.db.rule_deeds import RuleDeed, tell
from runlane.errors import Invalid, NotFound

MAX_LIMIT: Final = 1_000_000
"""Largest number of a limit; more is as good as none."""


@dataclass(frozen=True, slots=True)
class NewLimit:
    """What is limited, and to how much; None of both: no limit is meant and it is refused.

    `workspace_id` None: of a tool set in all workspaces together.
    """

    workspace_id: UUID | None
    toolset: str | None
    max_in_progress: int | None
    per_minute: int | None


_COLUMNS: Final = "id, workspace_id, toolset, max_in_progress, per_minute, created_at"

_SET: Final = f"""
INSERT INTO limits (workspace_id, toolset, max_in_progress, per_minute) VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace_id, toolset)
DO UPDATE SET max_in_progress = excluded.max_in_progress, per_minute = excluded.per_minute
RETURNING {_COLUMNS}, old.id IS NULL AS is_new,
  (old.max_in_progress, old.per_minute) IS NOT DISTINCT FROM (new.max_in_progress, new.per_minute) AS is_same
"""

# What is in progress already counts from the start, or a new limit would allow as much again.
_COUNT_RUNNING: Final = f"""
INSERT INTO limit_claims (limit_id, workspace_id, job_id, attempt, claimed_at)
SELECT $1, j.workspace_id, j.id, j.attempt, j.picked_at FROM jobs j
WHERE j.{LIVE_JOB} AND j.status = {IN_PROGRESS} AND ($2::uuid IS NULL OR j.workspace_id = $2)
  AND ($3::text IS NULL OR j.toolset = $3)
ON CONFLICT DO NOTHING
"""

_LIST: Final = f"""
SELECT {_COLUMNS} FROM limits
WHERE workspace_id = $1 OR workspace_id IS NULL
ORDER BY workspace_id NULLS FIRST, toolset NULLS FIRST
"""

_REMOVE: Final = f"""
DELETE FROM limits WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2 RETURNING {_COLUMNS}
"""

_IS_TOOLSET: Final = "SELECT EXISTS (SELECT FROM tools WHERE toolset = $1)"


async def set_limit(conn: Connection, wanted: NewLimit, act: Act) -> Mapping[str, object]:
    """Sets what a workspace, a tool set in it or a tool set everywhere may have. Repeatable.

    Raises:
        Invalid: `limit.empty`, neither number was given; `toolset.unknown`.
    """
    if wanted.max_in_progress is None and wanted.per_minute is None:
        detail = "say how many may be in progress, how many may be claimed a minute, or both"
        raise Invalid(detail, code="limit.empty", fields={"max_in_progress": detail})
    if wanted.toolset is not None and not await conn.fetchval(_IS_TOOLSET, wanted.toolset):
        raise Invalid("no tool is in that set", code="toolset.unknown", fields={"toolset": "unknown"})
    where = (wanted.workspace_id, wanted.toolset)
    (row,) = await conn.fetch(_SET, *where, wanted.max_in_progress, wanted.per_minute)
    if row["is_new"]:
        await conn.execute(_COUNT_RUNNING, row["id"], *where)
    if row["is_new"] or not row["is_same"]:
        await _follow_up(conn, row, act, Action.LIMIT)
    return dict(row)


async def remove_limit(
    conn: Connection, workspace_id: UUID | None, limit_id: UUID, act: Act
) -> Mapping[str, object]:
    """Removes a limit; a limit of a tool set everywhere is not one of a workspace.

    Raises:
        NotFound: `limit.not_found`.
    """
    row = await conn.fetchrow(_REMOVE, limit_id, workspace_id)
    if row is None:
        raise NotFound("no such limit", code="limit.not_found")
    await _follow_up(conn, row, act, Action.LIMIT_REMOVE)
    return dict(row)


async def list_limits(conn: Connection, workspace_id: UUID | None) -> list[dict[str, object]]:
    """Limits that count in a workspace, and what is used of each; None: those of tool sets everywhere."""
    rows = await conn.fetch(_LIST, workspace_id)
    uses = await uses_of_limits(conn, [row["id"] for row in rows])
    return [{**row, **uses[row["id"]]} for row in rows]


async def _follow_up(conn: Connection, row: Record, act: Act, action: Action) -> None:
    """Nudges runs that may have waited for it, and says who did it in each workspace that it concerns."""
    await nudges.nudge_blocked(conn, row["workspace_id"])
    numbers = f"{row['max_in_progress'] or '-'} in progress, {row['per_minute'] or '-'} a minute"
    value = f"{scope_of(row)}: {numbers}"
    await tell(conn, act, RuleDeed(action, row["workspace_id"], names.limit_subject(row["id"]), value))
