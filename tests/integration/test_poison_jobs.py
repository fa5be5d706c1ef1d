"""Jobs that end the workers that have them, and jobs that only happened to be there."""

from uuid import UUID

import pytest

from runlane.db.losses import begin_outage, end_outages, note_losses
from runlane.db.pool import Pool
from runlane.db.settle import Ending
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.lost_jobs import LostJobs
from tests.integration.scan_host import Done, ScanHost, enrol

pytestmark = pytest.mark.integration

BATCH = Shape(jobs_each=5)
DONE = Done()


async def begin(pool: Pool, workspace_id: UUID, settings: Settings, shape: Shape) -> tuple[LostJobs, UUID]:
    """A run with one batch that nobody has claimed yet."""
    run = await dispatched_run(pool, workspace_id, shape)
    storage = Storage(StorageConfig(**settings.bucket))
    return LostJobs(pool, storage, workspace_id, run.run_id), run.dispatches[0]


async def lose_three_times(world: LostJobs, host: ScanHost, first: UUID) -> None:
    """Loses the only job of a run in three lives of its worker."""
    host = await world.lose(host, first)
    for _ in range(2):
        (again,) = await world.next()
        host = await world.lose(host, again.dispatch_id)


async def test_job_that_ends_its_worker_three_times_is_quarantined_and_its_siblings_finish(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    world, first = await begin(pool, workspace_id, settings, BATCH)
    host = await enrol(pool, workspace_id)
    jobs = await world.take(host, first)
    killer = jobs[2].job_id
    await world.settle([first], Ending.LOST)
    host = await world.reborn(host)

    crashes = 1
    while batches := await world.next():
        held = {batch.dispatch_id: await world.take(host, batch.dispatch_id) for batch in batches}
        fatal = any(job.job_id == killer for members in held.values() for job in members)
        if fatal:  # the worker is gone, and with it all that it had
            crashes += 1
            await world.settle(list(held), Ending.LOST)
            host = await world.reborn(host)
            continue
        for batch, members in held.items():
            await host.stage(await host.delivery(batch, [(job, DONE) for job in members]))
        await world.settle(list(held), Ending.ENDED)

    rows = await pool.fetch("SELECT id, status, reason, quarantined, failures, retryable FROM jobs")
    by_id = {row["id"]: tuple(row)[1:] for row in rows}
    assert by_id.pop(killer) == ("failed", "quarantined", True, 0, False)
    assert set(by_id.values()) == {("completed", None, False, 0, False)}
    assert crashes == 3
    assert await pool.fetchval("SELECT message LIKE '3 lives of workers%' FROM job_error_logs")
    assert await pool.fetchval("SELECT count(*) = 4 FROM outbox WHERE type = 'job.completed'")


async def test_job_lost_three_times_in_one_life_of_its_worker_is_not_quarantined(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    world, dispatch_id = await begin(pool, workspace_id, settings, Shape())
    host = await enrol(pool, workspace_id)

    for _ in range(4):
        await world.take(host, dispatch_id)
        await world.settle([dispatch_id], Ending.LOST)
        dispatch_id = (await world.next())[0].dispatch_id

    row = await pool.fetchrow("SELECT status, losses, quarantined FROM jobs")
    assert row is not None
    assert tuple(row) == ("pending", 4, False)


async def test_job_lost_with_a_third_of_the_fleet_is_not_blamed(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    world, first = await begin(pool, workspace_id, settings, Shape())
    host, other, third = [await enrol(pool, workspace_id) for _ in range(3)]
    async with pool.acquire() as conn:
        await note_losses(conn, [other.worker_id, third.worker_id])

    await lose_three_times(world, host, first)

    assert await pool.fetchval("SELECT status FROM jobs") == "pending"


async def test_job_that_ends_one_worker_after_the_other_does_not_hide_behind_them(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    world, dispatch_id = await begin(pool, workspace_id, settings, Shape())

    for host in [await enrol(pool, workspace_id) for _ in range(3)]:
        await world.lose(host, dispatch_id)
        dispatch_id = next((each.dispatch_id for each in await world.next()), dispatch_id)

    assert await pool.fetchval("SELECT reason FROM jobs") == "quarantined"


async def test_job_lost_while_a_server_was_away_is_not_blamed(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    world, first = await begin(pool, workspace_id, settings, Shape())
    host = await enrol(pool, workspace_id)
    async with pool.acquire() as conn:
        await begin_outage(conn, "temporal", 5.0)
        await end_outages(conn, "temporal")

    await lose_three_times(world, host, first)

    assert await pool.fetchval("SELECT status FROM jobs") == "pending"


async def test_job_whose_attempts_keep_ending_without_its_fault_fails_as_infrastructure_and_says_so(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    world, dispatch_id = await begin(pool, workspace_id, settings, Shape())
    host = await enrol(pool, workspace_id)
    await pool.execute("UPDATE jobs SET free_attempts = 19")

    await world.take(host, dispatch_id)
    await world.settle([dispatch_id], Ending.RELEASED)

    row = await pool.fetchrow("SELECT status, reason, failures, retryable, quarantined FROM jobs")
    assert row is not None
    assert tuple(row) == ("failed", "infrastructure", 0, False, False)
    assert await pool.fetchval("SELECT message LIKE '20 attempts%' FROM job_error_logs")
