"""Re-run: what has ended is done once more, as new rows. No row ever leaves a final state.

A job gets its next generation in the open run if its step is open, else a new run with that step. A run is
done once more from a step on, over the scope that the step had: what was created since is not in it. Steps
behind it open as in any run, over what there is then.
Source: Job registry, When something goes wrong (re-run creates a new attempt rather than mutating history).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import admit, job_events, nudges, outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.commands import write_start
from runlane.db.copies import Copying, copy_jobs
from runlane.db.definitions import read_definition
from runlane.db.pool import Connection, Record
from runlane.db.selections import of_run
from runlane.db.starting import ADMITTED_AT_ONCE, IMMEDIATE_TRY_S, StartRun, write_run
from runlane.definitions import Definition
from runlane.errors import Conflict, NotFound
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import JobRetried
from runlane.jobs import JOBS, STEPS, Priority, StepStatus

CAUSE: Final = "rerun"
"""Value of `jobs.cause` of a job that a person wanted once more."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """What does it once more: the run, the job if one was asked for, and the new run if one was made."""

    run_id: UUID
    job_id: UUID | None = None
    started: StartRun | None = None
    is_new: bool = True
    """False: the re-run that was wanted before has not ended, and this is it."""


_JOB: Final = """
SELECT id, workspace_id, run_id, step_id, tool_id, category, target_id, asset_id, subject_id, ordinal,
       status, attempt, failures
FROM jobs WHERE workspace_id = $1 AND id = $2
"""

_RUN: Final = """
SELECT id, workspace_id, name, kind, priority, definition, project_id, closed_at FROM job_histories
WHERE workspace_id = $1 AND id = $2
FOR NO KEY UPDATE
"""

_STEP: Final = """
SELECT status, priority FROM run_steps WHERE run_id = $1 AND step_id = $2 FOR NO KEY UPDATE
"""

_NEWEST: Final = """
SELECT id, status, generation FROM jobs
WHERE run_id = $1 AND step_id = $2 AND subject_id = $3 AND ordinal = $4
ORDER BY generation DESC LIMIT 1
"""

_TAKE_FROM_SWEEP: Final = "UPDATE jobs SET retryable = false WHERE id = $1 AND retryable"

_HAS_TARGETS: Final = """
SELECT EXISTS (SELECT FROM run_targets r JOIN targets t ON t.id = r.target_id AND t.deleted_at IS NULL
               WHERE r.run_id = $1)
"""

_MARK: Final = f"""
UPDATE job_histories SET trigger = '{CAUSE}', rerun_of = $2 WHERE id = $1
"""

_SCOPE: Final = "SELECT scope_as_of FROM run_steps WHERE run_id = $1 AND step_id = $2"

_ADMITTED: Final = """
UPDATE run_steps SET admitted_at = clock_timestamp(), jobs_total = 1 WHERE run_id = $1 AND step_id = $2
"""


async def rerun_job(
    conn: Connection,
    workspace_id: UUID,
    job_id: UUID,
    act: Act,
    *,
    follow: bool = False,
    is_sending: bool = True,
) -> Rerun:
    """Does a job once more that has ended, in one transaction of the caller.

    `follow` adds the steps that need its step, if a new run is made; in an open step they come anyway. While
    an earlier re-run in the same step has not ended, that one is the answer. The budget begins anew.
    `is_sending` False: its result is there, and only merged.

    Raises:
        NotFound: `job.not_found`.
        Conflict: `job.not_final`, it has not ended; `job.no_target`, what it was about is gone.
        Invalid: as `start_run`, if a new run is made.
    """
    job = await _final_job(conn, workspace_id, job_id)
    run = await conn.fetchrow(_RUN, workspace_id, job["run_id"])
    step = await conn.fetchrow(_STEP, job["run_id"], job["step_id"])
    if run is None or step is None:  # deleted in between
        raise NotFound("no such job", code="job.not_found")
    await conn.execute(_TAKE_FROM_SWEEP, job_id)  # or the job would be run again twice
    if step["status"] != StepStatus.RUNNING or run["closed_at"] is not None:
        return await _rerun_apart(conn, run, job, act, follow=follow, is_sending=is_sending)
    newest = await conn.fetchrow(_NEWEST, run["id"], job["step_id"], job["subject_id"], job["ordinal"])
    if newest is not None and newest["status"] not in JOBS.terminal:
        return Rerun(run["id"], newest["id"], is_new=False)
    priority = run["priority"] if step["priority"] is None else step["priority"]
    generation = newest["generation"] + 1 if newest is not None else 0
    await nudges.nudge_runs(conn, [run["id"]])
    copies = await copy_jobs(conn, [job_id], Copying(run["id"], CAUSE, priority, generation))
    return await _announce(conn, job, Rerun(run["id"], copies.get(job_id)), act)


async def rerun_run(
    conn: Connection, workspace_id: UUID, run_id: UUID, act: Act, *, from_step: str | None = None
) -> Rerun:
    """Does a run once more as a new run, from a step on with all that needs it, or whole.

    Raises:
        NotFound: `run.not_found`, `step.not_found`.
        Conflict: `run.open` or `step.open`: it has not ended; `run.no_target`, its targets are gone.
    """
    run = await conn.fetchrow(_RUN, workspace_id, run_id)
    if run is None:
        raise NotFound("no such run", code="run.not_found")
    definition = await read_definition(conn, run["workspace_id"], run["definition"])
    if from_step is None:
        if run["closed_at"] is None:
            raise Conflict("the run has not ended; cancel it first", code="run.open")
        kept: Collection[str] = [step.step_id for step in definition.steps]
    else:
        await _require_ended(conn, run_id, from_step)
        kept = {from_step, *definition.following(from_step)}
    narrowed = definition.only(kept)
    made = await _write(conn, run, narrowed, act)
    jobs = 0
    for step in narrowed.steps:
        if not step.needs:
            scope_as_of = await conn.fetchval(_SCOPE, run_id, step.step_id)
            await admit.open_step(conn, made.run_id, step.step_id, scope_as_of)
            if jobs < ADMITTED_AT_ONCE:
                jobs += (await admit.admit_chunk(conn, made.run_id, step.step_id)).jobs
    deed = Deed(
        Action.RUN_RERUN,
        workspace_id,
        names.run_subject(run_id),
        ordinal=str(made.run_id),
        run_id=run_id,
        step_id=from_step,
        value=str(made.run_id),
    )
    await outbox.insert(conn, [acted(act, deed)])
    return made


async def _final_job(conn: Connection, workspace_id: UUID, job_id: UUID) -> Record:
    job = await conn.fetchrow(_JOB, workspace_id, job_id)
    if job is None:
        raise NotFound("no such job", code="job.not_found")
    if job["status"] not in JOBS.terminal:
        raise Conflict(f"the job is {job['status']}; cancel it first", code="job.not_final")
    if job["target_id"] is None:
        raise Conflict("what the job was about is gone", code="job.no_target")
    return job


async def _require_ended(conn: Connection, run_id: UUID, step_id: str) -> None:
    step = await conn.fetchrow(_STEP, run_id, step_id)
    if step is None:
        raise NotFound("the run has no such step", code="step.not_found")
    if step["status"] not in STEPS.terminal:
        raise Conflict(f"the step is {step['status']}; cancel it first", code="step.open")


async def _rerun_apart(
    conn: Connection, run: Record, job: Record, act: Act, *, follow: bool, is_sending: bool
) -> Rerun:
    """A new run with the job's step and only that job in it."""
    definition = await read_definition(conn, run["workspace_id"], run["definition"])
    behind = definition.following(job["step_id"]) if follow else frozenset[str]()
    narrowed = definition.only({job["step_id"], *behind})
    # A share of failures that many jobs may have is none for one.
    steps = tuple(replace(s, tolerance=None) if s.step_id == job["step_id"] else s for s in narrowed.steps)
    made = await _write(conn, run, Definition(narrowed.name, steps), act, is_sending=is_sending)
    await admit.open_step(conn, made.run_id, job["step_id"])
    await conn.execute(_ADMITTED, made.run_id, job["step_id"])
    copies = await copy_jobs(conn, [job["id"]], Copying(made.run_id, CAUSE, run["priority"]))
    return await _announce(conn, job, replace(made, job_id=copies.get(job["id"])), act)


async def _write(
    conn: Connection, run: Record, definition: Definition, act: Act, *, is_sending: bool = True
) -> Rerun:
    if not await conn.fetchval(_HAS_TARGETS, run["id"]):
        raise Conflict("the targets of the run are gone", code="run.no_target")
    start = StartRun(
        workspace_id=run["workspace_id"],
        definition=definition,
        target_ids=(),
        source=of_run(run["id"]),
        name=run["name"],
        priority=list(Priority)[run["priority"]],
        kind=run["kind"],
        created_by=act.name,
        project_id=run["project_id"],
    )
    run_id = await write_run(conn, start, is_sending=is_sending)
    await conn.execute(_MARK, run_id, run["id"])
    await write_start(conn, run["workspace_id"], run_id, delay_s=IMMEDIATE_TRY_S)
    return Rerun(run_id, started=start)


async def _announce(conn: Connection, job: Record, made: Rerun, act: Act) -> Rerun:
    if made.job_id is None:  # the job was deleted in between
        raise NotFound("no such job", code="job.not_found")
    due_at = await conn.fetchval("SELECT due_at FROM jobs WHERE id = $1", made.job_id)
    deed = Deed(
        Action.JOB_RERUN,
        job["workspace_id"],
        names.job_subject(job["id"]),
        ordinal=str(made.job_id),
        run_id=made.run_id,
        job_id=job["id"],
        value=str(made.job_id),
    )
    retried = _retried(job, made.job_id, due_at.isoformat(), act)
    await outbox.insert(conn, [job_events.created(made.job_id, made.run_id, job), retried, acted(act, deed)])
    return made


def _retried(job: Record, retry_job_id: UUID, due_at: str, act: Act) -> Envelope:
    payload = JobRetried(
        job_id=job["id"],
        run_id=job["run_id"],
        step_id=job["step_id"],
        tool_id=job["tool_id"],
        attempt=job["attempt"],
        failures=job["failures"],
        due_at=due_at,
        error=None,
        retry_job_id=retry_job_id,
    )
    return envelope(
        EVENT_CATALOG.job.retried,
        payload,
        workspace_id=job["workspace_id"],
        subject=names.job_subject(job["id"]),
        ordinal=f"{CAUSE}/{retry_job_id}",
        actor=act.actor,
    )
