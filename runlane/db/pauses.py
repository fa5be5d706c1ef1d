"""Pauses: a person stops dispatch of a run, a tool set, a workspace or everything; what runs is finished.

A pause is a row until it is lifted. Dispatch takes no job that one covers, and a claim gives back what had
been dispatched already, uncharged. Whoever sets or lifts one nudges the workflows that it concerns: a paused
one sleeps until then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import nudges, outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.pool import Connection, Record
from runlane.db.workspaces import concerned_by
from runlane.errors import Conflict, Invalid, NotFound
from runlane.waiting import PauseScope


@dataclass(frozen=True, slots=True)
class NewPause:
    """What to stop. `workspace_id` None: everything, in every workspace."""

    workspace_id: UUID | None
    run_id: UUID | None = None
    toolset: str | None = None

    @property
    def scope(self) -> PauseScope:
        """What it stops."""
        if self.workspace_id is None:
            return PauseScope.PLATFORM
        if self.run_id is not None:
            return PauseScope.RUN
        return PauseScope.WORKSPACE if self.toolset is None else PauseScope.TOOLSET


@dataclass(frozen=True, slots=True)
class Paused:
    """A pause as its row has it, and whether this call made it so."""

    row: Mapping[str, object]
    is_changed: bool


def covers(workspace: str, run: str, toolset: str) -> str:
    """SQL: an active pause `p` covers what is of this workspace, run and tool set (expressions)."""
    return (
        f"p.lifted_at IS NULL AND (p.workspace_id IS NULL OR p.workspace_id = {workspace})"
        f" AND (p.run_id IS NULL OR p.run_id = {run}) AND (p.toolset IS NULL OR p.toolset = {toolset})"
    )


def is_paused(workspace: str, run: str, toolset: str) -> str:
    """SQL: whether some active pause covers a job of this workspace, run and tool set."""
    return f"EXISTS (SELECT FROM pauses p WHERE {covers(workspace, run, toolset)})"


def any_in(workspace: str) -> str:
    """SQL: whether a workspace (an expression) has active pauses, those of the platform included."""
    return (
        "EXISTS (SELECT FROM pauses p WHERE p.lifted_at IS NULL"
        f" AND (p.workspace_id IS NULL OR p.workspace_id = {workspace}))"
    )


_COLUMNS: Final = (
    "id, scope, workspace_id, run_id, toolset, reason, created_by, created_at, lifted_at, lifted_by"
)

_INSERT: Final = f"""
INSERT INTO pauses (scope, workspace_id, run_id, toolset, reason, created_by) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (workspace_id, run_id, toolset) WHERE lifted_at IS NULL DO NOTHING
RETURNING {_COLUMNS}
"""

_ACTIVE: Final = f"""
SELECT {_COLUMNS} FROM pauses
WHERE workspace_id IS NOT DISTINCT FROM $1 AND run_id IS NOT DISTINCT FROM $2
  AND toolset IS NOT DISTINCT FROM $3 AND lifted_at IS NULL
"""

_LIFT: Final = f"""
UPDATE pauses SET lifted_at = clock_timestamp(), lifted_by = $3
WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND lifted_at IS NULL
RETURNING {_COLUMNS}
"""

_FIND: Final = f"SELECT {_COLUMNS} FROM pauses WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2"

_LIST: Final = f"""
SELECT {_COLUMNS} FROM pauses
WHERE lifted_at IS NULL AND (workspace_id = $1 OR workspace_id IS NULL)
ORDER BY id
"""

_RUN: Final = "SELECT closed_at FROM job_histories WHERE workspace_id = $1 AND id = $2 FOR NO KEY UPDATE"

_IS_TOOLSET: Final = "SELECT EXISTS (SELECT FROM tools WHERE toolset = $1)"

_CONCERNED: Final = """
SELECT h.id FROM job_histories h
WHERE h.closed_at IS NULL AND ($1::uuid IS NULL OR h.workspace_id = $1) AND ($2::uuid IS NULL OR h.id = $2)
  AND ($3::text IS NULL OR EXISTS (
    SELECT FROM run_steps s JOIN tools t ON t.id = s.tool_id
    WHERE s.run_id = h.id AND s.closed_at IS NULL AND t.toolset = $3))
ORDER BY h.id
"""


async def pause(conn: Connection, wanted: NewPause, act: Act) -> Paused:
    """Stops dispatch; what is paused so already stays so, with the reason that it has.

    Raises:
        NotFound: `run.not_found`.
        Conflict: `run.closed`, nothing of it will be dispatched anyway.
        Invalid: `toolset.unknown`.
    """
    if wanted.run_id is not None:
        await _require_open_run(conn, wanted)
    if wanted.toolset is not None and not await conn.fetchval(_IS_TOOLSET, wanted.toolset):
        raise Invalid("no tool is in that set", code="toolset.unknown", fields={"toolset": "unknown"})
    where = (wanted.workspace_id, wanted.run_id, wanted.toolset)
    row = await conn.fetchrow(_INSERT, wanted.scope, *where, act.clean_reason, act.name)
    if row is None:
        found = await conn.fetchrow(_ACTIVE, *where)
        if found is None:  # lifted in between
            raise Conflict("the pause was lifted just now", code="pause.lifted")
        return Paused(dict(found), is_changed=False)
    await _follow_up(conn, row, act, Action.PAUSE)
    return Paused(dict(row), is_changed=True)


async def lift(conn: Connection, workspace_id: UUID | None, pause_id: UUID, act: Act) -> Paused:
    """Lets dispatch go on, unless another pause still stops it; one that was lifted before stays so.

    Raises:
        NotFound: `pause.not_found`; a pause of everything is not one of a workspace.
    """
    row = await conn.fetchrow(_LIFT, pause_id, workspace_id, act.name)
    if row is None:
        found = await conn.fetchrow(_FIND, pause_id, workspace_id)
        if found is None:
            raise NotFound("no such pause", code="pause.not_found")
        return Paused(dict(found), is_changed=False)
    await _follow_up(conn, row, act, Action.PAUSE_LIFT)
    return Paused(dict(row), is_changed=True)


async def lift_of_run(conn: Connection, workspace_id: UUID, run_id: UUID, act: Act) -> bool:
    """Lifts the pause of a run; False when it had none."""
    row = await conn.fetchrow(_ACTIVE, workspace_id, run_id, None)
    return row is not None and (await lift(conn, workspace_id, row["id"], act)).is_changed


async def active(conn: Connection, workspace_id: UUID | None) -> list[dict[str, object]]:
    """Pauses that are in force in a workspace, those of everything included; None: only these."""
    return [dict(row) for row in await conn.fetch(_LIST, workspace_id)]


async def _require_open_run(conn: Connection, wanted: NewPause) -> None:
    run = await conn.fetchrow(_RUN, wanted.workspace_id, wanted.run_id)
    if run is None:
        raise NotFound("no such run", code="run.not_found")
    if run["closed_at"] is not None:
        raise Conflict("the run is closed", code="run.closed")


async def _follow_up(conn: Connection, row: Record, act: Act, action: Action) -> None:
    """Nudges the runs that a pause concerns, and says who did it in each workspace that it stops."""
    workspace_id, toolset = row["workspace_id"], row["toolset"]
    runs = await conn.fetch(_CONCERNED, workspace_id, row["run_id"], toolset)
    if runs:
        await nudges.nudge_runs(conn, [run["id"] for run in runs])
    workspaces = await concerned_by(conn, workspace_id)
    subject = names.pause_subject(row["id"])
    value = f"{row['scope']} {toolset}" if toolset else str(row["scope"])
    deeds = [
        Deed(action, each, subject, ordinal=str(each), run_id=row["run_id"], value=value)
        for each in workspaces
    ]
    await outbox.insert(conn, [acted(act, deed) for deed in deeds])
