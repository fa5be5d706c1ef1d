"""A large run in proportion: with a tenth of their budget of batches, workflows keep a tenth of their bounds.

The bench runs 100,000 jobs on the whole platform (`make bench ARGS=--large`); counts are the same everywhere.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.client import Client

from benchmarks.histories import histories_of
from benchmarks.large_report import MOST_EVENTS, MOST_PARENT_EVENTS
from runlane.db import taking
from runlane.db.claims import ClaimedJob
from runlane.db.dispatch import NextBatches, next_batches
from runlane.db.pool import Pool
from runlane.db.runs import load
from runlane.db.starting import StartRun, start_run
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.integration.dispatched_run import OWNER
from tests.integration.run_world import RunWorld, graph
from tests.integration.scan_host import Done, enrol
from workflows.dispatching import Limits

pytestmark = pytest.mark.integration

SHARE: Final = 10
BATCH: Final = 5
LIMITS: Final = Limits(window=4, budget=Limits().budget // SHARE, open_shards=2, least_batch=BATCH)
JOBS: Final = 5 * LIMITS.budget * BATCH
TARGETS: Final = """
INSERT INTO targets (workspace_id, kind, value)
SELECT $1, 'domain', 'h' || n || '.lab.test' FROM generate_series(1, $2) n RETURNING id
"""
OTHERS_DONE: Final = """
SELECT count(*) = $2 FROM jobs
WHERE completed_at IS NOT NULL OR dispatch_id = (SELECT dispatch_id FROM jobs WHERE spec ->> 'host' = $1)
"""  # its batch: the host of this test stages a batch as a whole
LASTING: Final = f"h{JOBS // 2}.lab.test"


@pytest_asyncio.fixture
async def world(
    stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> AsyncIterator[RunWorld]:
    client = await Client.connect(stack.urls.temporal_address)
    storage = Storage(StorageConfig(**settings.bucket))
    made = RunWorld(pool, database.owner, client, storage, workspace_id, limits=LIMITS)
    async with made.workers(heartbeat_s=300):  # hosts of tests do not beat
        yield made


async def test_histories_of_a_large_run_stay_short_and_one_lasting_job_stops_no_other(
    world: RunWorld,
) -> None:
    ended = asyncio.Event()

    async def tool(step_id: str, job: ClaimedJob) -> Done:
        if job.spec["host"] == LASTING:
            await ended.wait()
        return Done()

    async with world.host(tool):
        run_id = await world.start(graph(a=[]), count=JOBS)
        await world.until(OTHERS_DONE, LASTING, JOBS)
        lasting = await world.value("SELECT status FROM jobs WHERE spec ->> 'host' = $1", LASTING)
        ended.set()
        status = await world.end_of(run_id)

    histories = await histories_of(world.temporal, world.pool, run_id)
    assert (lasting, status) == ("in_progress", "completed")
    assert await world.row("SELECT count(*), max(attempt) FROM jobs") == (JOBS, 1)
    assert len(histories) >= 5
    assert histories[0].events <= MOST_PARENT_EVENTS / SHARE, histories
    assert max(each.events for each in histories) <= MOST_EVENTS / SHARE, histories


async def test_cancel_of_a_large_run_in_the_middle_leaves_everything_at_rest(world: RunWorld) -> None:
    async def tool(step_id: str, job: ClaimedJob) -> Done:
        return Done()

    async with world.host(tool):
        run_id = await world.start(graph(a=[]), count=JOBS)
        await world.until("SELECT count(*) >= $1 FROM jobs WHERE status = 'completed'", JOBS // 2)
        cancelled = await world.cancel(run_id)
        status = await world.end_of(run_id)

    histories = await histories_of(world.temporal, world.pool, run_id)
    assert status == "cancelled"
    assert cancelled.jobs == await world.value("SELECT count(*) FROM jobs WHERE status = 'cancelled'")
    assert cancelled.jobs == await world.value("SELECT count(*) FROM outbox WHERE type = 'job.cancelled'")
    assert await world.row("SELECT count(*) FROM dispatches WHERE closed_at IS NULL") == (0,)
    assert await world.row("SELECT count(*) FROM run_shards WHERE closed_at IS NULL") == (0,)
    assert max(each.events for each in histories) <= MOST_EVENTS / SHARE, histories


async def test_batches_are_full_while_more_jobs_are_due_than_are_counted(
    pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "COUNTED", 20)
    await enrol(pool, workspace_id, slots=1_000)
    async with pool.acquire() as conn, conn.transaction():
        rows = await conn.fetch(TARGETS, workspace_id, 60)
        started = await start_run(
            conn, StartRun(workspace_id, graph(a=[]), [row["id"] for row in rows], "test")
        )
        await load(conn, started.run_id, OWNER)
        calls = [
            NextBatches(started.run_id, workspace_id, "workflow", OWNER.workflow_run_id, *rest)
            for rest in ((OWNER.workflow_run_id, number, {"a": 1}) for number in range(1, 4))
        ]
        batches = [(await next_batches(conn, call)).dispatches for call in calls]

    assert [batch.size for (batch,) in batches] == [25, 25, 1]
