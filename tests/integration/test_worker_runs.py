"""The real scan worker at work: real API, PostgreSQL, Temporal, children."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.client import Client

from runlane import names
from runlane.db.cancel import cancel_job, cancel_run
from runlane.db.pool import Pool
from runlane.scan.config import ScanLimits
from runlane.scan.confine import marked_processes
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from tests.integration.worker_world import World, core_of, is_false, is_true, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world, core_of(world.settings):
        yield world


async def worker_id(world: World, name: str = "one") -> str:
    return str(await world.pool.fetchval("SELECT id FROM workers WHERE name = $1", name))


async def tools_of(world: World, name: str = "one") -> list[int]:
    """Tool processes of a worker, wherever they are."""
    prefix = f"{await worker_id(world, name)}/"
    return [pid for pid, mark in marked_processes() if mark.startswith(prefix)]


async def has_all(world: World, worker: str, count: int) -> bool:
    """Whether so many jobs are in progress at a worker."""
    held: int = await world.pool.fetchval(
        "SELECT count(*) FROM jobs WHERE worker_id = $1 AND status = 'in_progress'", UUID(worker)
    )
    return held == count


async def test_run_completes_through_the_worker(world: World) -> None:
    async with world.scan_worker():
        run_id = await world.start_run(30)

        assert await world.closed(run_id) == "completed"

    assert await world.statuses(run_id) == {"completed": 30}
    assert await world.attempts(run_id) == {"completed": 30}
    assert await world.pool.fetchval("SELECT array_agg(DISTINCT argv[1]) FROM job_attempts") == [
        "runlane.probes.noop"
    ]


async def test_batch_beats_while_its_child_lives(world: World, stack: Stack) -> None:
    client = await Client.connect(stack.urls.temporal_address)

    async def has_beaten(run_id: UUID) -> bool:
        description = await client.get_workflow_handle(names.run_workflow_id(run_id)).describe()
        pending = description.raw_description.pending_activities
        return any(b"incarnation" in p.data for a in pending for p in a.heartbeat_details.payloads)

    async with world.scan_worker():
        run_id = await world.start_run(1, {"sleep_ms": 6_000})
        await until(lambda: world.has_status(run_id, "in_progress", 1))
        await until(lambda: has_beaten(run_id))

        assert await world.closed(run_id) == "completed"


async def test_cancelled_run_kills_its_tools_at_once(world: World) -> None:
    async with world.scan_worker():
        run_id = await world.start_run(3, {"sleep_ms": 600_000})
        await until(lambda: world.has_status(run_id, "in_progress", 3))
        await until(lambda: is_true(tools_of(world)))

        async with world.pool.acquire() as conn, conn.transaction():
            await cancel_run(conn, world.workspace_id, run_id)

        await until(lambda: is_false(tools_of(world)))
        assert await world.statuses(run_id) == {"cancelled": 3}


async def test_cancelled_job_is_dropped_and_its_siblings_complete_in_their_first_attempt(
    world: World,
) -> None:
    async with world.scan_worker(slots=1):
        run_id = await world.start_run(8, {"sleep_ms": 2_000})
        await until(lambda: world.has_status(run_id, "in_progress", 2))
        job_id = await world.pool.fetchval(
            "SELECT id FROM jobs WHERE run_id = $1 AND status = 'in_progress' LIMIT 1", run_id
        )

        async with world.pool.acquire() as conn, conn.transaction():
            await cancel_job(conn, world.workspace_id, job_id)

        assert await world.closed(run_id) == "completed"
    assert await world.statuses(run_id) == {"cancelled": 1, "completed": 7}
    assert await world.attempts(run_id) == {"cancelled": 1, "completed": 7}


async def test_drained_worker_gives_back_what_it_cannot_finish(world: World) -> None:
    async with world.scan_worker() as stop:
        run_id = await world.start_run(3, {"sleep_ms": 4_000})
        await until(lambda: world.has_status(run_id, "in_progress", 3))
        stop.set()
        await until(lambda: world.has_status(run_id, "pending", 3))

    async with world.scan_worker("two"):
        assert await world.closed(run_id) == "completed"
    assert await world.attempts(run_id) == {"released": 3, "completed": 3}
    assert await world.pool.fetchval("SELECT status FROM workers WHERE name = 'one'") == "offline"


async def test_worker_told_to_stop_gives_its_jobs_to_another_at_once_and_uncharged(world: World) -> None:
    world.limits = ScanLimits()
    async with world.scan_worker() as stop:
        run_id = await world.start_run(3, {"sleep_ms": 600_000})
        await until(lambda: world.has_status(run_id, "in_progress", 3))
        one = await worker_id(world)

        async with world.scan_worker("two"):
            stop.set()
            two = await worker_id(world, "two")
            await until(lambda: has_all(world, two, 3))

            rows = await world.pool.fetch(
                "SELECT worker_id, outcome, charged FROM job_attempts ORDER BY attempt, job_id"
            )
            assert {(str(row["worker_id"]), row["outcome"], row["charged"]) for row in rows} == {
                (one, "released", False),
                (two, None, False),
            }
            async with world.pool.acquire() as conn, conn.transaction():
                await cancel_run(conn, world.workspace_id, run_id)


async def test_killed_worker_takes_its_tools_with_it_and_another_does_the_jobs(world: World) -> None:
    process = await world.spawn_scan_worker()
    run_id = await world.start_run(3, {"sleep_ms": 4_000})
    await until(lambda: world.has_status(run_id, "in_progress", 3))
    await until(lambda: is_true(tools_of(world)))

    process.kill()
    await process.wait()

    await until(lambda: is_false(tools_of(world)))
    async with world.scan_worker("two"):
        assert await world.closed(run_id) == "completed"
    outcomes = await world.attempts(run_id)
    assert outcomes.pop("completed") == 3
    assert sum(outcomes.values()) == 3
    assert set(outcomes) <= {"lost", "released"}


async def test_killed_worker_that_comes_back_goes_on(world: World) -> None:
    process = await world.spawn_scan_worker()
    run_id = await world.start_run(3, {"sleep_ms": 3_000})
    await until(lambda: world.has_status(run_id, "in_progress", 3))
    process.kill()
    await process.wait()

    process = await world.spawn_scan_worker()
    status = await world.closed(run_id)
    process.terminate()

    assert status == "completed"
    assert await process.wait() == 0
    assert await world.pool.fetchval("SELECT count(*) FROM workers") == 1


@pytest.mark.breaks_invariants  # the attempt moves on without a claim
async def test_jobs_that_have_gone_on_without_the_worker_are_dropped_at_its_next_heartbeat(
    world: World,
) -> None:
    async with world.scan_worker():
        run_id = await world.start_run(2, {"sleep_ms": 600_000})
        await until(lambda: world.has_status(run_id, "in_progress", 2))
        await until(lambda: is_true(tools_of(world)))

        await world.pool.execute("UPDATE jobs SET attempt = attempt + 1 WHERE run_id = $1", run_id)

        await until(lambda: is_false(tools_of(world)))
