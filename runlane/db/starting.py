"""A run begins as rows: the run, its steps, the root steps' jobs and the command that starts its workflow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from runlane.db import admit, preparing
from runlane.db.commands import write_start
from runlane.db.config_profiles import with_profiles
from runlane.db.pool import Connection
from runlane.db.rate_fit import require_time
from runlane.db.secrets import require_secrets
from runlane.db.selections import Selection, Source, missing_targets, selected
from runlane.definitions import Definition
from runlane.errors import Conflict, Invalid, NotFound
from runlane.jobs import Priority


@dataclass(frozen=True, slots=True)
class StartRun:
    """What to start, for whom, on what."""

    workspace_id: UUID
    definition: Definition
    target_ids: Sequence[UUID]
    """Targets that must be there."""
    name: str
    priority: Priority = Priority.NORMAL
    kind: str = "workflow"
    created_by: str | None = None
    trigger: str = "request"
    schedule_id: UUID | None = None
    definition_id: UUID | None = None
    definition_version: int | None = None
    project_id: UUID | None = None
    hops: int = 0
    source: Source | None = None
    """Where the targets come from; None: those that must be there."""


@dataclass(frozen=True, slots=True)
class StartedRun:
    """The run that was written, and how many of its jobs wait already."""

    run_id: UUID
    jobs: int


_RUN = """
INSERT INTO job_histories
  (workspace_id, name, kind, definition, priority, created_by, trigger, schedule_id, definition_id,
   definition_version, hops, project_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
RETURNING id
"""

# One more than there may be shows that there are too many.
_TARGETS = """
{taken}INSERT INTO run_targets (workspace_id, run_id, target_id, is_new)
SELECT $1::uuid, $2::uuid, source.target_id, true FROM ({query}) source LIMIT {most} + 1
"""

_ADDRESSES = """
SELECT coalesce(sum(1::bigint << (CASE family(t.value::cidr) WHEN 4 THEN 32 ELSE 128 END
                                  - masklen(t.value::cidr))), 0)
FROM run_targets r JOIN targets t ON t.id = r.target_id AND t.kind = 'cidr'
WHERE r.run_id = $1
"""

_STEPS = """
INSERT INTO run_steps (workspace_id, run_id, step_id, position, name, tool_id, config, tolerance)
SELECT $1, $2, u.* FROM unnest($3::text[], $4::int[], $5::text[], $6::text[], $7::jsonb[], $8::text[]) u
"""

_NEEDS = """
INSERT INTO run_needs (workspace_id, run_id, step_id, needs)
SELECT DISTINCT $1::uuid, $2::uuid, u.* FROM unnest($3::text[], $4::text[]) u
"""

_OPEN_RUNS = """
SELECT w.max_open_runs AS most,
       (SELECT count(*)::int FROM job_histories h WHERE h.workspace_id = w.id AND h.closed_at IS NULL) AS open
FROM workspaces w WHERE w.id = $1
"""

_LOCK_STARTS = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"

_FEW_RUNS = 50
"""More than requests are under way at once."""

NO_TARGET = "run.no_target"
"""Code of a run about nothing."""

MAX_TARGETS = 100_000
"""Of one run."""

MAX_ADDRESSES = 16_384
"""Addresses of all networks among the targets of one run: each becomes an asset."""

ADMITTED_AT_ONCE = 1_000
"""Jobs after which the rest is left to the workflow: a request of a few kilobytes may ask for 100,000."""

IMMEDIATE_TRY_S = 1.0
"""The relay leaves a fresh start to the process that wrote it for this long."""


async def start_run(conn: Connection, request: StartRun) -> StartedRun:
    """Writes a run in one transaction of the caller.

    Root steps are opened, and jobs of theirs are admitted here while these are few, so that the workflow's
    first act is to dispatch.

    Raises:
        Invalid: there is no target (`run.no_target`), or too much of it (`run.too_large`); a step names
            a profile that is not there (`config_profile.unknown`), or a secret (`secret.unknown`); a rate
            leaves its jobs too little time (`rate.too_low`).
        NotFound: a target is not in this workspace.
        Conflict: `run.too_many_open`, the workspace has as many open runs as it may.
    """
    run_id = await write_run(conn, request)
    jobs = 0
    for step in request.definition.steps:
        if not step.needs:
            await admit.open_step(conn, run_id, step.step_id)
            if jobs < ADMITTED_AT_ONCE:
                jobs += (await admit.admit_chunk(conn, run_id, step.step_id)).jobs
    await write_start(conn, request.workspace_id, run_id, delay_s=IMMEDIATE_TRY_S)
    return StartedRun(run_id, jobs)


async def write_run(conn: Connection, request: StartRun, *, is_sending: bool = True) -> UUID:
    """Writes a run whose steps all wait; the caller opens some and writes the start command.

    What the steps' profiles say now is what the run keeps. Rates are not asked of one that sends nothing.

    Raises:
        Invalid, NotFound, Conflict: as `start_run`.
    """
    await _require_room(conn, request.workspace_id)
    definition = await with_profiles(conn, request.workspace_id, request.definition)
    await require_secrets(conn, request.workspace_id, definition)
    request = replace(request, definition=definition)
    run_id: UUID = await conn.fetchval(
        _RUN,
        request.workspace_id,
        request.name,
        request.kind,
        request.definition.as_json(),
        request.priority.rank,
        request.created_by,
        request.trigger,
        request.schedule_id,
        request.definition_id,
        request.definition_version,
        request.hops,
        request.project_id,
    )
    await _write_targets(conn, run_id, request)
    await _write_steps(conn, run_id, request)
    if is_sending:
        await require_time(conn, request.workspace_id, run_id, definition)
    return run_id


async def _write_targets(conn: Connection, run_id: UUID, request: StartRun) -> None:
    if await missing_targets(conn, request.workspace_id, request.target_ids):
        raise NotFound("a target is not in this workspace", code="target.not_found")
    source = request.source or selected(Selection(targets=request.target_ids))
    taken = f"WITH taken AS ({source.taken})\n" if source.taken else ""
    statement = _TARGETS.format(taken=taken, query=source.query, most=MAX_TARGETS)
    written = await conn.execute(statement, request.workspace_id, run_id, *source.values)
    count = int(written.rpartition(" ")[2])
    if not count:
        raise Invalid("a run needs at least one target", code=NO_TARGET, fields={"targets": "empty"})
    if count > MAX_TARGETS:
        raise _too_large(f"a run has at most {MAX_TARGETS} targets")
    if await conn.fetchval(_ADDRESSES, run_id) > MAX_ADDRESSES:
        raise _too_large(f"the networks of one run have at most {MAX_ADDRESSES} addresses together")
    await preparing.prepare_some(conn, run_id)


def _too_large(detail: str) -> Invalid:
    return Invalid(detail, code="run.too_large", fields={"targets": detail})


async def _require_room(conn: Connection, workspace_id: UUID) -> None:
    """Refuses a run too many. Starts follow each other once there is room for few more only."""
    open_runs = await conn.fetchrow(_OPEN_RUNS, workspace_id)
    if open_runs is not None and open_runs["most"] - open_runs["open"] <= _FEW_RUNS:
        await conn.execute(_LOCK_STARTS, f"starts/{workspace_id}")
        open_runs = await conn.fetchrow(_OPEN_RUNS, workspace_id)
    if open_runs is not None and open_runs["open"] >= open_runs["most"]:
        detail = f"{open_runs['open']} runs of the workspace are open, and {open_runs['most']} may be"
        raise Conflict(detail, code="run.too_many_open")


async def _write_steps(conn: Connection, run_id: UUID, request: StartRun) -> None:
    steps = request.definition.steps
    await conn.execute(
        _STEPS,
        request.workspace_id,
        run_id,
        [step.step_id for step in steps],
        list(range(len(steps))),
        [step.name for step in steps],
        [step.tool_id for step in steps],
        [dict(step.config) for step in steps],
        [step.tolerance for step in steps],
    )
    edges = [(step.step_id, need) for step in steps for need in step.needs]
    if edges:
        await conn.execute(
            _NEEDS, request.workspace_id, run_id, [edge[0] for edge in edges], [edge[1] for edge in edges]
        )
