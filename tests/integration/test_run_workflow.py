"""Runs from rows to their end: real Temporal, PostgreSQL, core and result workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest_asyncio
from temporalio.client import Client

from lanes.commands import relay_once
from runlane import names
from runlane.db.cancel import cancel_run
from runlane.db.claims import ClaimedJob
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run, write_start
from runlane.definitions import Definition, parse_definition
from runlane.jobs import Outcome
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.worker import run_core, run_results
from tests.integration.scan_host import Done, scan_host
from workflows.dispatching import Limits
from workflows.run import RunWorkflow


@pytest_asyncio.fixture
async def temporal(stack: Stack) -> Client:
    return await Client.connect(stack.urls.temporal_address)


@pytest_asyncio.fixture
async def core(settings: Settings) -> AsyncIterator[None]:
    """Core and result workers on the test's database."""
    async with _processes(settings):
        yield


@asynccontextmanager
async def _processes(settings: Settings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    tasks = [asyncio.create_task(run_core(settings, stop)), asyncio.create_task(run_results(settings, stop))]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


def graph(**steps: list[str]) -> Definition:
    """A definition of no-op steps: id → the steps it needs."""
    return parse_definition(
        {"name": "test", "jobs": {step: {"run": "noop", "needs": needs} for step, needs in steps.items()}}
    )


async def targets(pool: Pool, workspace_id: UUID, count: int) -> list[UUID]:
    rows = await pool.fetch(
        """INSERT INTO targets (workspace_id, kind, value)
           SELECT $1, 'domain', 'h' || n || '.lab.test' FROM generate_series(1, $2) n RETURNING id""",
        workspace_id,
        count,
    )
    return [row["id"] for row in rows]


async def begin(pool: Pool, workspace_id: UUID, definition: Definition, count: int = 3) -> UUID:
    """Writes a run over `count` targets."""
    target_ids = await targets(pool, workspace_id, count)
    async with pool.acquire() as conn, conn.transaction():
        started = await start_run(conn, StartRun(workspace_id, definition, target_ids, "test"))
        await conn.execute("UPDATE commands SET due_at = clock_timestamp()")
    return started.run_id


async def finish(pool: Pool, client: Client, settings: Settings, run_id: UUID) -> str:
    """Starts the run's workflow by its command and waits for its end; answers the run's status."""
    await relay_once(pool, client, Limits(**settings.dispatch_limits))
    handle = client.get_workflow_handle_for(RunWorkflow.run, names.run_workflow_id(run_id))
    outcome = await asyncio.wait_for(handle.result(), 60)
    return outcome.status


async def counts(pool: Pool, run_id: UUID) -> dict[str, int]:
    rows = await pool.fetch("SELECT status, count(*) FROM jobs WHERE run_id = $1 GROUP BY 1", run_id)
    return {row[0]: row[1] for row in rows}


def always_completed(step_id: str, job: ClaimedJob) -> Done:
    return Done()


async def test_run_completes_when_every_job_does(
    pool: Pool, workspace_id: UUID, temporal: Client, settings: Settings, core: None
) -> None:
    run_id = await begin(pool, workspace_id, graph(a=[], b=["a"], c=["a"]))

    async with scan_host(pool, temporal, workspace_id, always_completed):
        status = await finish(pool, temporal, settings, run_id)

    assert status == "completed"
    assert await counts(pool, run_id) == {"completed": 9}


async def test_dependents_of_a_failed_step_are_skipped_and_other_branches_finish(
    pool: Pool, workspace_id: UUID, temporal: Client, settings: Settings, core: None
) -> None:
    run_id = await begin(pool, workspace_id, graph(a=[], b=["a"], c=["b"], side=[]))

    def tool(step_id: str, job: ClaimedJob) -> Done:
        return Done(Outcome.FATAL, error="no such thing") if step_id == "a" else Done()

    async with scan_host(pool, temporal, workspace_id, tool):
        status = await finish(pool, temporal, settings, run_id)

    assert status == "failed"
    steps = await pool.fetch("SELECT step_id, status FROM run_steps WHERE run_id = $1", run_id)
    assert dict(map(tuple, steps)) == {"a": "failed", "b": "skipped", "c": "skipped", "side": "completed"}
    assert await pool.fetchval("SELECT count(*) FROM job_error_logs") == 3


async def test_lost_job_is_released_and_done_again_uncharged(
    pool: Pool, workspace_id: UUID, temporal: Client, settings: Settings, core: None
) -> None:
    run_id = await begin(pool, workspace_id, graph(a=[]))

    def tool(step_id: str, job: ClaimedJob) -> Done:
        return Done(None) if job.attempt == 1 else Done()

    async with scan_host(pool, temporal, workspace_id, tool):
        status = await finish(pool, temporal, settings, run_id)

    assert status == "completed"
    rows = await pool.fetch("SELECT outcome, charged FROM job_attempts ORDER BY attempt, job_id")
    assert [tuple(row) for row in rows] == [("lost", False)] * 3 + [("completed", False)] * 3
    assert await pool.fetchval("SELECT bool_and(alone) FROM jobs")


async def test_run_cancelled_while_its_jobs_wait_for_a_worker(
    pool: Pool, workspace_id: UUID, temporal: Client, settings: Settings, core: None
) -> None:
    run_id = await begin(pool, workspace_id, graph(a=[], b=["a"]))
    await relay_once(pool, temporal, Limits(**settings.dispatch_limits))
    async with pool.acquire() as conn, conn.transaction():
        cancelled = await cancel_run(conn, workspace_id, run_id, "enough")

    status = await finish(pool, temporal, settings, run_id)

    assert cancelled.jobs == 3
    assert status == "cancelled"
    assert await counts(pool, run_id) == {"cancelled": 3}


async def test_step_beyond_the_budget_goes_on_in_shards(
    pool: Pool, workspace_id: UUID, temporal: Client, settings: Settings, core: None
) -> None:
    small = settings.model_copy(update={"dispatch_budget": 4, "dispatch_window": 2, "open_shards": 2})
    run_id = await begin(pool, workspace_id, graph(a=[]), count=30)

    async with scan_host(pool, temporal, workspace_id, always_completed):
        status = await finish(pool, temporal, small, run_id)

    assert status == "completed"
    assert await counts(pool, run_id) == {"completed": 30}
    assert await pool.fetchval("SELECT count(*) FROM run_shards WHERE closed_at IS NULL") == 0
    assert await pool.fetchval("SELECT count(*) FROM run_shards") >= 6


async def test_terminated_workflow_is_resumed_from_rows(
    pool: Pool, workspace_id: UUID, temporal: Client, settings: Settings, core: None
) -> None:
    run_id = await begin(pool, workspace_id, graph(a=[], b=["a"]))
    await relay_once(pool, temporal, Limits(**settings.dispatch_limits))
    await temporal.get_workflow_handle(names.run_workflow_id(run_id)).terminate("test")
    async with pool.acquire() as conn, conn.transaction():
        await write_start(conn, workspace_id, run_id)

    async with scan_host(pool, temporal, workspace_id, always_completed):
        status = await finish(pool, temporal, settings, run_id)

    assert status == "completed"
    assert await counts(pool, run_id) == {"completed": 6}
