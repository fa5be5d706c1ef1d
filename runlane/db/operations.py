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
from runlane.db import nudges, operation_rows, outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.cancel import CAUSE_RUN, CAUSE_STEP, cancel_jobs
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection, Record
from runlane.db.tables import operations
from runlane.errors import Conflict, Invalid, NotFound
from runlane.events import Actor

CAUSES: Final = {
    Action.JOBS_CANCEL: "operation",
    Action.RUN_CANCEL: CAUSE_RUN,
    Action.STEP_CANCEL: CAUSE_STEP,
}
"""What an operation may do, and the `cause` attribute of events that it brings about, job by job."""

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

# Of a run or step that is cancelled: it is closed, and gets no more jobs.
_LEFT: Final = """
SELECT id, run_id FROM jobs
WHERE run_id = $1 AND ($2::text IS NULL OR step_id = $2) AND completed_at IS NULL
LIMIT $3
"""

_MOVE: Final = """
UPDATE operations
SET matched = matched + $2, changed = changed + $3, moved_at = clock_timestamp(),
  finished_at = CASE WHEN $4 THEN clock_timestamp() END
WHERE id = $1
RETURNING *
"""

_ABORT: Final = f"""
UPDATE operations SET finished_at = clock_timestamp(), is_aborted = true
WHERE workspace_id = $1 AND id = $2 AND finished_at IS NULL AND action = '{Action.JOBS_CANCEL}'
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
    row = await operation_rows.write(conn, workspace_id, Action.JOBS_CANCEL, which.as_json(), act)
    await outbox.insert(conn, [acted(act, _deed(row, Action.JOBS_CANCEL))])
    moved = await _advance(conn, row)
    if moved["finished_at"] is None:
        await operation_rows.call(conn)
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
        Conflict: `operation.finished`; `operation.final`, the run or step is cancelled, and so are its jobs.
    """
    row = await conn.fetchrow(_ABORT, workspace_id, operation_id)
    if row is not None:
        await outbox.insert(conn, [acted(act, _deed(row, Action.JOBS_CANCEL_ABORT))])
        return dict(row)
    found = await conn.fetchrow(_FIND, workspace_id, operation_id)
    if found is None:
        raise NotFound("no such operation", code="operation.not_found")
    if found["action"] != Action.JOBS_CANCEL:
        raise Conflict("the cancel of a run or step is final", code="operation.final")
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
    """One chunk: finds jobs unlocked, nudges their workflows, then locks and cancels what is still live.

    The workflow of a run or step that is cancelled was told at once, and is again when all is done.
    """
    action, which = Action(row["action"]), row["filter"]
    found = await _find(conn, row)
    is_done = len(found) < operation_rows.CHUNK
    concerned = {job["run_id"] for job in found}
    if action is not Action.JOBS_CANCEL:
        concerned = {UUID(which["run_id"])} if is_done else set()
    await nudges.nudge_runs(conn, sorted(concerned))
    actor = Actor(**row["actor"]) if row["actor"] else None
    act = Act(actor, row["created_by"], row["reason"])
    ids = [job["id"] for job in found]
    changed = await cancel_jobs(conn, row["workspace_id"], ids, act, cause=CAUSES[action])
    moved = await conn.fetchrow(_MOVE, row["id"], len(found), changed, is_done)
    return moved if moved is not None else row


async def _find(conn: Connection, row: Record) -> list[Record]:
    """The next jobs of an operation that have not ended, unlocked. Index: `jobs_live`."""
    which = row["filter"]
    run_id, step_id = which.get("run_id"), which.get("step_id")
    if row["action"] != Action.JOBS_CANCEL:
        return await conn.fetch(_LEFT, run_id, step_id, operation_rows.CHUNK)
    return await conn.fetch(
        _MATCH,
        row["workspace_id"],
        run_id,
        step_id,
        which.get("tool_id"),
        which.get("target_id"),
        which.get("status"),
        row["as_of"],
        operation_rows.CHUNK,
    )


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
