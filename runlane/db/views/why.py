"""Why jobs are pending: one statement gathers all that decides when they begin, `runlane.waiting` decides.

Jobs that wait alike are one group, so a run with 100,000 pending jobs gives a handful of rows. The statements
run as the system role, because pauses of the platform and shared workers belong to no workspace: every one of
them names the workspace, and of what belongs to others only numbers leave here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

from runlane.db import pauses, rates
from runlane.db.blackouts import OpenWindow, open_windows
from runlane.db.guards import LIVE_JOB, PENDING
from runlane.db.limits import Uses, uses_of
from runlane.db.pool import Connection, Record
from runlane.db.sharing import Sharer, use_of
from runlane.db.taking import SUSPECT
from runlane.errors import NotFound
from runlane.jobs import JobStatus, RunStatus, StepStatus
from runlane.waiting import COUNTED, Explanation, Fleet, LimitUse, Pause, PauseScope, Queued, Waiting, explain

_Row: TypeAlias = Mapping[str, object]

_WAITING: Final = f"""
SELECT j.step_id, j.network_id, j.target_id IS NOT NULL AS has_target, j.dispatch_id IS NOT NULL AS is_queued,
       j.due_at > statement_timestamp() AS is_early, count(*) AS jobs, min(j.due_at) AS due_at,
       max(j.failures) AS failures, j.{SUSPECT} AS is_suspect, j.own_only, min(d.task_queue) AS task_queue,
       min(d.created_at) AS queued_at,
       CASE WHEN j.target_id = ANY($3::uuid[]) THEN j.target_id END AS full_target_id
FROM jobs j
LEFT JOIN dispatches d ON d.id = j.dispatch_id
WHERE j.workspace_id = $1 AND j.run_id = $2 AND j.{LIVE_JOB} AND j.status = {PENDING}"""

_GROUP: Final = "GROUP BY 1, 2, 3, 4, 5, is_suspect, j.own_only, full_target_id"

_STATEMENT: Final = f"""
WITH waiting AS ({{waiting}} {{group}})
SELECT s.step_id, s.status AS step_status, t.toolset, t.enabled, h.status AS run_status,
       statement_timestamp() AS as_of, w.allow_shared, n.name AS network,
       coalesce(g.jobs, 0) AS jobs, g.network_id, g.has_target, g.is_queued, g.due_at, g.failures,
       g.task_queue, g.queued_at, g.own_only, g.full_target_id,
       g.is_suspect AND NOT g.is_queued AND EXISTS (
         SELECT 1 FROM jobs o
         WHERE o.workspace_id = s.workspace_id AND o.toolset = t.toolset AND o.completed_at IS NULL
           AND o.{SUSPECT} AND o.dispatch_id IS NOT NULL) AS is_suspect,
       ARRAY(SELECT e.needs FROM run_needs e
             JOIN run_steps u ON u.run_id = e.run_id AND u.step_id = e.needs
             WHERE e.run_id = s.run_id AND e.step_id = s.step_id AND u.status <> 'completed'
             ORDER BY e.needs) AS open_needs,
       (SELECT jsonb_agg(jsonb_build_object('scope', p.scope, 'since', p.created_at, 'by', p.created_by,
                                            'reason', p.reason))
        FROM pauses p
        WHERE {pauses.covers("s.workspace_id", "s.run_id", "t.toolset")}) AS pauses,
       (SELECT jsonb_agg(to_jsonb(f)) FROM (
          SELECT k.scope, k.network_id, k.status, count(*) AS workers,
                 sum(coalesce((k.slots ->> t.toolset)::int, 1)) AS slots,
                 t.toolset = ANY(k.not_polling) AS is_not_polling
          FROM workers k
          WHERE k.deleted_at IS NULL AND t.toolset = ANY(k.toolsets)
            AND (k.workspace_id = s.workspace_id OR k.scope = 'shared')
          GROUP BY 1, 2, 3, is_not_polling) f) AS fleet
FROM run_steps s
JOIN job_histories h ON h.id = s.run_id
JOIN workspaces w ON w.id = s.workspace_id
JOIN tools t ON t.id = s.tool_id
LEFT JOIN waiting g ON g.step_id = s.step_id
LEFT JOIN internal_networks n ON n.id = g.network_id
WHERE s.workspace_id = $1 AND s.run_id = $2 AND (s.closed_at IS NULL OR g.jobs > 0)
ORDER BY s.position, g.is_queued, g.due_at
"""

_OF_RUN: Final = _STATEMENT.format(waiting=_WAITING, group=_GROUP)
_OF_JOB: Final = _STATEMENT.format(waiting=f"{_WAITING} AND j.id = $4", group=_GROUP)

_RUN: Final = "SELECT status FROM job_histories WHERE workspace_id = $1 AND id = $2"

_JOB: Final = """
SELECT j.id, j.run_id, j.step_id, j.status, j.attempt, j.reason, j.picked_at, j.completed_at, k.name AS worker
FROM jobs j
LEFT JOIN workers k ON k.id = j.worker_id AND k.workspace_id = j.workspace_id
WHERE j.workspace_id = $1 AND j.id = $2
"""

_AHEAD: Final = f"""
SELECT count(*) FROM (
  SELECT 1 FROM jobs o, jobs j
  WHERE j.workspace_id = $1 AND j.id = $2 AND o.run_id = j.run_id AND o.step_id = j.step_id
    AND o.{LIVE_JOB} AND o.dispatch_id IS NULL AND o.status = {PENDING}
    AND o.due_at <= statement_timestamp()
    AND (o.priority, o.created_at, o.id) < (j.priority, j.created_at, j.id)
  LIMIT {COUNTED + 1}
) ahead
"""

_BATCHES_AHEAD: Final = """
SELECT count(*) FROM dispatches o
JOIN jobs j ON j.workspace_id = $1 AND j.id = $2
JOIN dispatches d ON d.id = j.dispatch_id
WHERE o.task_queue = d.task_queue AND o.closed_at IS NULL
  AND (o.priority, o.created_at, o.id) < (d.priority, d.created_at, d.id)
"""


@dataclass(frozen=True, slots=True)
class JobWhy:
    """Why one job is where it is. A job that does not wait has no explanation but a text."""

    job_id: UUID
    run_id: UUID
    step_id: str
    status: JobStatus
    as_of: datetime | None
    text: str
    explanation: Explanation | None


@dataclass(frozen=True, slots=True)
class GroupWhy:
    """Pending jobs of a step that wait for the same thing; none yet in a step that has not begun."""

    jobs: int
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class StepWhy:
    """Why jobs of one open step wait, the largest group first."""

    step_id: str
    status: StepStatus
    groups: Sequence[GroupWhy]


@dataclass(frozen=True, slots=True)
class RunWhy:
    """Why jobs of the open steps of a run wait."""

    run_id: UUID
    status: RunStatus
    steps: Sequence[StepWhy]


async def why_job(conn: Connection, workspace_id: UUID, job_id: UUID) -> JobWhy:
    """Says why a job is pending; of another job, what has become of it. Uses the primary key of `jobs`.

    Raises:
        NotFound: `job.not_found`.
    """
    job = await conn.fetchrow(_JOB, workspace_id, job_id)
    if job is None:
        raise NotFound("no such job", code="job.not_found")
    used_up = await rates.uses_of(conn, workspace_id)
    rows = await conn.fetch(_OF_JOB, workspace_id, job["run_id"], list(used_up), job_id)
    row = next((row for row in rows if row["jobs"]), None)
    if row is None:
        return _why(job, None, _told(job), None)
    statement = _BATCHES_AHEAD if row["is_queued"] else _AHEAD
    ahead = int(await conn.fetchval(statement, workspace_id, job_id))
    controls = await _controls(conn, workspace_id, [row], used_up)
    explanation = explain(_waiting(row, controls[row["toolset"]], ahead))
    return _why(job, row["as_of"], explanation.text, explanation)


async def why_run(conn: Connection, workspace_id: UUID, run_id: UUID, step_id: str | None = None) -> RunWhy:
    """Says why jobs of a run, or of one step of it, are pending. Uses `jobs_live`.

    Raises:
        NotFound: `run.not_found`.
    """
    status = await conn.fetchval(_RUN, workspace_id, run_id)
    if status is None:
        raise NotFound("no such run", code="run.not_found")
    steps: dict[str, list[Record]] = {}
    used_up = await rates.uses_of(conn, workspace_id)
    for row in await conn.fetch(_OF_RUN, workspace_id, run_id, list(used_up)):
        if step_id is None or row["step_id"] == step_id:
            steps.setdefault(row["step_id"], []).append(row)
    every = [row for rows in steps.values() for row in rows]
    controls = await _controls(conn, workspace_id, every, used_up)
    return RunWhy(run_id, RunStatus(status), [_step(name, rows, controls) for name, rows in steps.items()])


@dataclass(frozen=True, slots=True)
class _Controls:
    """What counts for all jobs of a tool set: limits, and the share of shared workers."""

    uses: Uses
    shared: LimitUse | None
    windows: Sequence[OpenWindow] = ()
    workspace_id: UUID | None = None
    rates: Mapping[UUID, LimitUse] = field(default_factory=dict)
    """Those that leave nothing, by what they are of."""

    def rates_of(self, row: Record) -> list[LimitUse]:
        """Rates without anything left that cover jobs which are not out yet."""
        keys = {row["full_target_id"], row["network_id"], self.workspace_id}
        return [] if row["is_queued"] else [use for key, use in self.rates.items() if key in keys]

    def blackout_of(self, due_at: datetime | None) -> str | None:
        """The open window that put jobs off until then."""
        return next((window.text for window in self.windows if window.until == due_at), None)


async def _controls(
    conn: Connection, workspace_id: UUID, rows: Sequence[Record], used_up: Mapping[UUID, LimitUse]
) -> dict[str, _Controls]:
    controls: dict[str, _Controls] = {}
    windows = await open_windows(conn, workspace_id) if rows else ()
    for row in rows:
        toolset = row["toolset"]
        if toolset not in controls:
            use = None
            if row["allow_shared"]:
                use = await use_of(conn, Sharer(workspace_id, toolset))
            shared = LimitUse("the shared workers", use.out, use.most) if use and use.others_wait else None
            uses = await uses_of(conn, workspace_id, toolset)
            controls[toolset] = _Controls(uses, shared, windows, workspace_id, used_up)
    return controls


def _step(step_id: str, rows: Sequence[Record], controls: Mapping[str, _Controls]) -> StepWhy:
    status = StepStatus(rows[0]["step_status"])
    groups: dict[str, GroupWhy] = {}
    for row in rows:
        if not row["jobs"] and status is not StepStatus.WAITING:
            continue  # all of its jobs are in progress, or none is admitted yet
        explanation = explain(_waiting(row, controls[row["toolset"]], 0))
        known = groups.get(explanation.text)
        jobs = row["jobs"] + (known.jobs if known else 0)
        groups[explanation.text] = GroupWhy(jobs, known.explanation if known else explanation)
    return StepWhy(step_id, status, sorted(groups.values(), key=lambda group: -group.jobs))


def _waiting(row: Record, controls: _Controls, ahead: int) -> Waiting:
    fleet, queued = _fleet(row), None
    if row["is_queued"]:
        queued = Queued(row["task_queue"], row["queued_at"], ahead)
    return Waiting(
        as_of=row["as_of"],
        fleet=fleet.fleet,
        due_at=row["due_at"] or row["as_of"],
        failures=row["failures"] or 0,
        blackout=controls.blackout_of(row["due_at"]),
        pauses=[_pause(pause) for pause in row["pauses"] or ()],
        is_run_started=row["run_status"] != RunStatus.ACCEPTED,
        step_status=StepStatus(row["step_status"]),
        open_needs=row["open_needs"],
        has_target=row["has_target"] is not False,
        is_tool_enabled=row["enabled"],
        minute_limits=controls.uses.per_minute,
        concurrency_limits=controls.uses.in_progress,
        rates=controls.rates_of(row),
        shared=controls.shared if queued is None and fleet.is_shared_only else None,
        is_suspect=bool(row["is_suspect"]),
        queued=queued,
        ahead=0 if queued else ahead,
    )


def _pause(raw: _Row) -> Pause:
    by, reason = raw["by"], raw["reason"]
    return Pause(
        PauseScope(str(raw["scope"])),
        datetime.fromisoformat(str(raw["since"])),
        None if by is None else str(by),
        None if reason is None else str(reason),
    )


@dataclass(frozen=True, slots=True)
class _Served:
    fleet: Fleet
    is_shared_only: bool


def _fleet(row: Record) -> _Served:
    network_id = row["network_id"]
    own = shared = draining = offline = not_polling = elsewhere = forbidden = barred = 0
    for group in row["fleet"] or ():
        workers, slots, status = int(group["workers"]), int(group["slots"]), group["status"]
        is_shared = group["scope"] == "shared"
        bound_to = UUID(group["network_id"]) if group["network_id"] else None
        if status == "draining":
            draining += workers
        elif group["is_not_polling"] and status in {"online", "offline"}:
            not_polling += workers
        elif status != "online":
            offline += workers
        elif is_shared and not row["allow_shared"]:
            forbidden += workers
        elif bound_to != network_id:
            elsewhere += workers
        elif is_shared and row["own_only"]:
            barred += workers
        elif is_shared:
            shared += slots
        else:
            own += slots
    counts = (own + shared, draining, offline, not_polling, elsewhere, forbidden, barred)
    fleet = Fleet(row["toolset"], row["network"], *counts)
    return _Served(fleet, is_shared_only=not own and shared > 0)


def _why(job: Record, as_of: datetime | None, text: str, explanation: Explanation | None) -> JobWhy:
    status = JobStatus.PENDING if explanation else JobStatus(job["status"])
    return JobWhy(job["id"], job["run_id"], job["step_id"], status, as_of, text, explanation)


def _told(job: Record) -> str:
    match JobStatus(job["status"]):
        case JobStatus.IN_PROGRESS:
            where = f" on {job['worker']}" if job["worker"] else ""
            return (
                f"in progress{where} since {job['picked_at']:%Y-%m-%d %H:%M:%S} UTC, attempt {job['attempt']}"
            )
        case JobStatus.PENDING:
            return "is being taken just now"
        case status:
            why = f": {job['reason']}" if job["reason"] else ""
            return f"{status} at {job['completed_at']:%Y-%m-%d %H:%M:%S} UTC{why}"
