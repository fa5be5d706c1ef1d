"""A large step is admitted beside its run's workflow: what was admitted runs, whatever happens meanwhile.

The third chunk is held in its transaction by a lock of the database, as a slow disk would hold it.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio
from temporalio.client import Client

from runlane.db import admit, pauses
from runlane.db.acts import Act
from runlane.db.claims import ClaimedJob
from runlane.db.pool import Pool
from runlane.db.run_requests import resume_run
from runlane.jobs import Outcome
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.integration.run_world import RunWorld, graph
from tests.integration.scan_host import Done
from tests.waiting import until
from workflows.dispatching import Limits

pytestmark = pytest.mark.integration

CHUNK: Final = 20
FIRST: Final = 2 * CHUNK
"""Jobs that the request and the workflow admit before they leave the rest to an activity."""
JOBS: Final = 5 * CHUNK + 7

LOCK: Final = 4711
HOLD: Final = f"""
CREATE FUNCTION hold_third_chunk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT jobs_total FROM run_steps s WHERE s.run_id = new.run_id AND s.step_id = new.step_id) >= {FIRST}
  THEN
    PERFORM pg_advisory_xact_lock_shared({LOCK});
  END IF;
  RETURN new;
END $$;
CREATE TRIGGER hold_third_chunk BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION hold_third_chunk();
"""  # noqa: S608  # constants of this file; a trigger takes no parameters
IS_HELD: Final = """
SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
               WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)
"""
WAITS: Final = """
SELECT EXISTS (SELECT FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event IN ('transactionid', 'tuple'))
"""
ENDED: Final = "SELECT count(*) = $2 FROM jobs WHERE run_id = $1 AND completed_at IS NOT NULL"
BATCHES_CLOSED: Final = "SELECT count(*) = $2 FROM dispatches WHERE run_id = $1 AND closed_at IS NOT NULL"
OPENED: Final = """
SELECT bool_and(r.opened_at > s.admitted_at) FROM run_shards r JOIN run_steps s USING (run_id, step_id)
WHERE run_id = $1
"""
STEP: Final = "SELECT status, jobs_total FROM run_steps WHERE run_id = $1"
CREATED: Final = """
SELECT count(*), count(DISTINCT subject) FROM outbox WHERE type = 'job.created' AND data ->> 'run_id' = $1
"""


class Hold:
    """Holds third chunks until it lets go."""

    def __init__(self, conn: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._conn = conn

    async def let_go(self) -> None:
        """Lets chunks be written from now on."""
        await self._conn.execute("SELECT pg_advisory_unlock($1)", LOCK)


@pytest_asyncio.fixture
async def world(
    stack: Stack,
    database: Database,
    settings: Settings,
    pool: Pool,
    workspace_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[RunWorld]:
    monkeypatch.setattr(admit, "CHUNK", CHUNK)
    client = await Client.connect(stack.urls.temporal_address)
    storage = Storage(StorageConfig(**settings.bucket))
    made = RunWorld(pool, database.owner, client, storage, workspace_id)
    async with made.workers(heartbeat_s=300):  # hosts of tests do not beat
        yield made


@pytest_asyncio.fixture
async def hold(world: RunWorld) -> AsyncIterator[Hold]:
    owner = await asyncpg.connect(world.owner_url)
    await owner.execute(HOLD)
    await owner.execute("SELECT pg_advisory_lock($1)", LOCK)
    yield Hold(owner)
    await owner.close()


async def completes(step_id: str, job: ClaimedJob) -> Done:
    return Done()


async def pause(world: RunWorld, run_id: UUID) -> None:
    """Pauses a run, as a request does."""
    async with world.pool.acquire() as conn, conn.transaction():
        await pauses.pause(conn, pauses.NewPause(world.workspace_id, run_id=run_id), Act())


async def test_jobs_of_a_large_step_run_before_the_rest_of_it_is_admitted(
    world: RunWorld, hold: Hold
) -> None:
    async with world.host(completes):
        run_id = await world.start(graph(a=[], b=["a"]), count=JOBS)
        await world.until(ENDED, run_id, FIRST)
        await world.until(IS_HELD)
        meanwhile = await world.pool.fetch(
            "SELECT status FROM run_steps WHERE run_id = $1 ORDER BY 1", run_id
        )
        rows = await world.pool.fetch("SELECT target_id FROM run_targets WHERE run_id = $1 LIMIT 3", run_id)
        other_id = await world.begin_over(graph(a=[]), [row["target_id"] for row in rows])
        await world.relay()
        other = await world.end_of(other_id)
        await hold.let_go()
        status = await world.end_of(run_id)

    assert [row["status"] for row in meanwhile] == ["running", "waiting"]
    assert (other, status) == ("completed", "completed")
    steps = [tuple(row) for row in await world.pool.fetch(STEP, run_id)]
    assert steps == [("completed", JOBS)] * 2
    assert await world.row(CREATED, str(run_id)) == (2 * JOBS, 2 * JOBS)
    assert await world.count_jobs(run_id) == {"completed": 2 * JOBS}


async def test_step_whose_first_jobs_failed_fails_only_after_the_rest_was_admitted_and_tried(
    world: RunWorld, hold: Hold
) -> None:
    def fails(step_id: str, job: ClaimedJob) -> Done:
        return Done(Outcome.FATAL, error="no such thing")

    async with world.host(fails):
        run_id = await world.start(graph(a=[]), count=JOBS)
        await world.until(ENDED, run_id, FIRST)
        await world.until(IS_HELD)
        meanwhile = await world.row(STEP, run_id)
        await hold.let_go()
        status = await world.end_of(run_id)

    assert meanwhile == ("running", FIRST)
    assert status == "failed"
    assert await world.row(STEP, run_id) == ("failed", JOBS)
    assert await world.count_jobs(run_id) == {"failed": JOBS}


async def test_run_that_is_cancelled_while_it_is_admitted_gets_no_further_jobs(
    world: RunWorld, hold: Hold
) -> None:
    async with world.host(completes):
        run_id = await world.start(graph(a=[]), count=JOBS)
        await world.until(ENDED, run_id, FIRST)
        await world.until(IS_HELD)
        cancelling = asyncio.create_task(world.cancel(run_id))
        await until(lambda: world.pool.fetchval(WAITS))
        await hold.let_go()
        await cancelling
        status = await world.end_of(run_id)

    jobs = await world.count_jobs(run_id)
    assert status == "cancelled"
    assert set(jobs) <= {"completed", "cancelled"}
    assert jobs["completed"] + jobs["cancelled"] < JOBS
    assert await world.row(STEP, run_id) == ("cancelled", sum(jobs.values()))
    assert await world.row(CREATED, str(run_id)) == (sum(jobs.values()), sum(jobs.values()))


async def test_workflow_that_is_lost_while_its_step_is_admitted_is_followed_by_one_that_goes_on(
    world: RunWorld, hold: Hold
) -> None:
    async with world.host(completes):
        run_id = await world.start(graph(a=[]), count=JOBS)
        await world.until(ENDED, run_id, FIRST)
        await world.until(IS_HELD)
        await world.handle(run_id).terminate("test")
        await world.start_again(run_id)
        await hold.let_go()
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.row(STEP, run_id) == ("completed", JOBS)
    assert await world.row(CREATED, str(run_id)) == (JOBS, JOBS)
    assert await world.count_jobs(run_id) == {"completed": JOBS}


async def test_shards_wait_until_all_of_their_step_is_admitted(world: RunWorld, hold: Hold) -> None:
    small = replace(world, limits=Limits(window=1, budget=2, open_shards=1))
    async with world.host(completes, slots=1):
        run_id = await small.start(graph(a=[]), count=JOBS)
        await world.until(BATCHES_CLOSED, run_id, 2)
        await world.until(IS_HELD)
        await hold.let_go()
        status = await world.end_of(run_id)

    assert status == "completed"
    assert await world.count_jobs(run_id) == {"completed": JOBS}
    assert await world.row(OPENED, run_id) == (True,)


async def test_paused_run_is_admitted_and_begins_nothing_until_it_is_resumed(
    world: RunWorld, hold: Hold
) -> None:
    async with world.host(completes):
        run_id = await world.start(graph(a=[]), count=JOBS)
        await world.until(ENDED, run_id, FIRST)
        await world.until(IS_HELD)
        pausing = asyncio.create_task(pause(world, run_id))
        await until(lambda: world.pool.fetchval(WAITS))
        await hold.let_go()
        await pausing
        await world.until("SELECT admitted_at IS NOT NULL FROM run_steps WHERE run_id = $1", run_id)
        paused = await world.count_jobs(run_id)
        async with world.pool.acquire() as conn, conn.transaction():
            await resume_run(conn, world.workspace_id, run_id, Act())
        await world.relay()
        status = await world.end_of(run_id)

    assert (sum(paused.values()), "in_progress" in paused) == (JOBS, False)
    assert paused["pending"] > 0
    assert status == "completed"
    assert await world.count_jobs(run_id) == {"completed": JOBS}
