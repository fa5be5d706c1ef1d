"""Both ways in which a scan worker's result reaches the merge: inline, and as an object in the bucket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from lanes.commands import run_command_relay
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from runlane.worker import run_core, run_results
from tests.integration.worker_world import World, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration


@asynccontextmanager
async def core_without_results(settings: Settings) -> AsyncIterator[None]:
    """Core worker and command relay: what is staged stays so."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(run(settings, stop)) for run in (run_core, run_command_relay)]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


@asynccontextmanager
async def results(settings: Settings) -> AsyncIterator[None]:
    """The result worker."""
    stop = asyncio.Event()
    task = asyncio.create_task(run_results(settings, stop))
    try:
        yield
    finally:
        stop.set()
        await task


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    """A port of the loopback that is open."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def scan(world: World, port: int) -> UUID:
    """Starts a run that looks at one port of the loopback."""
    definition = parse_definition(
        {"name": "test", "jobs": {"ports": {"run": "portprobe", "config": {"ports": str(port)}}}}
    )
    async with world.pool.acquire() as conn, conn.transaction():
        target_id = await conn.fetchval(
            "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'ip', '127.0.0.1') RETURNING id",
            world.workspace_id,
        )
        started = await start_run(conn, StartRun(world.workspace_id, definition, [target_id], "test"))
        await conn.execute("UPDATE commands SET due_at = clock_timestamp()")
    return started.run_id


@pytest.mark.parametrize(
    ("inline_bytes", "is_object"), [(65_536, False), (0, True)], ids=["inline", "object"]
)
async def test_result_is_merged_from_where_the_setting_puts_it(
    settings: Settings, pool: Pool, tmp_path: Path, inline_bytes: int, is_object: bool
) -> None:
    storage = Storage(StorageConfig(**settings.bucket))
    changed = settings.model_copy(update={"stage_inline_bytes": inline_bytes})
    async with AsyncExitStack() as running:
        world = await running.enter_async_context(world_of(changed, pool, tmp_path))
        await running.enter_async_context(core_without_results(world.settings))
        port = await running.enter_async_context(listening())
        await running.enter_async_context(world.scan_worker())
        run_id = await scan(world, port)
        await until(lambda: pool.fetchval("SELECT EXISTS (SELECT FROM job_results)"))
        staged = await pool.fetchrow("SELECT object_key IS NOT NULL, body IS NULL FROM job_results")
        objects = await storage.keys(f"{world.workspace_id}/")
        await running.enter_async_context(results(world.settings))

        status = await world.closed(run_id)

    assert tuple(staged or ()) == (is_object, is_object)
    assert len(objects) == is_object
    assert status == "completed"
    assert await pool.fetchval("SELECT port FROM asset_services") == port
    assert await pool.fetchval("SELECT count(*) FROM job_results") == 0
    assert await storage.keys(f"{world.workspace_id}/") == []
