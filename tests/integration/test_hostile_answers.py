"""What a host answers to Temporal may be anything: rows decide, and the run comes to its end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from runlane import names
from runlane.db.pool import Pool
from runlane.runs import BatchInput
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from runlane.worker import run_core, run_results
from tests.conftest import Database
from tests.integration.run_world import RunWorld, graph
from tests.integration.scan_host import Done, ScanHost, enrol

pytestmark = pytest.mark.integration

UNREADABLE = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"{"))
UNKNOWN = RawValue(Payload(metadata={"encoding": b"binary/odd"}, data=b"x"))


@pytest_asyncio.fixture
async def world(
    stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> AsyncIterator[RunWorld]:
    client = await Client.connect(stack.urls.temporal_address)
    stop = asyncio.Event()
    processes = [run_core(settings, stop), run_results(settings, stop)]
    async with asyncio.TaskGroup() as group:
        for process in processes:
            group.create_task(process)
        yield RunWorld(pool, database.owner, client, Storage(StorageConfig(**settings.bucket)), workspace_id)
        stop.set()


@asynccontextmanager
async def answering(host: ScanHost, client: Client, answer: object) -> AsyncIterator[None]:
    """Serves the host's queue: does the work, stages it, and then answers this, or raises it."""

    @activity.defn(name=names.RUN_BATCH_ACTIVITY)
    async def run_batch(batch: BatchInput) -> object:
        dispatch_id = UUID(batch.dispatch_id)
        jobs = (await host.claim(dispatch_id, "key", batch.size)).jobs
        await host.stage(await host.delivery(dispatch_id, [(job, Done()) for job in jobs]))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with Worker(
        client,
        task_queue=names.scan_queue(host.workspace_id, "probe"),
        activities=[run_batch],
        graceful_shutdown_timeout=timedelta(seconds=1),
    ):
        yield


@pytest.mark.parametrize(
    "answer",
    [
        {"dispatch_id": "x", "outcome": "no such outcome"},
        {"dispatch_id": "x", "outcome": "running"},
        {"outcome": 1},
        None,
        [1],
        UNREADABLE,
        UNKNOWN,
        ApplicationError("failed", UNREADABLE),
    ],
    ids=["outcome", "running", "fields", "nothing", "list", "unreadable", "unknown", "failure"],
)
async def test_run_ends_whatever_a_host_answers(world: RunWorld, answer: object) -> None:
    host = await enrol(world.pool, world.workspace_id)
    async with answering(host, world.temporal, answer):
        run_id = await world.start(graph(a=[]))
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.count_jobs(run_id) == {"completed": 1}
