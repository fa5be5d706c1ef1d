"""What a person reads of runs, jobs and workers. Each query names its workspace, on top of row security."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane.db.paging import Orders, Page, PageRequest, Statement, fetch_page
from runlane.db.tables import (
    job_attempts,
    job_error_logs,
    job_histories,
    jobs,
    run_needs,
    run_steps,
    run_targets,
    workers,
)
from runlane.errors import NotFound
from runlane.jobs import JobStatus, RunStatus

# Ids are drawn by the database in order of time, so a list by id is a list by creation.
RUN_ORDERS: Final[Orders] = {"created_at": (job_histories.c.id,)}
JOB_ORDERS: Final[Orders] = {
    "created_at": (jobs.c.id,),
    "due_at": (jobs.c.due_at, jobs.c.id),
    "priority": (jobs.c.priority, jobs.c.id),
}
WORKER_ORDERS: Final[Orders] = {"joined_at": (workers.c.id,), "name": (workers.c.name, workers.c.id)}

_RUN_COLUMNS: Final = (
    job_histories.c.id,
    job_histories.c.name,
    job_histories.c.kind,
    job_histories.c.status,
    job_histories.c.trigger,
    job_histories.c.priority,
    job_histories.c.rerun_of,
    job_histories.c.created_by,
    job_histories.c.blocked_reason,
    job_histories.c.created_at,
    job_histories.c.started_at,
    job_histories.c.closed_at,
)
_STEP_COLUMNS: Final = (
    run_steps.c.step_id,
    run_steps.c.name,
    run_steps.c.tool_id,
    run_steps.c.status,
    run_steps.c.opened_at,
    run_steps.c.closed_at,
)
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
    workers.c.toolsets,
    workers.c.slots,
    workers.c.tools,
    workers.c.version,
    workers.c.beat_at,
    workers.c.stream_seen_at,
    workers.c.joined_at,
    workers.c.left_at,
)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a reader asks for; an empty field is no condition."""

    run_id: UUID | None = None
    step_id: str | None = None
    tool_id: str | None = None
    status: Sequence[JobStatus] = ()


async def list_runs(
    conn: AsyncConnection, workspace_id: UUID, status: Sequence[RunStatus], page: PageRequest
) -> Page:
    """Runs of a workspace but those whose jobs are all pruned. Index: `job_histories (workspace_id, id)`."""
    statement = select(*_RUN_COLUMNS).where(
        job_histories.c.workspace_id == workspace_id, job_histories.c.jobs_pruned_at.is_(None)
    )
    if status:
        statement = statement.where(job_histories.c.status.in_(status))
    return await fetch_page(conn, statement, RUN_ORDERS, page)


async def get_run(conn: AsyncConnection, workspace_id: UUID, run_id: UUID) -> dict[str, object]:
    """One run with `targets`, `jobs` by status and `steps` in order, each with its `needs` and `jobs`.

    Raises:
        NotFound: `run.not_found`.
    """
    of_run = (job_histories.c.workspace_id == workspace_id, job_histories.c.id == run_id)
    row = (await conn.execute(select(*_RUN_COLUMNS).where(*of_run))).mappings().one_or_none()
    if row is None:
        raise NotFound("no such run", code="run.not_found")
    counts = await _counts(conn, workspace_id, run_id)
    steps = await _steps(conn, workspace_id, run_id, counts)
    total: dict[str, int] = {}
    for by_status in counts.values():
        for status, number in by_status.items():
            total[status] = total.get(status, 0) + number
    targets = await conn.execute(
        select(run_targets.c.target_id).where(
            run_targets.c.workspace_id == workspace_id, run_targets.c.run_id == run_id
        )
    )
    return dict(row) | {"jobs": total, "steps": steps, "targets": [each.target_id for each in targets]}


async def _counts(conn: AsyncConnection, workspace_id: UUID, run_id: UUID) -> dict[str, dict[str, int]]:
    statement = (
        select(jobs.c.step_id, jobs.c.status, func.count().label("number"))
        .where(jobs.c.workspace_id == workspace_id, jobs.c.run_id == run_id)
        .group_by(jobs.c.step_id, jobs.c.status)
        .order_by(jobs.c.step_id, jobs.c.status)
    )
    counts: dict[str, dict[str, int]] = {}
    for step_id, status, number in await conn.execute(statement):
        counts.setdefault(step_id, {})[status] = number
    return counts


async def _steps(
    conn: AsyncConnection, workspace_id: UUID, run_id: UUID, counts: dict[str, dict[str, int]]
) -> list[dict[str, object]]:
    edges = await conn.execute(
        select(run_needs.c.step_id, run_needs.c.needs)
        .where(run_needs.c.workspace_id == workspace_id, run_needs.c.run_id == run_id)
        .order_by(run_needs.c.step_id, run_needs.c.needs)
    )
    needs: dict[str, list[str]] = {}
    for step_id, need in edges:
        needs.setdefault(step_id, []).append(need)
    rows = await conn.execute(
        select(*_STEP_COLUMNS)
        .where(run_steps.c.workspace_id == workspace_id, run_steps.c.run_id == run_id)
        .order_by(run_steps.c.position)
    )
    return [
        dict(row) | {"needs": needs.get(row["step_id"], []), "jobs": counts.get(row["step_id"], {})}
        for row in rows.mappings()
    ]


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


async def list_workers(conn: AsyncConnection, workspace_id: UUID, page: PageRequest) -> Page:
    """Scan workers of a workspace, those that left included; never a token."""
    statement = select(*_WORKER_COLUMNS).where(
        workers.c.workspace_id == workspace_id, workers.c.deleted_at.is_(None)
    )
    return await fetch_page(conn, statement, WORKER_ORDERS, page)
