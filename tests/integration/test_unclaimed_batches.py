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
from runlane.connectors import read_manifest
from runlane.db.acts import Act
from runlane.db.connectors import NewConnector, add_connector, switch_connector
from runlane.db.definitions import read_definition
from runlane.db.pool import Pool
from runlane.runs import BatchInput, BatchResult
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.integration.run_world import RunWorld, graph
from tests.integration.scan_host import Done, enrol
from tests.integration.test_connectors import ECHO

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


async def test_run_waits_while_its_connector_is_off_and_goes_on_when_it_is_on(world: RunWorld) -> None:
    pool, workspace_id = world.pool, world.workspace_id
    async with pool.acquire() as conn, conn.transaction():
        await add_connector(conn, NewConnector(workspace_id, read_manifest(ECHO)), Act())
        off = await switch_connector(conn, workspace_id, "echo", Act(), is_on=False)
        step = {"name": "test", "jobs": {"a": {"run": "echo"}}}
        definition = await read_definition(conn, workspace_id, step)

    async with world.host(lambda _step, _job: Done(), toolset="container"):
        run_id = await world.start(definition)
        await world.until(
            "SELECT blocked_reason = $2 FROM job_histories WHERE id = $1",
            run_id,
            f"the tool {off['tool_id']} is switched off",
        )
        dispatched = await world.value("SELECT count(*) FROM dispatches")
        async with pool.acquire() as conn, conn.transaction():
            await switch_connector(conn, workspace_id, "echo", Act(), is_on=True)
        await world.relay()
        status = await world.end_of(run_id)

    assert dispatched == 0
    assert status == "completed"
