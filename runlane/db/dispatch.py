"""Dispatch: groups due jobs of a run into batches and writes one dispatch row for each.

`jobs.dispatch_id` is the fence: rows are taken `WHERE dispatch_id IS NULL` under `FOR UPDATE SKIP LOCKED`, so
the run's workflow, its shards and a repeated call never take a row twice. A call is keyed by the workflow's
run and the call's number: repeated after a lost reply, it answers what it answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import limits, rates
from runlane.db.blackouts import hold_step
from runlane.db.pauses import is_paused
from runlane.db.pool import Connection, Record
from runlane.db.runs import CALLS_LOCK
from runlane.db.taking import SUSPECT, Group, StepCall, StepTaker, StepWork, has_live_jobs
from runlane.waiting import tool_off

PAUSED_LOOK_S: Final = 21_600.0
"""A paused step is looked at again after six hours, should every nudge of the resume be lost: each look is
half a dozen events in the history of a workflow that may be paused for weeks. So is one whose tool is off."""

PAUSED: Final = "paused"
"""What a run waits for whose dispatch a person has stopped."""


@dataclass(frozen=True, slots=True)
class NextBatches:
    """One call: which workflow asks for how many batches of which steps."""

    run_id: UUID
    workspace_id: UUID
    workflow_id: str
    workflow_run_id: str
    owner: str
    """Temporal run id of the workflow that drives the run: the caller, or the parent of a shard."""
    call_number: int
    rooms: Mapping[str, int]
    """Step id → batches wanted, 0 to only look."""
    least_batch: int = 1


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A batch that is ready to be started as an activity of that id."""

    dispatch_id: UUID
    step_id: str
    tool_id: str
    task_queue: str
    priority: int
    size: int
    wall_s: float
    """Limit of one job."""
    parallelism: int
    """Jobs of the batch that are worked on at once."""

    @property
    def is_shared(self) -> bool:
        """Whether workers that several workspaces share may take it."""
        return self.task_queue.startswith(names.SHARED_QUEUE_PREFIX)


@dataclass(frozen=True, slots=True)
class Batches:
    """Answer of a call."""

    is_closed: bool
    is_superseded: bool = False
    """Another workflow has adopted the run since: this one takes no rows."""
    dispatches: list[Dispatch] = field(default_factory=list)
    steps: list[StepWork] = field(default_factory=list)


_SHARE_CALLS = f"SELECT pg_advisory_xact_lock_shared(hashtextextended({CALLS_LOCK}, 0))"

_REPEATED = """
SELECT d.id, d.step_id, s.tool_id, d.task_queue, d.priority, d.size, t.wall_s, t.parallelism
FROM dispatches d
JOIN run_steps s ON s.run_id = d.run_id AND s.step_id = d.step_id
JOIN tools t ON t.id = s.tool_id
WHERE d.workflow_run_id = $1 AND d.call_number = $2
ORDER BY d.id
"""

_STEP = f"""
SELECT s.tool_id, s.jobs_total, t.toolset, t.enabled, t.wall_s, t.parallelism, t.max_batch, t.large_max_batch,
       w.allow_shared, h.blocked_reason, h.priority,
       ARRAY(SELECT DISTINCT d.task_queue FROM dispatches d
             WHERE d.run_id = s.run_id AND d.step_id = s.step_id AND d.workflow_id = $4
               AND d.closed_at IS NULL) AS queues,
       EXISTS (SELECT FROM limits l WHERE {limits.covers("s.workspace_id", "t.toolset")}) AS is_limited,
       {rates.apply_in("s.workspace_id", "s.tool_id")} AS has_rates,
       EXISTS (SELECT FROM internal_networks n WHERE n.workspace_id = s.workspace_id) AS has_networks,
       EXISTS (SELECT FROM jobs j WHERE j.run_id = s.run_id AND j.step_id = s.step_id
                 AND j.completed_at IS NULL AND j.own_only) AS has_own_only,
       EXISTS (SELECT FROM jobs j WHERE j.workspace_id = s.workspace_id AND j.toolset = t.toolset
                 AND j.completed_at IS NULL AND j.{SUSPECT}) AS has_suspects,
       EXISTS (SELECT FROM blackout_windows b WHERE b.workspace_id = s.workspace_id) AS has_windows,
       h.closed_at IS NOT NULL AS is_closed, s.closed_at IS NOT NULL AS is_step_closed,
       h.owner IS DISTINCT FROM $3 AS is_superseded,
       {is_paused("s.workspace_id", "s.run_id", "t.toolset")} AS is_paused
FROM run_steps s
JOIN job_histories h ON h.id = s.run_id
JOIN workspaces w ON w.id = s.workspace_id
JOIN tools t ON t.id = s.tool_id
WHERE s.run_id = $1 AND s.step_id = $2
FOR KEY SHARE OF h
"""

_INSERT = """
INSERT INTO dispatches (id, workspace_id, run_id, step_id, workflow_id, workflow_run_id, call_number,
                        task_queue, priority, size)
SELECT u.id, $1, $2, $3, $4, $5, $6, u.task_queue, u.priority, u.size
FROM unnest($7::uuid[], $8::text[], $9::smallint[], $10::int[]) AS u (id, task_queue, priority, size)
"""

_MARK = """
UPDATE jobs SET dispatch_id = u.dispatch_id
FROM unnest($1::uuid[], $2::uuid[]) AS u (id, dispatch_id)
WHERE jobs.id = u.id
"""

_IDS = "SELECT uuidv7() FROM generate_series(1, $1)"

# Jobs are locked by now. Whoever holds the run's row (a cancel, a new priority) may wait for one of them, and
# must not be waited for; it has nudged the workflow, which will say the reason at its next look.
_BLOCK = """
WITH free AS (
  SELECT id FROM job_histories WHERE id = $1 AND closed_at IS NULL FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE job_histories h SET blocked_reason = $2
FROM free
WHERE h.id = free.id AND h.blocked_reason IS DISTINCT FROM $2
"""


async def next_batches(conn: Connection, call: NextBatches) -> Batches:
    """Takes due jobs, writes their dispatches and says what is left, in one transaction of the caller.

    A workflow that does not own the run any more is told so; an adoption waits until this transaction has
    ended.

    Order: priority, then oldest first, inside each step. Uses the partial index `jobs_dispatchable`.
    """
    await conn.execute(_SHARE_CALLS, call.run_id)
    repeated = await conn.fetch(_REPEATED, call.workflow_run_id, call.call_number)
    dispatches = [Dispatch(*row) for row in repeated]
    steps: list[StepWork] = []
    blocked: set[str] = set()
    known: str | None = None
    for step_id, room in call.rooms.items():
        step = await conn.fetchrow(_STEP, call.run_id, step_id, call.owner, call.workflow_id)
        if step is None or step["is_closed"]:
            return Batches(is_closed=True)
        if step["is_superseded"]:
            return Batches(is_closed=False, is_superseded=True)
        known = step["blocked_reason"]
        if step["is_step_closed"]:  # what is left of it is being cancelled
            steps.append(StepWork(step_id, is_live=False))
            continue
        if step["is_paused"] or not step["enabled"]:
            held_by = PAUSED if step["is_paused"] else tool_off(step["tool_id"])
            work, why = await _look_at_held(conn, call, step_id, held_by)
        else:
            held = (
                await hold_step(conn, call.workspace_id, call.run_id, step_id) if step["has_windows"] else ()
            )
            taker = StepTaker(conn, _step_call(call, step_id), step)
            wanted = 0 if repeated else room
            taken = await taker.take(wanted)
            dispatches += await _write(conn, call, step_id, step, taken.groups)
            work = await taker.rest(taken, wanted)
            why = [
                *held,
                *await taker.missing(),
                *(() if taken.groups or step["queues"] else taken.waits_for),
            ]
        steps.append(work)
        blocked.update(why if work.is_live else ())
    reason = "; ".join(sorted(blocked)) or None
    if reason != known:
        await conn.execute(_BLOCK, call.run_id, reason)
    return Batches(is_closed=False, dispatches=dispatches, steps=steps)


def _step_call(call: NextBatches, step_id: str) -> StepCall:
    return StepCall(call.run_id, call.workspace_id, step_id, call.workflow_id, call.least_batch)


async def _look_at_held(
    conn: Connection, call: NextBatches, step_id: str, held_by: str
) -> tuple[StepWork, list[str]]:
    if not await has_live_jobs(conn, call.run_id, step_id):
        return StepWork(step_id, is_live=False), []
    return StepWork(step_id, is_live=True, next_due_s=PAUSED_LOOK_S), [held_by]


async def _write(
    conn: Connection, call: NextBatches, step_id: str, step: Record, groups: Sequence[Group]
) -> list[Dispatch]:
    if not groups:
        return []
    ids = [row[0] for row in await conn.fetch(_IDS, len(groups))]
    dispatches = [
        Dispatch(
            dispatch_id=i,
            step_id=step_id,
            tool_id=step["tool_id"],
            task_queue=group.task_queue,
            priority=group.rows[0]["priority"],
            size=len(group.rows),
            wall_s=step["wall_s"],
            parallelism=step["parallelism"],
        )
        for i, group in zip(ids, groups, strict=True)
    ]
    await conn.execute(
        _INSERT,
        call.workspace_id,
        call.run_id,
        step_id,
        call.workflow_id,
        call.workflow_run_id,
        call.call_number,
        ids,
        [dispatch.task_queue for dispatch in dispatches],
        [dispatch.priority for dispatch in dispatches],
        [dispatch.size for dispatch in dispatches],
    )
    pairs = [(row["id"], i) for i, group in zip(ids, groups, strict=True) for row in group.rows]
    await conn.execute(_MARK, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    return dispatches
