"""How the steps of one run share what its workflow may still dispatch."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.client import Client

from runlane.db.claims import ClaimedJob
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.integration.run_world import RunWorld
from tests.integration.scan_host import Done
from workflows.dispatching import Limits

pytestmark = pytest.mark.integration

DEFINITION = parse_definition(
    {"name": "test", "jobs": {"long": {"run": "dnsprobe"}, "many": {"run": "portprobe"}}}
)
ASSETS = """
WITH target AS (
  INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'lab.test') RETURNING id
), known AS (
  INSERT INTO assets (workspace_id, target_id, value, first_seen, last_seen)
  SELECT $1, id, 'h' || n || '.lab.test', clock_timestamp(), clock_timestamp()
  FROM target, generate_series(1, $2) n
)
SELECT id FROM target
"""
MANY_DONE = "SELECT bool_and(status = 'completed') FROM jobs WHERE step_id = 'many'"


@pytest_asyncio.fixture
async def world(
    stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> AsyncIterator[RunWorld]:
    client = await Client.connect(stack.urls.temporal_address)
    limits = Limits(window=4, budget=13, open_shards=1)
    made = RunWorld(pool, database.owner, client, Storage(StorageConfig(**settings.bucket)), workspace_id)
    async with made.workers():
        yield replace(made, limits=limits)


async def start(world: RunWorld, assets: int) -> UUID:
    """Starts a run of one job in the step `long` and one for each asset in the step `many`."""
    async with world.pool.acquire() as conn, conn.transaction():
        target_id = await conn.fetchval(ASSETS, world.workspace_id, assets)
        started = await start_run(conn, StartRun(world.workspace_id, DEFINITION, [target_id], "test"))
        await conn.execute("UPDATE commands SET due_at = clock_timestamp()")
    await world.relay()
    return started.run_id


async def test_step_with_one_long_job_keeps_no_room_from_a_step_that_has_more(world: RunWorld) -> None:
    over = asyncio.Event()

    async def tool(step_id: str, job: ClaimedJob) -> Done:
        if step_id == "long":
            await over.wait()
        return Done()

    async with world.host(tool):
        run_id = await start(world, assets=20)
        await world.until(MANY_DONE)
        is_long_done = over.is_set()
        over.set()
        status = await world.end_of(run_id)

    assert not is_long_done
    assert status == "completed"
