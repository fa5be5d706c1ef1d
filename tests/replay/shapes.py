"""Shapes of runs: what can happen to a run, each played on real servers with as few jobs as show it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final
from uuid import UUID, uuid4

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.worker import Worker

from activities.deliveries import DeliveryActivities, Outbound
from activities.fires import FireActivities
from activities.sweeps import Buckets, SweepActivities
from runlane import names
from runlane.db import admit
from runlane.db.claims import ClaimedJob
from runlane.jobs import Outcome
from runlane.keyring import Keyring
from runlane.outbound.transports import transports
from runlane.sweeps import Bounds, Part
from tests.integration.run_world import Gate, RunWorld, graph
from tests.integration.scan_host import Done
from tests.receivers import LOOPBACK, sender
from tests.waiting import WAIT_S
from workflows.delivering import start_deliveries
from workflows.dispatching import Limits
from workflows.fire import FireInput, ScheduleFire
from workflows.sweeps import SweepInput, SweepWorkflow


@dataclass(frozen=True, slots=True)
class Execution:
    """One workflow execution. `run_id` None: the newest of its id."""

    workflow_id: str
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """How a run closed, and the executions to keep, by the names of their histories."""

    status: object
    executions: Mapping[str, Execution]


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape. `play` brings its own workers."""

    play: Callable[[RunWorld], Awaitable[Played]]
    histories: tuple[str, ...]
    status: str


def _completed(step_id: str, job: ClaimedJob) -> Done:
    return Done()


async def _all_done(world: RunWorld) -> Played:
    async with world.workers(), world.host(_completed):
        run_id = await world.start(
            graph(a=[], b=["a"], c=["a"]),
        )
        status = await world.end_of(run_id)
    return _played(run_id, status, "run_all_done")


async def _admitted_aside(world: RunWorld) -> Played:
    """The request admits one chunk, the workflow another, an activity of its own the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admit, "CHUNK", 2)
        async with world.workers(), world.host(_completed):
            run_id = await world.start(graph(a=[]), count=7)
            status = await world.end_of(run_id)
    return _played(run_id, status, "run_admitted_aside")


async def _step_failed(world: RunWorld) -> Played:
    def tool(step_id: str, job: ClaimedJob) -> Done:
        return Done(Outcome.FATAL, error="no such thing") if step_id == "a" else Done()

    async with world.workers(), world.host(tool):
        run_id = await world.start(graph(a=[], b=["a"], side=[]))
        status = await world.end_of(run_id)
    return _played(run_id, status, "run_step_failed_dependents_skipped")


async def _worker_lost(world: RunWorld) -> Played:
    """Silent until its heartbeat is missed, then lost once more: the second time there is a back-off."""

    async def tool(step_id: str, job: ClaimedJob) -> Done:
        if job.attempt == 1:
            await asyncio.Event().wait()
        return Done(None) if job.attempt == 2 else Done()

    async with world.workers(heartbeat_s=1), world.host(tool):
        run_id = await world.start(graph(a=[]))
        status = await world.end_of(run_id)
    return _played(run_id, status, "run_worker_lost")


async def _worker_disconnected(world: RunWorld) -> Played:
    gate = Gate()
    async with world.workers(), world.host(gate.tool, slots=1) as host:
        run_id = await world.start(graph(a=[]))
        await gate.entered()
        await world.lose(host)
        async with world.host(gate.tool):
            status = await world.end_of(run_id)
        gate.open()
    return _played(run_id, status, "run_worker_disconnected")


async def _tool_failed(world: RunWorld) -> Played:
    def tool(step_id: str, job: ClaimedJob) -> Done:
        return Done(Outcome.TOOL_FAILED, error="exit status 1") if job.attempt == 1 else Done()

    async with world.workers(), world.host(tool):
        run_id = await world.start(graph(a=[]))
        await world.until_timer(run_id)
        await world.end_back_off(run_id)
        status = await world.end_of(run_id)
    return _played(run_id, status, "run_tool_failed_then_retried")


async def _cancelled(world: RunWorld) -> Played:
    gate = Gate()
    async with world.workers(), world.host(gate.tool):
        run_id = await world.start(graph(a=[], b=["a"]))
        await gate.entered()
        await world.cancel(run_id)
        gate.open()
        status = await world.end_of(run_id)
    return _played(run_id, status, "run_cancelled_in_the_middle")


async def _cancelled_in_temporal(world: RunWorld) -> Played:
    gate = Gate()
    async with world.workers(), world.host(gate.tool):
        run_id = await world.start(graph(a=[], b=["a"]))
        await gate.entered()
        await world.handle(run_id).cancel()
        await world.until("SELECT closed_at IS NOT NULL FROM job_histories WHERE id = $1", run_id)
        gate.open()
        with suppress(WorkflowFailureError):
            await world.end_of(run_id)
        status = await world.value("SELECT status FROM job_histories WHERE id = $1", run_id)
    return _played(run_id, status, "run_cancelled_in_temporal")


async def _sharded(world: RunWorld) -> Played:
    small = replace(world, limits=Limits(window=1, budget=2, open_shards=1))
    async with world.workers(), world.host(_completed):
        run_id = await small.start(graph(a=[]), count=5)
        status = await world.end_of(run_id)
    played = _played(run_id, status, "run_sharded_step")
    shard = Execution(names.shard_workflow_id(run_id, "a", 0))
    return replace(played, executions={**played.executions, "shard_of_step": shard})


async def _resumed(world: RunWorld) -> Played:
    """Terminated while a batch is in progress: the next workflow takes it over from the rows."""
    gate = Gate()
    async with world.workers(), world.host(gate.tool):
        run_id = await world.start(graph(a=[], b=["a"]))
        await gate.entered()
        await world.handle(run_id).terminate("test")
        await world.start_again(run_id)
        await world.until("SELECT attempt = 2 FROM jobs WHERE run_id = $1 AND step_id = 'a'", run_id)
        gate.open()
        status = await world.end_of(run_id)
    return _played(run_id, status, "run_resumed_after_termination")


async def _reset(world: RunWorld) -> Played:
    """Reset to its first task while a batch is in progress: it adopts its own run once more."""
    gate = Gate()
    async with world.workers(), world.host(gate.tool):
        run_id = await world.start(graph(a=[], b=["a"]))
        await gate.entered()
        await world.reset(run_id)
        await world.until("SELECT attempt = 2 FROM jobs WHERE run_id = $1 AND step_id = 'a'", run_id)
        gate.open()
        status = await world.end_of(run_id)
    return _played(run_id, status, "run_reset_to_its_first_task")


async def _merge_failed(world: RunWorld) -> Played:
    def tool(step_id: str, job: ClaimedJob) -> Done:
        return Done(records=[{"name": f"bad.{job.spec['host']}"}])

    async with world.workers(), world.host(tool):
        async with world.broken_merge():
            run_id = await world.start(graph("dnsprobe", a=[]))
            await world.until_timer(run_id)
        status = await world.end_of(run_id)
    return _played(run_id, status, "run_merge_failed_then_retried")


async def _swept(world: RunWorld) -> Played:
    """Two parts, the second in several turns."""
    buckets = Buckets(world.storage, world.storage)
    activities = SweepActivities(world.pool, world.temporal, buckets, Bounds())
    parts = Worker(world.temporal, task_queue=names.SWEEP_QUEUE, activities=[activities.sweep])
    async with world.workers(), parts:
        handle = await world.temporal.start_workflow(
            SweepWorkflow.run,
            SweepInput("recorded", [Part.LATE_NUDGES, Part.OLD_ROWS]),
            id=names.sweep_schedule_id("recorded"),
            task_queue=names.CORE_QUEUE,
        )
        result = await asyncio.wait_for(handle.result(), WAIT_S)
    status = "completed" if result.parts.keys() == {Part.LATE_NUDGES, Part.OLD_ROWS} else "failed"
    return Played(status, {"sweep_of_two_parts": Execution(handle.id)})


async def _fired(world: RunWorld) -> Played:
    """A fire that waits until the run before it has ended."""
    spec = {"cron": "0 0 1 1 *", "time_zone": "UTC", "jitter_s": 0, "overlap": "buffer_one",
            "catch_up_s": 60, "ends_at": None}  # fmt: skip
    definition = graph(a=[]).as_json()
    target_id = await world.value(
        "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'lab.test') RETURNING id",
        world.workspace_id,
    )
    run = {"definition": definition, "targets": [str(target_id)], "config": {}, "priority": "normal"}
    run |= {"groups": [], "tags": []}
    schedule_id = await world.value(
        "INSERT INTO schedules (workspace_id, name, run, spec) VALUES ($1, 'recorded', $2, $3) RETURNING id",
        world.workspace_id, run, spec,
    )  # fmt: skip
    first_at, second_at = (datetime(2026, month, 1, tzinfo=UTC) for month in (1, 2))
    worker = Worker(
        world.temporal,
        task_queue=names.CORE_QUEUE,
        workflows=[ScheduleFire],
        activities=[FireActivities(world.pool).decide_fire],
    )
    async with worker:
        start = partial(world.temporal.start_workflow, ScheduleFire.run, task_queue=names.CORE_QUEUE)
        first = await start(FireInput(str(schedule_id), first_at), id=f"schedule/{schedule_id}/fire-1")
        ran = await asyncio.wait_for(first.result(), WAIT_S)
        second = await start(FireInput(str(schedule_id), second_at), id=f"schedule/{schedule_id}/fire-2")
        await world.until("SELECT EXISTS (SELECT FROM schedule_fires WHERE outcome = 'buffered')")
        await world.cancel(UUID(ran.run_id))
        answer = await asyncio.wait_for(second.result(), WAIT_S)
    return Played(answer.outcome, {"fire_that_waited": Execution(second.id)})


async def _delivered(world: RunWorld) -> Played:
    """A turn of deliveries to an endpoint that is not there any more."""
    async with sender() as (client, _):
        outbound = Outbound(client, transports(LOOPBACK), Keyring())
        turns = Worker(
            world.temporal,
            task_queue=names.DELIVERY_QUEUE,
            activities=[DeliveryActivities(world.pool, outbound).deliver],
        )
        workflow_id = f"{names.DELIVER_PREFIX}{uuid4()}"
        async with world.workers(), turns:
            await start_deliveries(world.temporal, workflow_id)
            handle = world.temporal.get_workflow_handle(workflow_id)
            attempts = await asyncio.wait_for(handle.result(), WAIT_S)
    return Played("completed" if attempts == 0 else "failed", {"deliver_once": Execution(workflow_id)})


def _played(run_id: UUID, status: object, name: str) -> Played:
    return Played(status, {name: Execution(names.run_workflow_id(run_id))})


SHAPES: Final = (
    Shape(_all_done, ("run_all_done",), "completed"),
    Shape(_admitted_aside, ("run_admitted_aside",), "completed"),
    Shape(_step_failed, ("run_step_failed_dependents_skipped",), "failed"),
    Shape(_worker_lost, ("run_worker_lost",), "completed"),
    Shape(_worker_disconnected, ("run_worker_disconnected",), "completed"),
    Shape(_tool_failed, ("run_tool_failed_then_retried",), "completed"),
    Shape(_cancelled, ("run_cancelled_in_the_middle",), "cancelled"),
    Shape(_cancelled_in_temporal, ("run_cancelled_in_temporal",), "cancelled"),
    Shape(_sharded, ("run_sharded_step", "shard_of_step"), "completed"),
    Shape(_resumed, ("run_resumed_after_termination",), "completed"),
    Shape(_reset, ("run_reset_to_its_first_task",), "completed"),
    Shape(_merge_failed, ("run_merge_failed_then_retried",), "completed"),
    Shape(_swept, ("sweep_of_two_parts",), "completed"),
    Shape(_fired, ("fire_that_waited",), "ran"),
    Shape(_delivered, ("deliver_once",), "completed"),
)
"""Every shape that has a stored history, and the status that its run closes with."""
