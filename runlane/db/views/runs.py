"""Runs as operators list and open them. Each query names its workspace, on top of row security."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane.db.engine import driver
from runlane.db.paging import Orders, Page, PageRequest, Statement, fetch_page
from runlane.db.tables import job_histories, run_needs, run_steps, run_targets
from runlane.db.views.tally import Tallies, Tally
from runlane.errors import NotFound
from runlane.jobs import JobStatus, RunStatus, StepStatus
from runlane.progress import Estimate, StepFacts, estimate_run, estimate_step

SHOWN_TARGETS: Final = 1_000
"""Targets that the page of a run names."""

RUN_ORDERS: Final[Orders] = {
    "created_at": (job_histories.c.created_at, job_histories.c.id),
    "name": (job_histories.c.name, job_histories.c.id),
    "status": (job_histories.c.status, job_histories.c.created_at, job_histories.c.id),
    "started_by": (
        func.coalesce(job_histories.c.created_by, ""),
        job_histories.c.created_at,
        job_histories.c.id,
    ),
}

_RUN_COLUMNS: Final = (
    job_histories.c.id,
    job_histories.c.name,
    job_histories.c.kind,
    job_histories.c.status,
    job_histories.c.trigger,
    job_histories.c.priority,
    job_histories.c.rerun_of,
    job_histories.c.definition_id,
    job_histories.c.definition_version,
    job_histories.c.project_id,
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


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a reader asks for; an empty field is no condition."""

    status: Sequence[RunStatus] = ()
    kind: str | None = None
    name: str | None = None
    """A part of it, in any case."""
    started_by: str | None = None
    since: datetime | None = None
    until: datetime | None = None


async def list_runs(conn: AsyncConnection, workspace_id: UUID, wanted: RunFilter, page: PageRequest) -> Page:
    """Runs of a workspace but those whose jobs are all pruned. Index: `job_histories_list`."""
    return await fetch_page(conn, run_statement(workspace_id, wanted), RUN_ORDERS, page)


def run_statement(workspace_id: UUID, wanted: RunFilter) -> Statement:
    """The query of a list of runs, without its order."""
    runs = job_histories.c
    conditions: list[ColumnElement[bool]] = [
        runs.workspace_id == workspace_id,
        runs.jobs_pruned_at.is_(None),
    ]
    if wanted.status:
        conditions.append(runs.status.in_(wanted.status))
    if wanted.kind is not None:
        conditions.append(runs.kind == wanted.kind)
    if wanted.name is not None:
        conditions.append(runs.name.icontains(wanted.name, autoescape=True))
    if wanted.started_by is not None:
        conditions.append(runs.created_by == wanted.started_by)
    if wanted.since is not None:
        conditions.append(runs.created_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(runs.created_at < wanted.until)
    return select(*_RUN_COLUMNS).where(*conditions)


async def get_run(
    conn: AsyncConnection, workspace_id: UUID, run_id: UUID, tallies: Tallies
) -> dict[str, object]:
    """One run with its first `targets`, `jobs` by status and `steps` in order, each with `needs` and `jobs`.

    Raises:
        NotFound: `run.not_found`.
    """
    row = await _run(conn, workspace_id, run_id)
    tally = await tallies.tally(driver(conn), workspace_id, run_id)
    steps = await _steps(conn, workspace_id, run_id, tally)
    total, targets = await _targets(conn, workspace_id, run_id)
    return row | {"jobs": tally.by_status(), "steps": steps, "targets": targets, "targets_total": total}


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a step is."""

    step_id: str
    status: StepStatus
    is_admitted: bool
    total: int
    ended: int
    jobs: dict[JobStatus, int]
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is."""

    run_id: UUID
    status: RunStatus
    as_of: datetime
    total: int
    ended: int
    steps: Sequence[StepProgress]
    estimate: Estimate


_PROGRESS: Final = """
SELECT s.step_id, s.status, s.admitted_at IS NOT NULL AS is_admitted, s.opened_at, h.status AS run_status,
       h.blocked_reason, statement_timestamp() AS as_of
FROM run_steps s JOIN job_histories h ON h.id = s.run_id
WHERE s.workspace_id = $1 AND s.run_id = $2
ORDER BY s.position
"""


async def progress_of(
    conn: AsyncConnection, workspace_id: UUID, run_id: UUID, tallies: Tallies
) -> RunProgress:
    """Counts the jobs of a run and estimates when it ends.

    Raises:
        NotFound: `run.not_found`.
    """
    rows = await driver(conn).fetch(_PROGRESS, workspace_id, run_id)
    if not rows:
        raise NotFound("no such run", code="run.not_found")
    tally = await tallies.tally(driver(conn), workspace_id, run_id)
    as_of, blocked_by = rows[0]["as_of"], rows[0]["blocked_reason"]
    steps: list[tuple[StepFacts, Estimate]] = []
    for row in rows:
        jobs, recent = tally.of_step(row["step_id"]), tally.recent.get(row["step_id"], 0)
        status = StepStatus(row["status"])
        facts = StepFacts(row["step_id"], status, row["is_admitted"], row["opened_at"], jobs, recent)
        steps.append((facts, estimate_step(facts, as_of, blocked_by)))
    return RunProgress(
        run_id=run_id,
        status=RunStatus(rows[0]["run_status"]),
        as_of=as_of,
        total=sum(facts.total for facts, _ in steps),
        ended=sum(facts.ended for facts, _ in steps),
        steps=[_step_progress(facts, estimate) for facts, estimate in steps],
        estimate=estimate_run(steps),
    )


def _step_progress(facts: StepFacts, estimate: Estimate) -> StepProgress:
    return StepProgress(
        step_id=facts.step_id,
        status=facts.status,
        is_admitted=facts.is_admitted,
        total=facts.total,
        ended=facts.ended,
        jobs=dict(facts.jobs),
        estimate=estimate,
    )


async def _run(conn: AsyncConnection, workspace_id: UUID, run_id: UUID) -> dict[str, object]:
    of_run = (job_histories.c.workspace_id == workspace_id, job_histories.c.id == run_id)
    row = (await conn.execute(select(*_RUN_COLUMNS).where(*of_run))).mappings().one_or_none()
    if row is None:
        raise NotFound("no such run", code="run.not_found")
    return dict(row)


async def _targets(conn: AsyncConnection, workspace_id: UUID, run_id: UUID) -> tuple[int, list[UUID]]:
    """How many targets a run has, and the first of them. Index: the primary key of `run_targets`."""
    of_run = (run_targets.c.workspace_id == workspace_id, run_targets.c.run_id == run_id)
    total = (await conn.execute(select(func.count()).select_from(run_targets).where(*of_run))).scalar_one()
    first = select(run_targets.c.target_id).where(*of_run).order_by(run_targets.c.target_id)
    return total, list((await conn.execute(first.limit(SHOWN_TARGETS))).scalars())


async def _steps(
    conn: AsyncConnection, workspace_id: UUID, run_id: UUID, tally: Tally
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
        dict(row) | {"needs": needs.get(row["step_id"], []), "jobs": tally.of_step(row["step_id"])}
        for row in rows.mappings()
    ]
