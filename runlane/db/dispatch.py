"""Dispatch: groups due jobs of a run into batches and writes one dispatch row for each.

`jobs.dispatch_id` is the fence: rows are taken `WHERE dispatch_id IS NULL` under `FOR UPDATE SKIP LOCKED`, so
the run's workflow, its shards and a repeated call never take a row twice. A call is keyed by the workflow's
run and the call's number: repeated after a lost reply, it answers what it answered.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.guards import LIVE_JOB, PENDING
from runlane.db.pool import Connection, Record
from runlane.definitions import limits_of
from runlane.runs import BATCHES_PER_SLOT, batch_size
from runlane.waiting import no_worker

PAUSED_LOOK_S: Final = 60.0
"""A paused step is looked at again after this, should the nudge of the resume be lost."""


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


@dataclass(frozen=True, slots=True)
class StepWork:
    """What is left of a step after the call."""

    step_id: str
    is_live: bool
    """A job is pending or in progress."""
    has_more: bool = False
    """Due jobs were left for want of room."""
    next_due_s: float | None = None
    """Seconds until the next back-off ends, when nothing due is left."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Answer of a call."""

    is_closed: bool
    is_superseded: bool = False
    """Another workflow has adopted the run since: this one takes no rows."""
    dispatches: list[Dispatch] = field(default_factory=list)
    steps: list[StepWork] = field(default_factory=list)


_REPEATED = """
SELECT d.id, d.step_id, s.tool_id, d.task_queue, d.priority, d.size
FROM dispatches d
JOIN run_steps s ON s.run_id = d.run_id AND s.step_id = d.step_id
WHERE d.workflow_run_id = $1 AND d.call_number = $2
ORDER BY d.id
"""

_STEP = """
SELECT s.tool_id, s.jobs_total, t.toolset, w.allow_shared, h.blocked_reason,
       h.closed_at IS NOT NULL AS is_closed, h.owner IS DISTINCT FROM $3 AS is_superseded,
       EXISTS (SELECT 1 FROM pauses p
               WHERE p.lifted_at IS NULL AND (p.workspace_id IS NULL OR p.workspace_id = s.workspace_id)
                 AND (p.run_id IS NULL OR p.run_id = s.run_id)
                 AND (p.toolset IS NULL OR p.toolset = t.toolset)) AS is_paused
FROM run_steps s
JOIN job_histories h ON h.id = s.run_id
JOIN workspaces w ON w.id = s.workspace_id
JOIN tools t ON t.id = s.tool_id
WHERE s.run_id = $1 AND s.step_id = $2
FOR KEY SHARE OF h
"""

_SLOTS = """
SELECT scope, network_id, sum(coalesce((slots ->> $2)::int, 1))::int AS slots
FROM workers
WHERE status = 'online' AND deleted_at IS NULL AND $2 = ANY(toolsets)
  AND (workspace_id = $1 OR scope = 'shared')
GROUP BY scope, network_id
"""

_DUE = f"""
SELECT count(*) FROM (
  SELECT 1 FROM jobs
  WHERE run_id = $1 AND step_id = $2 AND {LIVE_JOB} AND status = {PENDING} AND dispatch_id IS NULL
    AND due_at <= clock_timestamp()
  LIMIT $3
) due
"""

_TAKE = f"""
SELECT id, priority, network_id, alone FROM jobs
WHERE run_id = $1 AND step_id = $2 AND {LIVE_JOB} AND status = {PENDING} AND dispatch_id IS NULL
  AND due_at <= clock_timestamp()
ORDER BY priority, created_at, id
LIMIT $3
FOR UPDATE SKIP LOCKED
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

_LIVE = f"""
SELECT EXISTS (SELECT 1 FROM jobs WHERE run_id = $1 AND step_id = $2 AND {LIVE_JOB})
"""

_NEXT_DUE = f"""
SELECT extract(epoch FROM min(due_at) - clock_timestamp())::float8 FROM jobs
WHERE run_id = $1 AND step_id = $2 AND {LIVE_JOB} AND status = {PENDING} AND dispatch_id IS NULL
"""

_IDS = "SELECT uuidv7() FROM generate_series(1, $1)"

_BLOCK = """
UPDATE job_histories SET blocked_reason = $2
WHERE id = $1 AND closed_at IS NULL AND blocked_reason IS DISTINCT FROM $2
"""


async def next_batches(conn: Connection, call: NextBatches) -> Batches:
    """Takes due jobs, writes their dispatches and says what is left, in one transaction of the caller.

    A workflow that does not own the run any more is told so; the key-share lock keeps an adoption out until
    this transaction has ended.

    Order: priority, then oldest first, inside each step. Uses the partial index `jobs_dispatchable`.
    """
    repeated = await conn.fetch(_REPEATED, call.workflow_run_id, call.call_number)
    dispatches = [Dispatch(*row) for row in repeated]
    steps: list[StepWork] = []
    blocked: set[str] = set()
    known: str | None = None
    for step_id, room in call.rooms.items():
        step = await conn.fetchrow(_STEP, call.run_id, step_id, call.owner)
        if step is None or step["is_closed"]:
            return Batches(is_closed=True)
        if step["is_superseded"]:
            return Batches(is_closed=False, is_superseded=True)
        known = step["blocked_reason"]
        taker = _Taker(conn, call, step_id, step)
        wanted = 0 if repeated or step["is_paused"] else room
        taken = await taker.take(wanted)
        dispatches += taken.dispatches
        work = await taker.rest(taken, wanted)
        steps.append(work)
        if work.is_live and not taken.has_worker:
            blocked.add(no_worker(step["toolset"]))
    reason = "; ".join(sorted(blocked)) or None
    if reason != known:
        await conn.execute(_BLOCK, call.run_id, reason)
    return Batches(is_closed=False, dispatches=dispatches, steps=steps)


@dataclass(frozen=True, slots=True)
class _Taken:
    dispatches: list[Dispatch]
    rows: int
    due: int
    has_worker: bool


@dataclass(frozen=True, slots=True)
class _Routes:
    """Which task queue serves a network. `slots` are those of live workers that the workspace allows."""

    workspace_id: UUID
    toolset: str
    slots: Mapping[tuple[str, UUID | None], int]

    def queue_of(self, network_id: UUID | None) -> str:
        """Own workers first; shared ones never for an internal network, and only if live."""
        own = self.slots.get(("workspace", network_id), 0)
        shared = self.slots.get(("shared", None), 0) if network_id is None else 0
        if own == 0 and shared > 0:
            return names.shared_scan_queue(self.toolset)
        return names.scan_queue(self.workspace_id, self.toolset, network_id)


class _Taker:
    """Takes the due jobs of one step."""

    def __init__(self, conn: Connection, call: NextBatches, step_id: str, step: Record) -> None:
        self._conn = conn
        self._call = call
        self._step_id = step_id
        self._tool_id: str = step["tool_id"]
        self._toolset: str = step["toolset"]
        self._is_paused: bool = step["is_paused"]
        self._allow_shared: bool = step["allow_shared"]
        self._most = limits_of(step["tool_id"]).most(step["jobs_total"])

    async def take(self, room: int) -> _Taken:
        routes = await self._routes()
        slots = sum(routes.slots.values())
        if room <= 0:
            return _Taken([], 0, 0, has_worker=slots > 0)
        enough = max(BATCHES_PER_SLOT * slots, room) * self._most + 1  # more due jobs change nothing
        due = int(await self._conn.fetchval(_DUE, self._call.run_id, self._step_id, enough))
        if due == 0:
            return _Taken([], 0, 0, has_worker=slots > 0)
        size = batch_size(due, slots, self._most, self._call.least_batch)
        rows = await self._conn.fetch(_TAKE, self._call.run_id, self._step_id, room * size)
        groups = list(_grouped(rows, size))[:room]
        dispatches = await self._write(groups, routes)
        return _Taken(dispatches, sum(map(len, groups)), due, has_worker=slots > 0)

    async def _routes(self) -> _Routes:
        rows = await self._conn.fetch(_SLOTS, self._call.workspace_id, self._toolset)
        slots = {(row["scope"], row["network_id"]): row["slots"] for row in rows}
        if not self._allow_shared:
            slots = {key: count for key, count in slots.items() if key[0] != "shared"}
        return _Routes(self._call.workspace_id, self._toolset, slots)

    async def _write(self, groups: Sequence[Sequence[Record]], routes: _Routes) -> list[Dispatch]:
        if not groups:
            return []
        call = self._call
        ids = [row[0] for row in await self._conn.fetch(_IDS, len(groups))]
        queues = [routes.queue_of(group[0]["network_id"]) for group in groups]
        dispatches = [
            Dispatch(dispatch_id, self._step_id, self._tool_id, queue, group[0]["priority"], len(group))
            for dispatch_id, queue, group in zip(ids, queues, groups, strict=True)
        ]
        await self._conn.execute(
            _INSERT,
            call.workspace_id,
            call.run_id,
            self._step_id,
            call.workflow_id,
            call.workflow_run_id,
            call.call_number,
            ids,
            queues,
            [dispatch.priority for dispatch in dispatches],
            [dispatch.size for dispatch in dispatches],
        )
        pairs = [(row["id"], i) for i, group in zip(ids, groups, strict=True) for row in group]
        await self._conn.execute(_MARK, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        return dispatches

    async def rest(self, taken: _Taken, room: int) -> StepWork:
        run_id = self._call.run_id
        if taken.due > taken.rows:
            return StepWork(self._step_id, is_live=True, has_more=True)
        is_live = taken.rows > 0 or bool(await self._conn.fetchval(_LIVE, run_id, self._step_id))
        if not is_live:
            return StepWork(self._step_id, is_live=False)
        if self._is_paused:
            return StepWork(self._step_id, is_live=True, next_due_s=PAUSED_LOOK_S)
        next_due_s = await self._conn.fetchval(_NEXT_DUE, run_id, self._step_id)
        has_more = room == 0 and next_due_s is not None and next_due_s <= 0
        return StepWork(self._step_id, is_live, has_more, None if has_more else next_due_s)


def _grouped(rows: Iterable[Record], size: int) -> Iterable[list[Record]]:
    """Batches of one priority and one network, in order; a job marked alone is a batch by itself."""
    batch: list[Record] = []
    for row in rows:
        fits = (
            batch
            and not row["alone"]
            and not batch[0]["alone"]
            and len(batch) < size
            and batch[0]["priority"] == row["priority"]
            and batch[0]["network_id"] == row["network_id"]
        )
        if batch and not fits:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
