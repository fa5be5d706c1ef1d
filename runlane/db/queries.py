"""What a person reads of runs, jobs and workers. Each query names its workspace, on top of row security."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane.db.engine import driver
from runlane.db.guards import IN_PROGRESS
from runlane.db.paging import Orders, Page, PageRequest, Statement, fetch_page
from runlane.db.tables import (
    job_attempts,
    job_error_logs,
    jobs,
    workers,
)
from runlane.errors import NotFound
from runlane.jobs import JobStatus

# Ids are drawn by the database in order of time, so a list by id is a list by creation.
JOB_ORDERS: Final[Orders] = {
    "created_at": (jobs.c.id,),
    "due_at": (jobs.c.due_at, jobs.c.id),
    "priority": (jobs.c.priority, jobs.c.id),
}
WORKER_ORDERS: Final[Orders] = {"joined_at": (workers.c.id,), "name": (workers.c.name, workers.c.id)}

_JOB_COLUMNS: Final = (
    jobs.c.id,
    jobs.c.run_id,
    jobs.c.step_id,
    jobs.c.tool_id,
    jobs.c.category,
    jobs.c.status,
    jobs.c.priority,
    jobs.c.target_id,
    jobs.c.asset_id,
    jobs.c.service_id,
    jobs.c.attempt,
    jobs.c.failures,
    jobs.c.free_attempts,
    jobs.c.reason,
    jobs.c.retry_of,
    jobs.c.worker_id,
    jobs.c.created_at,
    jobs.c.due_at,
    jobs.c.picked_at,
    jobs.c.completed_at,
)
_ATTEMPT_COLUMNS: Final = (
    job_attempts.c.attempt,
    job_attempts.c.worker_id,
    job_attempts.c.claimed_at,
    job_attempts.c.staged_at,
    job_attempts.c.ended_at,
    job_attempts.c.outcome,
    job_attempts.c.charged,
    job_attempts.c.summary,
    job_attempts.c.argv,
    job_attempts.c.tool_version,
)
_ERROR_COLUMNS: Final = (
    job_error_logs.c.attempt,
    job_error_logs.c.outcome,
    job_error_logs.c.message,
    job_error_logs.c.partial,
    job_error_logs.c.times,
    job_error_logs.c.created_at,
    job_error_logs.c.last_at,
)
_WORKER_COLUMNS: Final = (
    workers.c.id,
    workers.c.name,
    workers.c.status,
    workers.c.network_id,
    workers.c.drained_at,
    workers.c.toolsets,
    workers.c.slots,
    workers.c.tools,
    workers.c.version,
    workers.c.protocol,
    workers.c.token_issued_at,
    workers.c.rotation_asked_at,
    workers.c.beat_at,
    workers.c.stream_seen_at,
    workers.c.joined_at,
    workers.c.left_at,
    workers.c.not_polling,
    workers.c.not_polling_since,
)


_HELD: Final = f"""
SELECT count(*)::int FROM jobs
WHERE workspace_id = $1 AND worker_id = $2 AND completed_at IS NULL AND dispatch_id IS NOT NULL
  AND status = {IN_PROGRESS}
"""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a reader asks for; an empty field is no condition."""

    run_id: UUID | None = None
    step_id: str | None = None
    tool_id: str | None = None
    status: Sequence[JobStatus] = ()


async def list_jobs(conn: AsyncConnection, workspace_id: UUID, wanted: JobFilter, page: PageRequest) -> Page:
    """Jobs of a workspace. Index: `jobs (workspace_id, id)`, or `jobs (run_id, step_id, …)` for one run."""
    return await fetch_page(conn, _job_statement(workspace_id, wanted), JOB_ORDERS, page)


def _job_statement(workspace_id: UUID, wanted: JobFilter) -> Statement:
    conditions: list[ColumnElement[bool]] = [jobs.c.workspace_id == workspace_id]
    for column, value in (
        (jobs.c.run_id, wanted.run_id),
        (jobs.c.step_id, wanted.step_id),
        (jobs.c.tool_id, wanted.tool_id),
    ):
        if value is not None:
            conditions.append(column == value)
    if wanted.status:
        conditions.append(jobs.c.status.in_(wanted.status))
    return select(*_JOB_COLUMNS).where(*conditions)


async def get_job(conn: AsyncConnection, workspace_id: UUID, job_id: UUID) -> dict[str, object]:
    """One job with its input `spec`, `attempts` (first to last) and `errors` (one row per distinct error).

    Raises:
        NotFound: `job.not_found`.
    """
    of_job = (jobs.c.workspace_id == workspace_id, jobs.c.id == job_id)
    row = (await conn.execute(select(*_JOB_COLUMNS, jobs.c.spec).where(*of_job))).mappings().one_or_none()
    if row is None:
        raise NotFound("no such job", code="job.not_found")
    attempts = await conn.execute(
        select(*_ATTEMPT_COLUMNS)
        .where(job_attempts.c.workspace_id == workspace_id, job_attempts.c.job_id == job_id)
        .order_by(job_attempts.c.attempt)
    )
    errors = await conn.execute(
        select(*_ERROR_COLUMNS)
        .where(job_error_logs.c.workspace_id == workspace_id, job_error_logs.c.job_id == job_id)
        .order_by(job_error_logs.c.id)
    )
    return dict(row) | {
        "attempts": [dict(each) for each in attempts.mappings()],
        "errors": [dict(each) for each in errors.mappings()],
    }


async def get_worker(conn: AsyncConnection, workspace_id: UUID, worker_id: UUID) -> dict[str, object]:
    """One scan worker with the number of its jobs in progress; a deleted one too: attempts refer to it.

    Uses `jobs_dispatched`.

    Raises:
        NotFound: `worker.not_found`.
    """
    statement = select(*_WORKER_COLUMNS, workers.c.deleted_at).where(
        workers.c.workspace_id == workspace_id, workers.c.id == worker_id
    )
    row = (await conn.execute(statement)).mappings().one_or_none()
    if row is None:
        raise NotFound("no such worker", code="worker.not_found")
    return dict(row) | {"jobs": await driver(conn).fetchval(_HELD, workspace_id, worker_id)}


async def list_workers(conn: AsyncConnection, workspace_id: UUID, page: PageRequest) -> Page:
    """Scan workers of a workspace, those that left included; never a token."""
    statement = select(*_WORKER_COLUMNS).where(
        workers.c.workspace_id == workspace_id, workers.c.deleted_at.is_(None)
    )
    return await fetch_page(conn, statement, WORKER_ORDERS, page)
