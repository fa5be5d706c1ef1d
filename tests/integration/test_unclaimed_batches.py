"""Batches that come back without anybody having taken their jobs: they must not spin through the queue."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from runlane import names
from runlane.db.pool import Pool
from runlane.runs import BatchInput, BatchResult
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.integration.run_world import RunWorld, graph
from tests.integration.scan_host import Done, enrol

pytestmark = pytest.mark.integration

RESTS = """
SELECT count(*) = 1 FROM jobs
WHERE status = 'pending' AND dispatch_id IS NULL AND due_at > clock_timestamp() + interval '2 seconds'
"""


@pytest_asyncio.fixture
async def world(
    stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> AsyncIterator[RunWorld]:
    client = await Client.connect(stack.urls.temporal_address)
    made = RunWorld(pool, database.owner, client, Storage(StorageConfig(**settings.bucket)), workspace_id)
    async with made.workers():
        yield made


async def test_job_of_a_host_that_only_answers_rests_before_it_is_dispatched_again(world: RunWorld) -> None:
    host = await enrol(world.pool, world.workspace_id)
    answered = asyncio.Event()

    @activity.defn(name=names.RUN_BATCH_ACTIVITY)
    async def run_batch(batch: BatchInput) -> BatchResult:
        answered.set()
        return BatchResult(batch.dispatch_id)

    async with Worker(
        world.temporal,
        task_queue=names.scan_queue(host.workspace_id, "probe"),
        activities=[run_batch],
        graceful_shutdown_timeout=timedelta(seconds=1),
    ):
        run_id = await world.start(graph(a=[]))
        await answered.wait()
        await world.until(RESTS)
        await world.cancel(run_id)
        await world.end_of(run_id)


async def test_job_of_a_tool_that_was_switched_off_rests_and_is_done_once_it_is_on(world: RunWorld) -> None:
    await world.pool.execute("UPDATE tools SET enabled = false WHERE id = 'noop'")

    async with world.host(lambda _step, _job: Done()):
        run_id = await world.start(graph(a=[]))
        await world.until(RESTS)
        await world.pool.execute("UPDATE tools SET enabled = true WHERE id = 'noop'")
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.value("SELECT count(*) FROM dispatches") == 2
