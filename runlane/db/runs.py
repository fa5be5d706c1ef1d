"""What a run's workflow reads and writes about the run itself: load, adopt, resync, close, skip."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from runlane import names
from runlane.db import gathering, outbox, project_runs, shards, waiting_fires
from runlane.db.cancel import CAUSE_SCOPE
from runlane.db.guards import FAILED, IN_PROGRESS, PENDING, is_rerun, job_may, run_may, step_may
from runlane.db.pool import Connection, Record
from runlane.db.skips import skipped
from runlane.db.slow_batches import slow_of
from runlane.errors import Conflict, NotFound, Refused
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import RunPayload, StepPayload
from runlane.jobs import JOBS, RUNS, STEPS, JobVerb, RunStatus, RunVerb, StepStatus, StepVerb
from runlane.runs import Step, StepCounts, step_verb


@dataclass(frozen=True, slots=True)
class RunRead:
    """A run as its workflow needs it: no jobs, only the graph and where to look."""

    run_id: UUID
    workspace_id: UUID
    name: str
    status: RunStatus
    is_closed: bool
    steps: list[Step] = field(default_factory=list)
    orphans: list[UUID] = field(default_factory=list)
    """Dispatches with jobs in progress that nobody waits for any more."""
    slow: list[UUID] = field(default_factory=list)
    """Dispatches that go on, with outcomes that have been staged for long."""


_START = f"""
UPDATE job_histories
SET status = '{RUNS.target_of(RunVerb.START)}', started_at = clock_timestamp(), nudged_at = NULL
WHERE id = $1 AND {run_may(RunVerb.START)}
RETURNING workspace_id, name, kind, hops
"""

CALLS_LOCK = "'calls of run ' || $1::uuid"
"""Whoever takes rows for a run shares this lock, and who adopts the run has it alone: a call that an earlier
workflow left under way ends before. The run's row may be referred to meanwhile, as a merge does."""

_HOLD_CALLS = f"SELECT pg_advisory_xact_lock(hashtextextended({CALLS_LOCK}, 0))"

_ADOPT = """
WITH held AS (SELECT id FROM job_histories WHERE id = $1 FOR NO KEY UPDATE)
UPDATE job_histories SET owner = $2, owner_started_at = $3
FROM held
WHERE job_histories.id = held.id AND (owner_started_at IS NULL OR owner_started_at <= $3)
RETURNING true
"""

_RUN = """
SELECT id, workspace_id, name, status FROM job_histories WHERE id = $1
"""

_STEPS = """
SELECT s.step_id, s.tool_id, s.status, s.tolerance, s.admitted_at IS NOT NULL AS is_admitted,
       coalesce(array_agg(n.needs ORDER BY n.needs) FILTER (WHERE n.needs IS NOT NULL), '{}') AS needs
FROM run_steps s
LEFT JOIN run_needs n ON n.run_id = s.run_id AND n.step_id = s.step_id
WHERE s.run_id = $1
GROUP BY s.run_id, s.step_id
ORDER BY s.position
"""

_CLEAR_NUDGE = f"""
WITH cleared AS (
  UPDATE job_histories SET nudged_at = NULL
  WHERE '{names.RUN_PREFIX}' || id = $1 AND id = $2 AND nudged_at IS NOT NULL
)
UPDATE run_shards SET nudged_at = NULL WHERE workflow_id = $1 AND nudged_at IS NOT NULL
"""

_FREE_PENDING = f"""
UPDATE jobs SET dispatch_id = NULL
WHERE run_id = $1 AND completed_at IS NULL AND status = {PENDING} AND dispatch_id IS NOT NULL
"""

_CLOSE_DISPATCHES = """
UPDATE dispatches SET closed_at = clock_timestamp() WHERE run_id = $1 AND closed_at IS NULL
"""

_IN_PROGRESS = f"""
SELECT DISTINCT dispatch_id FROM jobs
WHERE run_id = $1 AND completed_at IS NULL AND status = {IN_PROGRESS}
"""

# Dispatches that no call made (number 0) hold a kept result that is merged anew: no activity will end them.
_ABANDONED = f"""
SELECT DISTINCT j.dispatch_id
FROM jobs j
JOIN dispatches d ON d.id = j.dispatch_id AND d.workflow_id = $2
JOIN job_attempts a ON a.job_id = j.id AND a.attempt = j.attempt
JOIN workers w ON w.id = j.worker_id
WHERE j.run_id = $1 AND j.completed_at IS NULL AND j.status = {IN_PROGRESS}
  AND (d.call_number = 0 OR w.status IN ('offline', 'revoked') OR w.deleted_at IS NOT NULL
       OR w.incarnation IS DISTINCT FROM a.incarnation)
"""

_EMPTY = """
SELECT d.id FROM dispatches d
WHERE d.run_id = $1 AND d.workflow_id = $2 AND d.closed_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.dispatch_id = d.id AND j.completed_at IS NULL)
"""

_COUNTS = f"""
SELECT count(*) FILTER (WHERE generation = 0) AS total, count(*) FILTER (WHERE completed_at IS NULL) AS live,
       count(*) FILTER (WHERE status = {FAILED} AND NOT {is_rerun("j")}) AS failed,
       count(*) FILTER (WHERE status = '{JOBS.target_of(JobVerb.CANCEL)}'
                              AND cause IS DISTINCT FROM '{CAUSE_SCOPE}' AND NOT {is_rerun("j")}) AS cancelled
FROM jobs j WHERE run_id = $1 AND step_id = $2
"""

_LOCK_STEP = """
SELECT s.workspace_id, s.run_id, s.step_id, s.tool_id, s.status, s.tolerance,
       s.admitted_at IS NOT NULL AS is_admitted
FROM run_steps s JOIN job_histories h ON h.id = s.run_id
WHERE s.run_id = $1 AND s.step_id = $2 AND h.closed_at IS NULL
FOR SHARE OF h FOR NO KEY UPDATE OF s
"""

_CLOSE_STEP = """
UPDATE run_steps SET status = $3, closed_at = clock_timestamp(), jobs_total = $4, jobs_failed = $5
WHERE run_id = $1 AND step_id = $2
"""

_SKIP_STEPS = f"""
UPDATE run_steps SET status = '{STEPS.target_of(StepVerb.SKIP)}', closed_at = clock_timestamp(),
  jobs_failed = 0
WHERE run_id = $1 AND step_id = ANY($2::text[]) AND {step_may(StepVerb.SKIP)}
"""

_SKIP_JOBS = f"""
UPDATE jobs SET status = '{JOBS.target_of(JobVerb.SKIP)}', completed_at = clock_timestamp(),
  reason = 'upstream_failed', dispatch_id = NULL
WHERE run_id = $1 AND step_id = ANY($2::text[]) AND completed_at IS NULL AND {job_may(JobVerb.SKIP)}
RETURNING id, workspace_id, step_id, tool_id, attempt
"""

_CLOSE_RUN = f"""
UPDATE job_histories SET status = $2, closed_at = clock_timestamp(), blocked_reason = NULL
WHERE id = $1 AND {run_may(RunVerb.COMPLETE)}
  AND NOT EXISTS (SELECT 1 FROM jobs WHERE run_id = $1 AND completed_at IS NULL)
RETURNING workspace_id, name, kind, hops
"""


@dataclass(frozen=True, slots=True)
class Owner:
    """The workflow run that drives a run of ours; a later start outranks an earlier one."""

    workflow_run_id: str
    started_at: datetime


async def load(conn: Connection, run_id: UUID, owner: Owner) -> RunRead:
    """Adopts a run for a workflow that has just begun, starting it if it is new.

    Nothing of an earlier workflow counts: pending rows lose their dispatch, and dispatches with jobs in
    progress are handed over as orphans to settle. From now on only `owner` is given batches: a transaction
    that an earlier workflow left behind takes no rows. Safe to repeat until the first dispatch.

    Raises:
        NotFound: there is no such run.
        Conflict: `run.superseded`, a later workflow has adopted it.
    """
    await conn.execute(_HOLD_CALLS, run_id)
    if await conn.fetchval(_ADOPT, run_id, owner.workflow_run_id, owner.started_at) is None:
        raise await _not_adopted(conn, run_id)
    started = await conn.fetchrow(_START, run_id)
    if started is not None:
        await outbox.insert(conn, [run_started(run_id, started)])
        await project_runs.tell_run(conn, run_id, RunVerb.START)
        return await _read(conn, run_id, [])  # no workflow was here before: there is nothing to adopt
    await conn.execute(_CLEAR_NUDGE, names.run_workflow_id(run_id), run_id)
    await conn.execute(_FREE_PENDING, run_id)
    await conn.execute(_CLOSE_DISPATCHES, run_id)
    await shards.close_shards(conn, run_id)
    orphans = await conn.fetch(_IN_PROGRESS, run_id)
    return await _read(conn, run_id, [row["dispatch_id"] for row in orphans])


async def _not_adopted(conn: Connection, run_id: UUID) -> Refused:
    if await conn.fetchval("SELECT 1 FROM job_histories WHERE id = $1", run_id) is None:
        return NotFound("no such run", code="run.not_found")
    return Conflict("a later workflow drives this run", code="run.superseded")


async def resync(conn: Connection, run_id: UUID, workflow_id: str) -> RunRead:
    """Reads a run again after a nudge; orphans are this workflow's dispatches that nobody need wait for.

    Those are the ones whose worker is gone, and those whose jobs have all been cancelled or taken out of
    them: a batch that no worker has taken yet would keep its place in the window for nothing. Slow ones go
    on, and are to be settled as far as they are.
    """
    await conn.execute(_CLEAR_NUDGE, workflow_id, run_id)
    rows = await conn.fetch(_ABANDONED, run_id, workflow_id)
    rows += await conn.fetch(_EMPTY, run_id, workflow_id)
    orphans = [row[0] for row in rows]
    slow = [each for each in await slow_of(conn, run_id, workflow_id) if each not in orphans]
    return await _read(conn, run_id, orphans, slow)


async def _read(conn: Connection, run_id: UUID, orphans: list[UUID], slow: Sequence[UUID] = ()) -> RunRead:
    run = await conn.fetchrow(_RUN, run_id)
    if run is None:
        raise NotFound("no such run", code="run.not_found")
    steps = [
        Step(
            step_id=row["step_id"],
            tool_id=row["tool_id"],
            status=StepStatus(row["status"]),
            needs=tuple(row["needs"]),
            tolerance=row["tolerance"],
            is_admitted=row["is_admitted"],
        )
        for row in await conn.fetch(_STEPS, run_id)
    ]
    status = RunStatus(run["status"])
    return RunRead(
        run_id, run["workspace_id"], run["name"], status, status in RUNS.terminal, steps, orphans, list(slow)
    )


def run_started(run_id: UUID, row: Record) -> Envelope:
    """The event of a run that begins; `row` has its workspace, name, kind and hops."""
    return envelope(
        EVENT_CATALOG.workflow.run.started,
        RunPayload(run_id=run_id, name=row["name"], kind=row["kind"], reason=None),
        workspace_id=row["workspace_id"],
        subject=names.run_subject(run_id),
        hops=row["hops"],
    )


async def close_step(conn: Connection, run_id: UUID, step_id: str) -> StepStatus:
    """Closes a running step whose jobs have all ended and says how it ended; else says how it is.

    Idempotent: a closed step answers its status.
    """
    row = await conn.fetchrow(_LOCK_STEP, run_id, step_id)
    if row is None:
        return StepStatus.CANCELLED
    step = Step(step_id, row["tool_id"], StepStatus(row["status"]), (), row["tolerance"], row["is_admitted"])
    if step.status is not StepStatus.RUNNING:
        return step.status
    counted = await conn.fetchrow(_COUNTS, run_id, step_id)
    counts = StepCounts(**dict(counted)) if counted else StepCounts()
    verb = step_verb(step, counts)
    if verb is None:
        return step.status
    status = STEPS.advance(step.status, verb)
    await conn.execute(_CLOSE_STEP, run_id, step_id, status, counts.total, counts.failed)
    await outbox.insert(conn, [_step_ended(row, counts, verb)])
    return status


def _step_ended(step: Record, counts: StepCounts, verb: StepVerb) -> Envelope:
    leaves = EVENT_CATALOG.workflow.step
    leaf = {StepVerb.COMPLETE: leaves.completed, StepVerb.CANCEL: leaves.cancelled}.get(verb, leaves.failed)
    return envelope(
        leaf,
        StepPayload(
            run_id=step["run_id"],
            step_id=step["step_id"],
            tool_id=step["tool_id"],
            jobs_total=counts.total,
            jobs_failed=counts.failed,
        ),
        workspace_id=step["workspace_id"],
        subject=names.step_subject(step["run_id"], step["step_id"]),
    )


async def skip_steps(conn: Connection, run_id: UUID, step_ids: list[str]) -> None:
    """Skips steps that can never start, and jobs that they may have; a repeated call changes nothing."""
    await conn.execute(_SKIP_STEPS, run_id, step_ids)
    rows = await conn.fetch(_SKIP_JOBS, run_id, step_ids)
    await outbox.insert(conn, [skipped(row, run_id, "upstream_failed") for row in rows])


async def close_run(conn: Connection, run_id: UUID, verb: RunVerb) -> RunStatus:
    """Closes a run that has no live job; one that is closed already keeps its status."""
    row = await conn.fetchrow(_CLOSE_RUN, run_id, RUNS.target_of(verb))
    if row is not None:
        leaves = EVENT_CATALOG.workflow.run
        ended = envelope(
            leaves.completed if verb is RunVerb.COMPLETE else leaves.failed,
            RunPayload(run_id=run_id, name=row["name"], kind=row["kind"], reason=None),
            workspace_id=row["workspace_id"],
            subject=names.run_subject(run_id),
            hops=row["hops"],
        )
        await outbox.insert(conn, [ended])
        await project_runs.tell_run(conn, run_id, verb)
        await gathering.gather_run(conn, run_id, ended.type)
        await waiting_fires.call_after(conn, run_id)
    status = await conn.fetchval("SELECT status FROM job_histories WHERE id = $1", run_id)
    return RunStatus(status)
