"""Operations: one act of a person on all jobs that fit a filter, as a row with its progress.

What fits is frozen by `as_of`: a job written later is not touched. The work is done chunk by chunk, each in a
transaction of its own. A job that was touched does not fit any more: no row is touched twice, nothing but the
counts has to be remembered, and whoever dies in the middle leaves the rest to the next. Several may carry
operations on: each takes one that nobody holds.
"""

from dataclasses import asdict, dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.db import nudges, outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.cancel import cancel_jobs
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection, Record
from runlane.db.tables import operations
from runlane.errors import Conflict, Invalid, NotFound
from runlane.events import Actor

CHUNK: Final = 1_000
"""Jobs of one transaction."""

CAUSE: Final = "operation"
"""Value of the `cause` attribute of events that an operation brought about, job by job."""

ORDERS: Final[Orders] = {"created_at": (operations.c.id,)}


@dataclass(frozen=True, slots=True)
class Which:
    """Which jobs that have not ended; an empty field is no condition, all empty is refused."""

    run_id: UUID | None = None
    step_id: str | None = None
    tool_id: str | None = None
    target_id: UUID | None = None
    status: str | None = None

    def as_json(self) -> dict[str, str]:
        """The form that is kept on the row."""
        return {name: str(value) for name, value in asdict(self).items() if value is not None}


_INSERT: Final = """
INSERT INTO operations (workspace_id, action, filter, reason, created_by, actor)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING *
"""

_NEXT: Final = """
SELECT * FROM operations WHERE finished_at IS NULL ORDER BY moved_at LIMIT 1 FOR UPDATE SKIP LOCKED
"""

# Live jobs are in open runs only. In no order: to sort what is left for every chunk costs more than all else.
_MATCH: Final = """
SELECT j.id, h.id AS run_id
FROM job_histories h
CROSS JOIN LATERAL (
  SELECT id FROM jobs
  WHERE run_id = h.id AND completed_at IS NULL
    AND ($3::text IS NULL OR step_id = $3) AND ($4::text IS NULL OR tool_id = $4)
    AND ($5::uuid IS NULL OR target_id = $5) AND ($6::text IS NULL OR status = $6) AND created_at <= $7
  LIMIT $8
) j
WHERE h.workspace_id = $1 AND h.closed_at IS NULL AND ($2::uuid IS NULL OR h.id = $2)
LIMIT $8
"""

_MOVE: Final = """
UPDATE operations
SET matched = matched + $2, changed = changed + $3, moved_at = clock_timestamp(),
  finished_at = CASE WHEN $4 THEN clock_timestamp() END
WHERE id = $1
RETURNING *
"""

_ABORT: Final = """
UPDATE operations SET finished_at = clock_timestamp(), is_aborted = true
WHERE workspace_id = $1 AND id = $2 AND finished_at IS NULL
RETURNING *
"""

_FIND: Final = "SELECT * FROM operations WHERE workspace_id = $1 AND id = $2"

_HAS_RUN: Final = "SELECT EXISTS (SELECT FROM job_histories WHERE workspace_id = $1 AND id = $2)"
_HAS_TARGET: Final = "SELECT EXISTS (SELECT FROM targets WHERE workspace_id = $1 AND id = $2)"


async def begin_cancel(conn: Connection, workspace_id: UUID, which: Which, act: Act) -> dict[str, object]:
    """Writes the cancel of all jobs that fit, does its first chunk, and wakes who carries it on.

    One transaction of the caller; answers the operation's row.

    Raises:
        Invalid: `filter.empty`: nothing said must not mean everything.
        NotFound: `run.not_found`, `target.not_found`.
    """
    if not which.as_json():
        raise Invalid("say which jobs", code="filter.empty", fields={"filter": "empty"})
    if which.run_id is not None and not await conn.fetchval(_HAS_RUN, workspace_id, which.run_id):
        raise NotFound("no such run", code="run.not_found")
    if which.target_id is not None and not await conn.fetchval(_HAS_TARGET, workspace_id, which.target_id):
        raise NotFound("no such target", code="target.not_found")
    actor = {"id": act.actor.id, "type": act.actor.type} if act.actor else None
    row = await conn.fetchrow(
        _INSERT, workspace_id, Action.JOBS_CANCEL, which.as_json(), act.clean_reason, act.name, actor
    )
    if row is None:
        raise NotFound("no such workspace", code="workspace.not_found")
    await outbox.insert(conn, [acted(act, _deed(row, Action.JOBS_CANCEL))])
    moved = await _advance(conn, row)
    if moved["finished_at"] is None:
        await conn.execute("SELECT pg_notify($1, '')", names.OPERATIONS_CHANNEL)
    return dict(moved)


async def advance(conn: Connection) -> bool:
    """Does one chunk of the operation that has waited longest, in one transaction of the caller.

    False: there is none that nobody else holds. Harmless to repeat: what was touched does not fit any more.
    """
    row = await conn.fetchrow(_NEXT)
    if row is None:
        return False
    await _advance(conn, row)
    return True


async def abort(conn: Connection, workspace_id: UUID, operation_id: UUID, act: Act) -> dict[str, object]:
    """Ends an operation before its time; what it has done stays done. A second call changes nothing.

    Raises:
        NotFound: `operation.not_found`.
        Conflict: `operation.finished`.
    """
    row = await conn.fetchrow(_ABORT, workspace_id, operation_id)
    if row is not None:
        await outbox.insert(conn, [acted(act, _deed(row, Action.JOBS_CANCEL_ABORT))])
        return dict(row)
    found = await conn.fetchrow(_FIND, workspace_id, operation_id)
    if found is None:
        raise NotFound("no such operation", code="operation.not_found")
    if not found["is_aborted"]:
        raise Conflict("the operation is finished", code="operation.finished")
    return dict(found)


async def get_operation(conn: Connection, workspace_id: UUID, operation_id: UUID) -> dict[str, object]:
    """One operation with its progress.

    Raises:
        NotFound: `operation.not_found`.
    """
    row = await conn.fetchrow(_FIND, workspace_id, operation_id)
    if row is None:
        raise NotFound("no such operation", code="operation.not_found")
    return dict(row)


async def list_operations(conn: AsyncConnection, workspace_id: UUID, page: PageRequest) -> Page:
    """Operations of a workspace. Index: `operations (workspace_id, id)`."""
    return await fetch_page(
        conn, select(operations).where(operations.c.workspace_id == workspace_id), ORDERS, page
    )


async def _advance(conn: Connection, row: Record) -> Record:
    """One chunk: finds jobs unlocked, nudges their workflows, then locks and cancels what is still live."""
    which = row["filter"]
    found = await conn.fetch(
        _MATCH,
        row["workspace_id"],
        which.get("run_id"),
        which.get("step_id"),
        which.get("tool_id"),
        which.get("target_id"),
        which.get("status"),
        row["as_of"],
        CHUNK,
    )
    changed = 0
    if found:
        await nudges.nudge_runs(conn, sorted({job["run_id"] for job in found}))
        actor = Actor(**row["actor"]) if row["actor"] else None
        act = Act(actor, row["created_by"], row["reason"])
        changed = await cancel_jobs(conn, row["workspace_id"], [job["id"] for job in found], act, cause=CAUSE)
    is_done = len(found) < CHUNK
    moved = await conn.fetchrow(_MOVE, row["id"], len(found), changed, is_done)
    return moved if moved is not None else row


def _deed(row: Record, action: Action) -> Deed:
    which = row["filter"]
    return Deed(
        action,
        row["workspace_id"],
        names.operation_subject(row["id"]),
        run_id=UUID(which["run_id"]) if "run_id" in which else None,
        step_id=which.get("step_id"),
        value=" ".join(f"{name}={value}" for name, value in which.items()),
    )
