"""Runs from rows to their end: real Temporal, PostgreSQL, core and result workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus

from runlane import names
from runlane.db.claims import ClaimedJob
from runlane.db.pool import Pool
from runlane.db.staging import Staged
from runlane.jobs import MAX_FAILURES, Outcome
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from runlane.worker import run_core, run_results
from tests.conftest import Database
from tests.integration.run_world import BEGUN_ANEW, DISCONNECTED, Gate, RunWorld, graph
from tests.integration.scan_host import Done
from tests.waiting import until
from workflows.dispatching import Limits

pytestmark = pytest.mark.integration

BOTH_FORMS = pytest.mark.parametrize("in_bucket", [False, True], ids=["inline", "object"])


@pytest_asyncio.fixture
async def world(
    stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> AsyncIterator[RunWorld]:
    """A workspace whose runs are driven by core and result workers as they are deployed."""
    client = await Client.connect(stack.urls.temporal_address)
    storage = Storage(StorageConfig(**settings.bucket))
    async with _processes(settings):
        yield RunWorld(pool, database.owner, client, storage, workspace_id)


@asynccontextmanager
async def _processes(settings: Settings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    tasks = [asyncio.create_task(run_core(settings, stop)), asyncio.create_task(run_results(settings, stop))]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


APP = Done(records=[{"name": "app.h1.lab.test"}])


def always_completed(step_id: str, job: ClaimedJob) -> Done:
    return Done()


def app_found(step_id: str, job: ClaimedJob) -> Done:
    return APP


async def test_run_completes_when_every_job_does(world: RunWorld) -> None:
    async with world.host(always_completed):
        run_id = await world.start(graph(a=[], b=["a"], c=["a"]), count=3)
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.count_jobs(run_id) == {"completed": 9}


async def test_dependents_of_a_failed_step_are_skipped_and_other_branches_finish(world: RunWorld) -> None:
    def tool(step_id: str, job: ClaimedJob) -> Done:
        return Done(Outcome.FATAL, error="no such thing") if step_id == "a" else Done()

    async with world.host(tool):
        run_id = await world.start(graph(a=[], b=["a"], c=["b"], side=[]), count=3)
        status = await world.end_of(run_id)

    assert status == "failed"
    steps = await world.pool.fetch("SELECT step_id, status FROM run_steps WHERE run_id = $1", run_id)
    assert dict(map(tuple, steps)) == {"a": "failed", "b": "skipped", "c": "skipped", "side": "completed"}
    assert await world.value("SELECT count(*) FROM job_error_logs") == 3


async def test_lost_job_is_released_and_done_again_uncharged(world: RunWorld) -> None:
    def tool(step_id: str, job: ClaimedJob) -> Done:
        return Done(None) if job.attempt == 1 else Done()

    async with world.host(tool):
        run_id = await world.start(graph(a=[]), count=3)
        status = await world.end_of(run_id)

    assert status == "completed"
    rows = await world.pool.fetch("SELECT outcome, charged FROM job_attempts ORDER BY attempt, job_id")
    assert [tuple(row) for row in rows] == [("lost", False)] * 3 + [("completed", False)] * 3
    assert await world.value("SELECT bool_and(alone) FROM jobs")


async def test_run_cancelled_while_its_jobs_wait_for_a_worker(world: RunWorld) -> None:
    run_id = await world.start(graph(a=[], b=["a"]), count=3)

    cancelled = await world.cancel(run_id)
    status = await world.end_of(run_id)

    assert cancelled.jobs == 3
    assert status == "cancelled"
    assert await world.count_jobs(run_id) == {"cancelled": 3}


async def test_step_beyond_the_budget_goes_on_in_shards(world: RunWorld) -> None:
    small = replace(world, limits=Limits(budget=4, window=2, open_shards=2))

    async with world.host(always_completed):
        run_id = await small.start(graph(a=[]), count=30)
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.count_jobs(run_id) == {"completed": 30}
    assert await world.value("SELECT count(*) FROM run_shards WHERE closed_at IS NULL") == 0
    shards = await world.pool.fetchval("SELECT count(*) FROM run_shards")
    assert shards >= 6


async def test_terminated_workflow_is_resumed_from_rows(world: RunWorld) -> None:
    run_id = await world.start(graph(a=[], b=["a"]), count=3)
    await world.handle(run_id).terminate("test")
    await world.start_again(run_id)

    async with world.host(always_completed):
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.count_jobs(run_id) == {"completed": 6}


async def test_workflow_reset_in_temporal_drives_the_run_again_from_its_rows(world: RunWorld) -> None:
    gate = Gate()
    run_id = await world.start(graph(a=[], b=["a"]), count=3)

    async with world.host(gate.tool):
        await gate.entered()
        await world.reset(run_id)
        await world.until("SELECT EXISTS (SELECT FROM job_attempts WHERE outcome = 'released')")
        gate.open()
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.count_jobs(run_id) == {"completed": 6}
    assert len((await world.handle(run_id).fetch_history()).events) < 200


async def test_failing_tool_is_retried_until_its_budget_is_spent(world: RunWorld) -> None:
    def tool(step_id: str, job: ClaimedJob) -> Done:
        return Done(Outcome.TOOL_FAILED, [{"seen": job.attempt}], error="exit status 1")

    async with world.host(tool):
        run_id = await world.start(graph(a=[]))
        for failures in range(1, MAX_FAILURES):
            await world.until("SELECT failures = $1 AND due_at > now() + '5 s' FROM jobs", failures)
            await world.end_back_off(run_id)
        status = await world.end_of(run_id)

    assert status == "failed"
    job = await world.row("SELECT status, reason, failures, retryable FROM jobs")
    assert job == ("failed", "budget", 4, False)
    attempts = await world.row("SELECT count(*), bool_and(charged), min(outcome) FROM job_attempts")
    assert attempts == (4, True, "tool_failed")
    error = await world.row("SELECT message, times, attempt, partial FROM job_error_logs")
    assert error == ("exit status 1", 4, 4, '[{"seen":4}]')


@BOTH_FORMS
async def test_staged_result_is_merged_and_discarded(world: RunWorld, in_bucket: bool) -> None:
    async with world.host(app_found, in_bucket=in_bucket):
        run_id = await world.start(graph("dnsprobe", a=[]))
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.assets() == ["app.h1.lab.test", "h1.lab.test"]
    assert await world.staged() == (0, 0)


@BOTH_FORMS
async def test_result_that_cannot_be_merged_hurts_only_its_own_job(world: RunWorld, in_bucket: bool) -> None:
    together = replace(world, limits=Limits(least_batch=3))

    def tool(step_id: str, job: ClaimedJob) -> Done:
        host = job.spec["host"]
        return Done(records=[{"name": f"bad.{host}" if host == "h2.lab.test" else f"app.{host}"}])

    async with world.broken_merge(), world.host(tool, in_bucket=in_bucket):
        run_id = await together.start(graph("dnsprobe", a=[]), count=3)
        await world.until("SELECT count(*) = 2 FROM jobs WHERE status = 'completed'")
        is_decided = await world.value("SELECT max(merge_failures) = 3 FROM job_attempts")
        status = await world.end_of(run_id)

    assert not is_decided
    assert status == "failed"
    assert await world.count_jobs(run_id) == {"completed": 2, "failed": 1}
    job = await world.row(
        "SELECT reason, retryable, failures, result_ref IS NOT NULL FROM jobs WHERE status = 'failed'"
    )
    assert job == ("merge", True, 1, True)
    attempt = await world.row("SELECT merge_failures, outcome FROM job_attempts WHERE charged")
    assert attempt == (3, "merge_failed")
    assert await world.assets() == sorted(
        ["app.h1.lab.test", "app.h3.lab.test", "h1.lab.test", "h2.lab.test", "h3.lab.test"]
    )
    assert await world.staged() == (1, in_bucket)
    assert await world.value("SELECT partial LIKE '%bad.h2.lab.test%' FROM job_error_logs")


@BOTH_FORMS
async def test_late_result_after_cancel_is_discarded(world: RunWorld, in_bucket: bool) -> None:
    gate = Gate()
    async with world.host(gate.tool, in_bucket=in_bucket) as host:
        run_id = await world.start(graph("dnsprobe", a=[]))
        await gate.entered()
        late = await host.first(APP)
        await world.cancel(run_id)
        staged = await host.stage(late)
        status = await world.end_of(run_id)

    assert status == "cancelled"
    assert staged == Staged([], [host.jobs[0].job_id])
    assert await world.count_jobs(run_id) == {"cancelled": 1}
    assert await world.assets() == ["h1.lab.test"]
    assert await world.value("SELECT count(*) FROM job_results") == 0


@BOTH_FORMS
async def test_result_staged_just_before_cancel_is_discarded(world: RunWorld, in_bucket: bool) -> None:
    gate = Gate()
    async with world.host(gate.tool, in_bucket=in_bucket) as host:
        run_id = await world.start(graph("dnsprobe", a=[]))
        await gate.entered()
        await host.stage(await host.first(APP))
        await world.cancel(run_id)
        status = await world.end_of(run_id)

    assert status == "cancelled"
    assert await world.assets() == ["h1.lab.test"]
    assert await world.staged() == (0, 0)


@BOTH_FORMS
async def test_shard_of_a_cancelled_run_stops_its_batches_before_the_run_ends(
    world: RunWorld, in_bucket: bool
) -> None:
    small = replace(world, limits=Limits(budget=1, window=1, open_shards=1))
    gate = Gate()
    async with world.host(gate.tool, in_bucket=in_bucket) as host:
        run_id = await small.start(graph("dnsprobe", a=[]), count=2)
        await until(lambda: len(host.jobs) == 2)
        shard_batch = await world.value(
            "SELECT id::text FROM dispatches WHERE workflow_id = $1", names.shard_workflow_id(run_id, "a", 0)
        )
        shard_job = await world.value("SELECT id FROM jobs WHERE dispatch_id = $1::uuid", shard_batch)
        claimed = next(job for job in host.jobs if job.job_id == shard_job)
        await host.stage(await host.delivery(UUID(str(shard_batch)), [(claimed, APP)]))
        await world.cancel(run_id)
        status = await world.end_of(run_id)

    assert status == "cancelled"
    shard = await world.temporal.get_workflow_handle(names.shard_workflow_id(run_id, "a", 0)).describe()
    assert shard.status is WorkflowExecutionStatus.COMPLETED
    assert await world.staged() == (0, 0)


@pytest.mark.parametrize("change", [DISCONNECTED, BEGUN_ANEW], ids=["disconnected", "begun_anew"])
async def test_job_of_a_lost_worker_is_done_elsewhere_before_its_activity_ends(
    world: RunWorld, change: str
) -> None:
    gate = Gate()
    async with world.host(gate.tool, slots=1) as lost:
        run_id = await world.start(graph(a=[]))
        await gate.entered()
        await world.lose(lost, change)
        async with world.host(gate.tool) as other:
            status = await world.end_of(run_id)

    assert status == "completed"
    attempts = await world.pool.fetch("SELECT worker_id, outcome, charged FROM job_attempts ORDER BY attempt")
    assert [tuple(row) for row in attempts] == [
        (lost.worker_id, "lost", False),
        (other.worker_id, "completed", False),
    ]


async def test_result_of_a_lost_worker_is_refused_after_the_release(world: RunWorld) -> None:
    gate = Gate()
    async with world.host(gate.tool, slots=1) as lost:
        run_id = await world.start(graph("dnsprobe", a=[]))
        await gate.entered()
        await world.lose(lost)
        await world.until("SELECT ended_at IS NOT NULL FROM job_attempts WHERE attempt = 1")
        stale = await lost.first(Done(records=[{"name": "ghost.h1.lab.test"}]))
        staged = await lost.stage(stale)
        async with world.host(app_found):
            status = await world.end_of(run_id)

    assert staged == Staged([], [lost.jobs[0].job_id])
    assert status == "completed"
    assert await world.assets() == ["app.h1.lab.test", "h1.lab.test"]
