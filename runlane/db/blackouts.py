"""Blackout windows of a workspace or a target: jobs wait until the window closes, what runs is finished.

Dispatch and claim ask for the windows that are open, and put off (`due_at`) the pending jobs that one covers.
So a held job costs no look of its workflow until then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from runlane import names
from runlane.blackouts import Once, Weekly, check_window, open_until
from runlane.db import nudges, outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.guards import LIVE_JOB, PENDING
from runlane.db.pool import Connection, Record
from runlane.errors import Conflict, NotFound

MAX_WINDOWS: Final = 100
"""Of a workspace."""


@dataclass(frozen=True, slots=True)
class NewWindow:
    """When nothing may begin, and for which target; None: for all of the workspace."""

    workspace_id: UUID
    when: Weekly | Once
    target_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """A window that is open now."""

    until: datetime
    target_id: UUID | None
    reason: str | None

    @property
    def text(self) -> str:
        """What it says to those who wait."""
        why = f": {self.reason}" if self.reason else ""
        return f"blackout until {self.until:%Y-%m-%d %H:%M:%S} UTC{why}"


_COLUMNS: Final = """id, target_id, starts_at, ends_at, weekdays, begins, ends, time_zone, reason, created_by,
  created_at"""

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('blackouts/' || $1::uuid::text, 0))"

_COUNT: Final = "SELECT count(*) FROM blackout_windows WHERE workspace_id = $1"

_INSERT: Final = f"""
INSERT INTO blackout_windows (workspace_id, target_id, starts_at, ends_at, weekdays, begins, ends, time_zone,
                              reason, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
RETURNING {_COLUMNS}
"""

_LIST: Final = f"SELECT {_COLUMNS} FROM blackout_windows WHERE workspace_id = $1 ORDER BY id"

_REMOVE: Final = f"DELETE FROM blackout_windows WHERE workspace_id = $1 AND id = $2 RETURNING {_COLUMNS}"

_IS_TARGET: Final = """
SELECT EXISTS (SELECT FROM targets WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL)
"""

_NOW: Final = "SELECT statement_timestamp()"

_OPEN_RUNS: Final = "SELECT id FROM job_histories WHERE workspace_id = $1 AND closed_at IS NULL ORDER BY id"

_OPEN: Final = f"{LIVE_JOB} AND status = {PENDING} AND ($2::uuid IS NULL OR target_id = $2)"


def _hold(which: str) -> str:
    return f"""
UPDATE jobs SET due_at = $1, dispatch_id = NULL
WHERE (id, workspace_id) IN (
  SELECT id, workspace_id FROM jobs WHERE {which} AND {_OPEN} AND due_at < $1 FOR UPDATE SKIP LOCKED
)
"""


_HOLD_STEP: Final = _hold("run_id = $3 AND step_id = $4 AND dispatch_id IS NULL")
_HOLD_DISPATCHED: Final = _hold("dispatch_id = $3")

_IS_HELD: Final = f"""
SELECT EXISTS (SELECT FROM jobs
               WHERE run_id = $3 AND step_id = $4 AND dispatch_id IS NULL AND {_OPEN} AND due_at = $1)
"""

_FREE: Final = f"""
UPDATE jobs SET due_at = clock_timestamp()
WHERE workspace_id = $3 AND dispatch_id IS NULL AND {_OPEN} AND due_at = $1
"""


async def add_window(conn: Connection, wanted: NewWindow, act: Act) -> Mapping[str, object]:
    """Adds a window and has open runs look at it, in one transaction of the caller.

    Raises:
        Invalid: `blackout.order`, `blackout.weekdays`, `blackout.time_zone`.
        NotFound: `target.not_found`.
        Conflict: `blackout.too_many`.
    """
    when, workspace_id = wanted.when, wanted.workspace_id
    check_window(when)
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
    (row,) = await conn.fetch(
        _INSERT, workspace_id, wanted.target_id, *once, *weekly, act.clean_reason, act.name
    )
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
        await conn.execute(_FREE, until, row["target_id"], workspace_id)
    return dict(row)


async def list_windows(conn: Connection, workspace_id: UUID) -> Sequence[Mapping[str, object]]:
    """Windows of a workspace."""
    return [dict(row) for row in await conn.fetch(_LIST, workspace_id)]


async def open_windows(conn: Connection, workspace_id: UUID) -> Sequence[OpenWindow]:
    """Windows that are open now, by the database's clock; the one that closes last first."""
    rows = await conn.fetch(_LIST, workspace_id)
    if not rows:
        return ()
    now = await conn.fetchval(_NOW)
    found = [(open_until(_when(row), now), row) for row in rows]
    windows = [
        OpenWindow(until, row["target_id"], row["reason"]) for until, row in found if until is not None
    ]
    return sorted(windows, key=lambda window: window.until, reverse=True)


async def hold_step(conn: Connection, workspace_id: UUID, run_id: UUID, step_id: str) -> Sequence[str]:
    """Puts off what an open window covers of a step, and says what its jobs wait for. Uses `jobs_live`."""
    held = []
    for window in await open_windows(conn, workspace_id):
        which = (window.until, window.target_id, run_id, step_id)
        await conn.execute(_HOLD_STEP, *which)
        if await conn.fetchval(_IS_HELD, *which):
            held.append(window.text)
    return held


async def hold_dispatched(conn: Connection, workspace_id: UUID, dispatch_id: UUID) -> None:
    """Takes what an open window covers out of a batch and puts it off. By `jobs_dispatched`."""
    for window in await open_windows(conn, workspace_id):
        await conn.execute(_HOLD_DISPATCHED, window.until, window.target_id, dispatch_id)


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
