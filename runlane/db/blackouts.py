"""Blackout windows of a workspace, a target, a group or a tag: jobs wait until the window closes.

Dispatch and claim ask for the windows that are open, and put off (`due_at`) the pending jobs that one covers.
So a held job costs no look of its workflow until then. What runs is finished, or given back: see
`runlane.db.interruptions`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from runlane import names
from runlane.blackouts import Once, Policy, Weekly, check_window, open_until
from runlane.db import nudges, outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.guards import LIVE_JOB, PENDING
from runlane.db.pool import Connection, Record
from runlane.db.selections import in_group, keep_groups
from runlane.errors import Conflict, Invalid, NotFound

MAX_WINDOWS: Final = 100
"""Of a workspace."""


@dataclass(frozen=True, slots=True)
class NewWindow:
    """When nothing may begin, and about what; nothing said: for all of the workspace."""

    workspace_id: UUID
    when: Weekly | Once
    target_id: UUID | None = None
    group: str | None = None
    """Name or id."""
    tag: str | None = None
    policy: Policy = Policy.FINISH


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """A window that is open now."""

    until: datetime
    target_id: UUID | None
    group_id: UUID | None
    tag: str | None
    policy: Policy
    reason: str | None

    @property
    def about(self) -> tuple[UUID | None, UUID | None, str | None]:
        """What it is about, as statements take it."""
        return self.target_id, self.group_id, self.tag

    @property
    def text(self) -> str:
        """What it says to those who wait."""
        why = f": {self.reason}" if self.reason else ""
        return f"blackout until {self.until:%Y-%m-%d %H:%M:%S} UTC{why}"


_COLUMNS: Final = """id, target_id, group_id, tag, policy, starts_at, ends_at, weekdays, begins, ends,
  time_zone, reason, created_by, created_at"""

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('blackouts/' || $1::uuid::text, 0))"

_COUNT: Final = "SELECT count(*) FROM blackout_windows WHERE workspace_id = $1"

_INSERT: Final = f"""
INSERT INTO blackout_windows (workspace_id, target_id, group_id, tag, policy, starts_at, ends_at, weekdays,
                              begins, ends, time_zone, reason, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
RETURNING {_COLUMNS}
"""

_LIST: Final = f"SELECT {_COLUMNS} FROM blackout_windows WHERE workspace_id = $1 ORDER BY id"

# Whoever puts jobs off by a window keeps it until its transaction ends, so that who removes it sees them.
_KEEP: Final = f"{_LIST} FOR KEY SHARE"

_REMOVE: Final = f"DELETE FROM blackout_windows WHERE workspace_id = $1 AND id = $2 RETURNING {_COLUMNS}"

_IS_TARGET: Final = """
SELECT EXISTS (SELECT FROM targets WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL)
"""

_NOW: Final = "SELECT statement_timestamp()"

_OPEN_RUNS: Final = "SELECT id FROM job_histories WHERE workspace_id = $1 AND closed_at IS NULL ORDER BY id"


def covers(job: str, *, first: int) -> str:
    """SQL: a window covers a job (the alias of its row); its target, group and tag are three parameters."""
    target, group, tag = (f"${first + number}" for number in range(3))
    return f"""(num_nonnulls({target}::uuid, {group}::uuid, {tag}::text) = 0 OR {job}.target_id = {target}
  OR num_nonnulls({group}::uuid, {tag}::text) > 0 AND EXISTS (
    SELECT FROM targets t
    WHERE t.workspace_id = {job}.workspace_id AND t.id = {job}.target_id
      AND (t.tags @> ARRAY[{tag}::text] OR {in_group("t", group)})))"""


_OPEN: Final = f"jobs.{LIVE_JOB} AND jobs.status = {PENDING}"
_COVERED: Final = covers("jobs", first=2)


def _hold(which: str) -> str:
    return f"""
UPDATE jobs SET due_at = $1, dispatch_id = NULL
WHERE (id, workspace_id) IN (
  SELECT id, workspace_id FROM jobs WHERE {which} AND {_OPEN} AND due_at < $1 AND {_COVERED}
  FOR UPDATE SKIP LOCKED
)
"""


_HOLD_STEP: Final = _hold("run_id = $5 AND step_id = $6 AND dispatch_id IS NULL")
_HOLD_DISPATCHED: Final = _hold("dispatch_id = $5")

_IS_HELD: Final = f"""
SELECT EXISTS (SELECT FROM jobs
               WHERE run_id = $5 AND step_id = $6 AND dispatch_id IS NULL AND {_OPEN} AND due_at = $1
                 AND {_COVERED})
"""

# Also what the window covers no more, since its target has left the group or lost the tag. What another one
# holds until the same moment is put off again when its run looks.
_FREE: Final = f"""
UPDATE jobs SET due_at = clock_timestamp()
WHERE workspace_id = $2 AND dispatch_id IS NULL AND {_OPEN} AND due_at = $1
"""


async def add_window(conn: Connection, wanted: NewWindow, act: Act) -> Mapping[str, object]:
    """Adds a window and has open runs look at it, in one transaction of the caller.

    Raises:
        Invalid: `blackout.order`, `blackout.weekdays`, `blackout.time_zone`, `blackout.about`.
        NotFound: `target.not_found`, `group.not_found`.
        Conflict: `blackout.too_many`.
    """
    when, workspace_id = wanted.when, wanted.workspace_id
    check_window(when)
    if sum(each is not None for each in (wanted.target_id, wanted.group, wanted.tag)) > 1:
        detail = "a window is about one target, one group, one tag or the whole workspace"
        raise Invalid(detail, code="blackout.about", fields={"target_id": detail})
    groups = await keep_groups(conn, workspace_id, [wanted.group] if wanted.group is not None else [])
    if wanted.target_id and not await conn.fetchval(_IS_TARGET, workspace_id, wanted.target_id):
        raise NotFound("no such target", code="target.not_found")
    await conn.execute(_LOCK, workspace_id)
    if await conn.fetchval(_COUNT, workspace_id) >= MAX_WINDOWS:
        raise Conflict(f"there are {MAX_WINDOWS} windows already", code="blackout.too_many")
    once = (when.starts_at, when.ends_at) if isinstance(when, Once) else (None, None)
    weekly = (
        (list(when.weekdays), when.begins, when.ends, when.time_zone)
        if isinstance(when, Weekly)
        else (None, None, None, None)
    )
    about = (wanted.target_id, groups[0] if groups else None, wanted.tag, wanted.policy)
    (row,) = await conn.fetch(_INSERT, workspace_id, *about, *once, *weekly, act.clean_reason, act.name)
    await _say(conn, workspace_id, row, act, Action.BLACKOUT)
    return dict(row)


async def remove_window(
    conn: Connection, workspace_id: UUID, window_id: UUID, act: Act
) -> Mapping[str, object]:
    """Removes a window; jobs that it held are due now.

    Raises:
        NotFound: `blackout.not_found`.
    """
    row = await conn.fetchrow(_REMOVE, workspace_id, window_id)
    if row is None:
        raise NotFound("no such window", code="blackout.not_found")
    until = open_until(_when(row), await conn.fetchval(_NOW))
    await _say(conn, workspace_id, row, act, Action.BLACKOUT_REMOVE)
    if until is not None:
        await conn.execute(_FREE, until, workspace_id)
    return dict(row)


async def list_windows(conn: Connection, workspace_id: UUID) -> Sequence[Mapping[str, object]]:
    """Windows of a workspace."""
    return [dict(row) for row in await conn.fetch(_LIST, workspace_id)]


async def open_windows(conn: Connection, workspace_id: UUID) -> Sequence[OpenWindow]:
    """Windows that are open now, by the database's clock; the one that closes last first."""
    return await _open_among(conn, await conn.fetch(_LIST, workspace_id))


async def keep_windows(conn: Connection, workspace_id: UUID) -> Sequence[OpenWindow]:
    """The same, to put jobs off by: none of them is removed before the transaction of the caller ends.

    To be called before any row of a run is locked: who removes a window holds it, and then waits for those.
    """
    return await _open_among(conn, await conn.fetch(_KEEP, workspace_id))


async def _open_among(conn: Connection, rows: Sequence[Record]) -> Sequence[OpenWindow]:
    if not rows:
        return ()
    now = await conn.fetchval(_NOW)
    found = [(open_until(_when(row), now), row) for row in rows]
    windows = [
        OpenWindow(
            until,
            row["target_id"],
            row["group_id"],
            row["tag"],
            Policy(row["policy"]),
            row["reason"],
        )
        for until, row in found
        if until is not None
    ]
    return sorted(windows, key=lambda window: window.until, reverse=True)


async def hold_step(conn: Connection, workspace_id: UUID, run_id: UUID, step_id: str) -> Sequence[str]:
    """Puts off what an open window covers of a step, and says what its jobs wait for. Uses `jobs_live`."""
    held = []
    for window in await keep_windows(conn, workspace_id):
        which = (window.until, *window.about, run_id, step_id)
        await conn.execute(_HOLD_STEP, *which)
        if await conn.fetchval(_IS_HELD, *which):
            held.append(window.text)
    return held


async def hold_dispatched(conn: Connection, workspace_id: UUID, dispatch_id: UUID) -> None:
    """Takes what an open window covers out of a batch and puts it off. By `jobs_dispatched`."""
    for window in await keep_windows(conn, workspace_id):
        await conn.execute(_HOLD_DISPATCHED, window.until, *window.about, dispatch_id)


def _when(row: Record) -> Weekly | Once:
    if row["weekdays"] is None:
        return Once(row["starts_at"], row["ends_at"])
    return Weekly(row["weekdays"], row["begins"], row["ends"], row["time_zone"])


async def _say(conn: Connection, workspace_id: UUID, row: Record, act: Act, action: Action) -> None:
    """Nudges the runs that are open, and says who did it."""
    runs = await conn.fetch(_OPEN_RUNS, workspace_id)
    if runs:
        await nudges.nudge_runs(conn, [run["id"] for run in runs])
    await outbox.insert(conn, [acted(act, Deed(action, workspace_id, names.blackout_subject(row["id"])))])
