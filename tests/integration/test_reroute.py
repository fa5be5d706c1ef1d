"""Batches on a queue that nobody polls any more are dispatched where somebody does."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.client import Client

from runlane import names
from runlane.db.acts import Act
from runlane.db.cancel import cancel_run
from runlane.db.pool import Pool
from runlane.db.presence import disconnect_if_gone, open_stream
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.lost_jobs import LostJobs
from tests.integration.run_world import RunWorld, graph
from tests.integration.scan_host import Done, ScanHost, enrol, serve
from tests.waiting import WAIT_S

pytestmark = pytest.mark.integration

SHARED = names.shared_scan_queue("probe")
DONE = "SELECT bool_and(status = 'completed') FROM jobs"
HOLD = "SELECT id FROM job_histories WHERE id = $1 FOR NO KEY UPDATE"
ALLOW = "UPDATE workspaces SET allow_shared = true WHERE id = $1"


@pytest_asyncio.fixture
async def world(
    stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> AsyncIterator[RunWorld]:
    client = await Client.connect(stack.urls.temporal_address)
    made = RunWorld(pool, database.owner, client, Storage(StorageConfig(**settings.bucket)), workspace_id)
    async with made.workers():
        yield made


async def vanish(world: RunWorld, host: ScanHost) -> None:
    """The worker's control stream breaks and does not come back."""
    async with world.pool.acquire() as conn, conn.transaction():
        await conn.execute("UPDATE workers SET stream_seen_at = NULL WHERE id = $1", host.worker_id)
        assert await disconnect_if_gone(conn, host.worker_id, host.incarnation)
    await world.relay()


async def come_back(world: RunWorld, host: ScanHost) -> None:
    """The worker opens its control stream again."""
    async with world.pool.acquire() as conn, conn.transaction():
        assert await open_stream(conn, host.worker_id, host.incarnation, "replica")
    await world.relay()


async def test_batch_that_waits_for_a_dead_worker_goes_to_a_shared_one_and_the_run_ends(
    world: RunWorld,
) -> None:
    await world.pool.execute(ALLOW, world.workspace_id)
    own = await enrol(world.pool, world.workspace_id)  # on line, but never polls
    shared = await enrol(world.pool, world.workspace_id, is_shared=True)
    run_id = await world.start(graph(a=[]), count=3)
    await world.until("SELECT count(*) > 0 FROM dispatches")

    async with serve(shared, world.temporal, lambda _step, _job: Done(), queue=SHARED):
        await vanish(world, own)
        await world.until(DONE)
        await world.relay()  # the workflow asked itself to look at the batches that it took back
        status = await world.end_of(run_id)

    assert status == "completed"
    queues = await world.pool.fetch(
        "SELECT DISTINCT d.task_queue FROM job_attempts a JOIN dispatches d ON d.id = a.dispatch_id"
    )
    assert [row["task_queue"] for row in queues] == [SHARED]
    assert await world.value("SELECT bool_and(closed_at IS NOT NULL) FROM dispatches")
    assert await world.value("SELECT count(*) FROM job_attempts") == 3


async def test_batch_that_waits_for_a_dead_shared_worker_goes_to_an_own_one_that_appears(
    world: RunWorld,
) -> None:
    await world.pool.execute(ALLOW, world.workspace_id)
    shared = await enrol(world.pool, world.workspace_id, is_shared=True)
    own = await enrol(world.pool, world.workspace_id)
    await vanish(world, own)
    run_id = await world.start(graph(a=[]))
    await world.until("SELECT count(*) = 1 FROM dispatches WHERE task_queue = $1", SHARED)

    await vanish(world, shared)
    await world.until("SELECT blocked_reason LIKE 'no live worker%' FROM job_histories")
    async with serve(own, world.temporal, lambda _step, _job: Done()):
        await come_back(world, own)
        await world.until(DONE)
        await world.relay()
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.value("SELECT worker_id FROM job_attempts") == own.worker_id


async def test_batch_is_never_moved_to_shared_workers_against_the_will_of_the_workspace(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    own = await enrol(pool, workspace_id)
    await enrol(pool, workspace_id, is_shared=True)
    run = await dispatched_run(pool, workspace_id, Shape(batches=2))
    storage = Storage(StorageConfig(**settings.bucket))
    await pool.execute("UPDATE workers SET status = 'offline' WHERE id = $1", own.worker_id)

    asked = await LostJobs(pool, storage, workspace_id, run.run_id).ask()

    assert asked.dispatches == []
    assert await pool.fetchval("SELECT bool_and(dispatch_id IS NOT NULL) FROM jobs")
    assert await pool.fetchval("SELECT blocked_reason FROM job_histories") == (
        "no live worker for the tool set probe"
    )


async def test_job_that_a_worker_has_claimed_just_now_is_not_moved_with_its_batch(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    await pool.execute(ALLOW, workspace_id)
    own = await enrol(pool, workspace_id)
    await enrol(pool, workspace_id, is_shared=True)
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=3))
    world = LostJobs(pool, Storage(StorageConfig(**settings.bucket)), workspace_id, run.run_id)
    await pool.execute("UPDATE dispatches SET workflow_id = $1", names.run_workflow_id(run.run_id))
    (claimed,) = (await own.claim(run.dispatches[0], "key", 1)).jobs
    await pool.execute("UPDATE jobs SET dispatch_id = $1", run.dispatches[0])
    await pool.execute("UPDATE workers SET status = 'offline' WHERE id = $1", own.worker_id)

    moved = (await world.ask(least=3)).dispatches

    assert [(each.task_queue, each.size) for each in moved] == [(SHARED, 2)]
    assert (
        await pool.fetchval("SELECT dispatch_id FROM jobs WHERE id = $1", claimed.job_id)
        == (run.dispatches[0])
    )


async def test_jobs_of_a_network_that_nobody_serves_do_not_stand_before_others(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    network_id = await pool.fetchval(
        "INSERT INTO internal_networks (workspace_id, name) VALUES ($1, 'lab') RETURNING id", workspace_id
    )
    await enrol(pool, workspace_id)
    run = await dispatched_run(pool, workspace_id, Shape(batches=4))
    await pool.execute("UPDATE jobs SET dispatch_id = NULL")
    await pool.execute(
        """UPDATE jobs SET network_id = $1, priority = 0
           WHERE id IN (SELECT id FROM jobs ORDER BY created_at, id LIMIT 2)""",
        network_id,
    )
    await pool.execute("UPDATE targets t SET network_id = j.network_id FROM jobs j WHERE j.target_id = t.id")
    world = LostJobs(pool, Storage(StorageConfig(**settings.bucket)), workspace_id, run.run_id)

    asked = await world.ask(room=2)

    assert len(asked.dispatches) == 2
    assert await pool.fetchval(
        "SELECT count(*) = 2 FROM jobs WHERE network_id IS NULL AND dispatch_id IS NOT NULL"
    )
    assert await pool.fetchval("SELECT blocked_reason FROM job_histories") == (
        "no live worker for the tool set probe in the network lab"
    )


async def test_re_route_waits_for_no_cancel_that_waits_for_its_jobs(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    await pool.execute(ALLOW, workspace_id)
    own = await enrol(pool, workspace_id)
    await enrol(pool, workspace_id, is_shared=True)
    run = await dispatched_run(pool, workspace_id, Shape(batches=2))
    world = LostJobs(pool, Storage(StorageConfig(**settings.bucket)), workspace_id, run.run_id)
    await pool.execute("UPDATE workers SET status = 'offline' WHERE id = $1", own.worker_id)

    async with pool.acquire() as conn, conn.transaction():
        await conn.fetch(HOLD, run.run_id)  # where a cancel is before it locks the jobs
        async with asyncio.timeout(WAIT_S):
            moved = (await world.ask()).dispatches
        cancelled = await cancel_run(conn, workspace_id, run.run_id, Act())

    assert [each.task_queue for each in moved] == [SHARED, SHARED]
    assert cancelled.jobs == 2
