"""Acts of a person on runs that are under way: real Temporal, PostgreSQL, core and result workers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from runlane.db import pauses, priorities
from runlane.db.acts import Act, StepOfRun
from runlane.db.cancel import cancel_job, cancel_step
from runlane.db.claims import ClaimedJob
from runlane.db.dispatch import PAUSED, PAUSED_LOOK_S
from runlane.db.operations import Which, begin_cancel
from runlane.db.pauses import NewPause
from runlane.db.pool import Pool
from runlane.db.reruns import rerun_job, rerun_run
from runlane.jobs import Outcome, Priority
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.integration.run_world import Gate, RunWorld, graph
from tests.integration.scan_host import Done, enrol
from workflows.dispatching import Limits

pytestmark = pytest.mark.integration

ACT = Act(name="ops", reason="because")
DISPATCHED = "SELECT count(*) = $2 FROM jobs WHERE run_id = $1 AND dispatch_id IS NOT NULL"


@pytest_asyncio.fixture
async def world(
    stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> AsyncIterator[RunWorld]:
    client = await Client.connect(stack.urls.temporal_address)
    world = RunWorld(pool, database.owner, client, Storage(StorageConfig(**settings.bucket)), workspace_id)
    async with world.workers():
        yield world


def completed(step_id: str, job: ClaimedJob) -> Done:
    return Done()


async def test_last_waiting_job_of_a_run_is_cancelled_and_the_run_closes_without_a_worker(
    world: RunWorld,
) -> None:
    """What was withdrawn leaves nothing to go on from: the steps behind it do not begin."""
    run_id = await world.start(graph(a=[], b=["a"], side=[]))
    await world.until(DISPATCHED, run_id, 2)

    async with world.pool.acquire() as conn, conn.transaction():
        which = Which(run_id=run_id, step_id="a")
        assert (await begin_cancel(conn, world.workspace_id, which, ACT))["changed"] == 1
        job_id = await conn.fetchval("SELECT id FROM jobs WHERE step_id = 'side'")
        assert await cancel_job(conn, world.workspace_id, job_id, ACT)
    await world.relay()

    assert await world.end_of(run_id) == "failed"
    assert await world.count_jobs(run_id) == {"cancelled": 2}
    steps = await world.pool.fetch("SELECT step_id, status FROM run_steps ORDER BY step_id")
    assert [tuple(row) for row in steps] == [("a", "cancelled"), ("b", "skipped"), ("side", "cancelled")]
    assert await world.value("SELECT count(*) FROM outbox WHERE type = 'workflow.step.cancelled'") == 2
    assert await world.value("SELECT count(*) FROM dispatches WHERE closed_at IS NULL") == 0


async def test_dependents_of_a_cancelled_step_are_skipped_and_other_branches_go_on(world: RunWorld) -> None:
    gate = Gate()
    async with world.host(gate.tool):
        run_id = await world.start(graph(a=[], b=["a"], side=[]), count=2)
        await gate.entered()
        async with world.pool.acquire() as conn, conn.transaction():
            done = await cancel_step(conn, StepOfRun(world.workspace_id, run_id, "a"), ACT)
        await world.relay()
        await world.until("SELECT status = 'skipped' FROM run_steps WHERE step_id = 'b'")
        gate.open()
        status = await world.end_of(run_id)

    assert (done.jobs, status) == (2, "failed")
    assert await world.count_jobs(run_id) == {"cancelled": 2, "completed": 2}


async def test_change_of_priority_dispatches_anew_what_waits_in_a_full_window(world: RunWorld) -> None:
    full = replace(world, limits=Limits(window=1))
    enrolled = await enrol(world.pool, world.workspace_id, slots=1)  # nothing serves its queue yet
    run_id = await full.start(graph(a=[]), count=3)
    await world.until(DISPATCHED, run_id, 1)
    before = await world.value("SELECT id FROM dispatches")

    async with world.pool.acquire() as conn, conn.transaction():
        done = await priorities.prioritise_run(conn, world.workspace_id, run_id, Priority.CRITICAL, ACT)
    await world.relay()

    assert (done.jobs, done.moved) == (3, 3)
    await world.until("SELECT EXISTS (SELECT FROM dispatches WHERE id <> $1 AND priority = 0)", before)
    await world.until("SELECT closed_at IS NOT NULL FROM dispatches WHERE id = $1", before)
    await world.pool.execute("UPDATE workers SET deleted_at = now() WHERE id = $1", enrolled.worker_id)
    async with world.host(completed):
        assert await world.end_of(run_id) == "completed"
    assert await world.value("SELECT bool_and(attempt = 1) FROM jobs")


async def test_job_that_was_run_again_in_its_open_step_does_not_fail_it(world: RunWorld) -> None:
    gate = Gate()

    async def tool(step_id: str, job: ClaimedJob) -> Done:
        if step_id == "b" or job.spec["host"] != "h1.lab.test":
            return await gate.tool(step_id, job)
        is_first = await world.value("SELECT generation = 0 FROM jobs WHERE id = $1", job.job_id)
        return Done(Outcome.FATAL, error="no") if is_first else Done()

    async with world.host(tool):
        run_id = await world.start(graph(a=[], b=["a"]), count=2)
        await gate.entered()
        await world.until("SELECT EXISTS (SELECT FROM jobs WHERE status = 'failed')")
        failed = await world.pool.fetchval("SELECT id FROM jobs WHERE status = 'failed'")
        async with world.pool.acquire() as conn, conn.transaction():
            again = await rerun_job(conn, world.workspace_id, failed, ACT)
        await world.relay()
        await world.until("SELECT status = 'completed' FROM jobs WHERE id = $1", again.job_id)
        gate.open()
        status = await world.end_of(run_id)

    assert (again.run_id, status) == (run_id, "completed")
    row = await world.row("SELECT jobs_total, jobs_failed FROM run_steps WHERE step_id = 'a'")
    assert row == (2, 0)


async def test_rerun_from_a_step_is_a_run_of_its_own_over_the_same_targets(world: RunWorld) -> None:
    async with world.host(completed):
        run_id = await world.start(graph(a=[], b=["a"], c=["b"]), count=2)
        assert await world.end_of(run_id) == "completed"
        late = "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'late.test')"
        await world.pool.execute(late, world.workspace_id)
        async with world.pool.acquire() as conn, conn.transaction():
            again = await rerun_run(conn, world.workspace_id, run_id, ACT, from_step="b")
            await conn.execute("UPDATE commands SET due_at = clock_timestamp()")
        await world.relay()

        assert await world.end_of(again.run_id) == "completed"
    assert await world.count_jobs(again.run_id) == {"completed": 4}
    assert await world.value("SELECT rerun_of FROM job_histories WHERE id = $1", again.run_id) == run_id


async def test_paused_run_gives_up_what_was_dispatched_uncharged_and_sleeps_until_it_is_resumed(
    world: RunWorld,
) -> None:
    """Look-ins once a minute would fill the history of a run that is paused for weeks."""
    run_id = await world.start(graph(a=[]), count=2)
    await world.until(DISPATCHED, run_id, 2)
    async with world.pool.acquire() as conn, conn.transaction():
        paused = await pauses.pause(conn, NewPause(world.workspace_id, run_id), ACT)
    await world.relay()

    async with world.host(completed):
        await world.until("SELECT blocked_reason = $2 FROM job_histories WHERE id = $1", run_id, PAUSED)
        await world.until("SELECT bool_and(closed_at IS NOT NULL) FROM dispatches")
        await world.until_timer(run_id)
        async with world.pool.acquire() as conn, conn.transaction():
            await pauses.lift(conn, world.workspace_id, UUID(str(paused.row["id"])), ACT)
        await world.relay()
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.value("SELECT bool_and(attempt = 1 AND free_attempts = 0) FROM jobs")
    history = await world.handle(run_id).fetch_history()
    timers = [
        event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta().total_seconds()
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED
    ]
    assert PAUSED_LOOK_S in timers
    assert PAUSED_LOOK_S >= 3600


@pytest.mark.parametrize("what", ["toolset", "workspace", "platform"])
async def test_claim_takes_nothing_that_any_pause_covers(world: RunWorld, what: str) -> None:
    run_id = await world.start(graph(a=[]))
    await world.until(DISPATCHED, run_id, 1)
    host = await enrol(world.pool, world.workspace_id)
    workspace_id = None if what == "platform" else world.workspace_id
    wanted = NewPause(workspace_id, toolset="probe" if what == "toolset" else None)
    dispatch_id = UUID(str(await world.value("SELECT dispatch_id FROM jobs")))
    async with world.pool.acquire() as conn, conn.transaction():
        paused = await pauses.pause(conn, wanted, ACT)

    answer = await host.claim(dispatch_id, "key", 1)

    assert answer.jobs == ()
    assert await world.value("SELECT dispatch_id IS NULL AND attempt = 0 FROM jobs")
    async with world.pool.acquire() as conn, conn.transaction():
        await pauses.lift(conn, workspace_id, UUID(str(paused.row["id"])), ACT)
    concerned = "SELECT count(*) FROM commands WHERE kind = 'nudge' AND workflow_id = 'run/' || $1::uuid"
    assert await world.value(concerned, run_id) == 1
    await world.cancel(run_id)
    assert await asyncio.wait_for(world.end_of(run_id), 60) == "cancelled"
