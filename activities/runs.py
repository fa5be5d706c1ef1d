"""Run activities: short transactions on a run's rows, called as local activities by its workflow.

Every one is safe to repeat: each state change is conditional, each call of `next_batches` has a number.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from temporalio import activity

from activities.failures import translated
from activities.heartbeats import beating
from runlane.db import admit, cancel, dispatch, runs, shards
from runlane.db.acts import Act
from runlane.db.pool import Connection, Pool
from runlane.jobs import RunVerb
from runlane.runs import Step, start_to_close

ADMIT_TURN_S: Final = 5.0
"""No chunk is begun in a turn of admission that has lasted this long: then its workflow looks what came."""

ADMIT_AT_ONCE: Final = 2
"""Chunks of large steps under way at once in a process: steps take turns, and dispatch finds connections."""


@dataclass
class RunRef:
    """A run and the workflow that asks."""

    run_id: str
    workflow_id: str


@dataclass
class AdoptInput:
    """A run and the workflow run that has just begun to drive it."""

    run_id: str
    workflow_run_id: str
    started_at: datetime


@dataclass
class RunView:
    """A run as its workflow sees it."""

    run_id: str
    workspace_id: str
    name: str
    status: str
    is_closed: bool
    steps: list[Step] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)


@dataclass
class StepRef:
    """One step of a run."""

    run_id: str
    step_id: str


@dataclass
class AdmittedChunk:
    """What one chunk of admit did."""

    jobs: int
    is_done: bool


@dataclass
class SkipInput:
    """Steps that can never start."""

    run_id: str
    step_ids: list[str]


@dataclass
class CloseInput:
    """How to close a run: a `RunVerb`."""

    run_id: str
    verb: str


@dataclass
class NextInput:
    """One call for batches, keyed by the workflow's run and the call's number."""

    run_id: str
    workspace_id: str
    workflow_id: str
    workflow_run_id: str
    owner: str
    call_number: int
    rooms: dict[str, int]
    least_batch: int = 1


@dataclass
class BatchView:
    """A batch to start: its id is the activity's id."""

    dispatch_id: str
    step_id: str
    tool_id: str
    task_queue: str
    priority: int
    size: int
    start_to_close_s: float
    heartbeat_s: float
    fairness_key: str = ""
    """Among whom the workers of the queue are shared out: workspaces or, if empty, runs."""


@dataclass
class WorkView:
    """What is left of a step."""

    step_id: str
    is_live: bool
    has_more: bool = False
    next_due_s: float | None = None


@dataclass
class NextResult:
    """Answer to one call for batches."""

    is_closed: bool
    batches: list[BatchView] = field(default_factory=list)
    steps: list[WorkView] = field(default_factory=list)
    is_superseded: bool = False


@dataclass
class OpenShardsInput:
    """How many shards of a step to open."""

    run_id: str
    step_id: str
    count: int


@dataclass
class ShardRef:
    """A shard by its workflow id."""

    workflow_id: str


class RunActivities:
    """Activities of the core worker."""

    def __init__(self, pool: Pool, *, heartbeat_s: float) -> None:
        self._pool = pool
        self._heartbeat_s = heartbeat_s
        self._admitting = asyncio.Semaphore(ADMIT_AT_ONCE)

    def all(self) -> Sequence[Callable[..., object]]:
        """What the core worker registers."""
        return [
            self.load_run,
            self.resync_run,
            self.open_step,
            self.admit_chunk,
            self.admit_rest,
            self.close_step,
            self.skip_steps,
            self.close_run,
            self.cancel_run,
            self.next_batches,
            self.open_shards,
            self.close_shard,
        ]

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        async with translated(), self._pool.acquire() as conn, conn.transaction():
            yield conn

    @activity.defn
    async def load_run(self, request: AdoptInput) -> RunView:
        """Starts or adopts a run from its rows; repeated before the first dispatch, it finds the same."""
        owner = runs.Owner(request.workflow_run_id, request.started_at)
        async with self._transaction() as conn:
            return _run_view(await runs.load(conn, UUID(request.run_id), owner))

    @activity.defn
    async def resync_run(self, ref: RunRef) -> RunView:
        """Reads a run again and which of this workflow's batches lost their worker; changes one flag."""
        async with self._transaction() as conn:
            return _run_view(await runs.resync(conn, UUID(ref.run_id), ref.workflow_id))

    @activity.defn
    async def open_step(self, ref: StepRef) -> None:
        """Opens a waiting step; an open one stays as it is."""
        async with self._transaction() as conn:
            await admit.open_step(conn, UUID(ref.run_id), ref.step_id)

    @activity.defn
    async def admit_chunk(self, ref: StepRef) -> AdmittedChunk:
        """Admits up to 1,000 jobs behind the step's cursor; a repeated chunk goes on behind it."""
        async with self._transaction() as conn:
            admitted = await admit.admit_chunk(conn, UUID(ref.run_id), ref.step_id)
        return AdmittedChunk(admitted.jobs, admitted.is_done)

    @activity.defn
    async def admit_rest(self, ref: StepRef) -> AdmittedChunk:
        """Admits what is left of a step, for a turn: chunk after chunk, each in a transaction of its own.

        A repeated turn goes on behind the step's cursor. Done with the scope, or when step or run are closed.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + ADMIT_TURN_S
        jobs, is_done = 0, False
        async with beating():
            while not is_done and (not jobs or clock() < until):
                async with self._admitting:
                    chunk = await self.admit_chunk(ref)
                jobs, is_done = jobs + chunk.jobs, chunk.is_done
        return AdmittedChunk(jobs, is_done)

    @activity.defn
    async def close_step(self, ref: StepRef) -> str:
        """Closes a step whose jobs have ended and answers its status; a closed one answers the same."""
        async with self._transaction() as conn:
            return await runs.close_step(conn, UUID(ref.run_id), ref.step_id)

    @activity.defn
    async def skip_steps(self, request: SkipInput) -> None:
        """Skips waiting steps; those skipped already stay so."""
        async with self._transaction() as conn:
            await runs.skip_steps(conn, UUID(request.run_id), request.step_ids)

    @activity.defn
    async def close_run(self, request: CloseInput) -> str:
        """Closes a run without live jobs and answers its status; a closed one answers the same."""
        async with self._transaction() as conn:
            return await runs.close_run(conn, UUID(request.run_id), RunVerb(request.verb))

    @activity.defn
    async def cancel_run(self, ref: RunRef) -> None:
        """Cancels a run whose workflow was cancelled in Temporal; a closed run stays as it is."""
        async with self._transaction() as conn:
            read = await runs.resync(conn, UUID(ref.run_id), ref.workflow_id)
            if not read.is_closed:
                act = Act(reason="cancelled in Temporal")
                await cancel.cancel_run(conn, read.workspace_id, read.run_id, act)

    @activity.defn
    async def next_batches(self, request: NextInput) -> NextResult:
        """Takes due jobs into batches; the same call number answers the same batches."""
        call = dispatch.NextBatches(
            run_id=UUID(request.run_id),
            workspace_id=UUID(request.workspace_id),
            workflow_id=request.workflow_id,
            workflow_run_id=request.workflow_run_id,
            owner=request.owner,
            call_number=request.call_number,
            rooms=request.rooms,
            least_batch=request.least_batch,
        )
        async with self._transaction() as conn:
            batches = await dispatch.next_batches(conn, call)
        return NextResult(
            is_closed=batches.is_closed,
            is_superseded=batches.is_superseded,
            batches=[self._batch_view(taken, call.workspace_id) for taken in batches.dispatches],
            steps=[WorkView(s.step_id, s.is_live, s.has_more, s.next_due_s) for s in batches.steps],
        )

    def _batch_view(self, taken: dispatch.Dispatch, workspace_id: UUID) -> BatchView:
        life = start_to_close(taken.size, wall_s=taken.wall_s, parallelism=taken.parallelism)
        return BatchView(
            dispatch_id=str(taken.dispatch_id),
            step_id=taken.step_id,
            tool_id=taken.tool_id,
            task_queue=taken.task_queue,
            priority=taken.priority,
            size=taken.size,
            start_to_close_s=life.total_seconds(),
            heartbeat_s=self._heartbeat_s,
            fairness_key=str(workspace_id) if taken.is_shared else "",
        )

    @activity.defn
    async def open_shards(self, request: OpenShardsInput) -> list[int]:
        """Numbers of shards to start, so that `count` are open; open ones are answered again."""
        async with self._transaction() as conn:
            return await shards.open_shards(conn, UUID(request.run_id), request.step_id, request.count)

    @activity.defn
    async def close_shard(self, ref: ShardRef) -> None:
        """Marks a shard as ended; repeated, it changes nothing."""
        async with self._transaction() as conn:
            await shards.close_shard(conn, ref.workflow_id)


def _run_view(read: runs.RunRead) -> RunView:
    return RunView(
        run_id=str(read.run_id),
        workspace_id=str(read.workspace_id),
        name=read.name,
        status=read.status,
        is_closed=read.is_closed,
        steps=read.steps,
        orphans=[str(dispatch_id) for dispatch_id in read.orphans],
        slow=[str(dispatch_id) for dispatch_id in read.slow],
    )
