"""Servers that go away while the real scan worker is at work: nothing is lost, nothing is done twice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from runlane.db import invariants
from runlane.db.pool import Pool
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from tests.conftest import Database
from tests.integration.worker_world import World, core_of, is_false, is_true, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def database(stack: Stack, template: str) -> AsyncIterator[Database]:
    """As everywhere, but no connection of it is kept: the server is killed in between."""
    assert stack.database_admin is not None
    name = f"t_{uuid4().hex[:12]}"
    await _administer(stack.database_admin, f"CREATE DATABASE {name} TEMPLATE {template} OWNER runlane")
    urls = stack.urls
    roles = (urls.database_owner, urls.database_api, urls.database_system)
    made = Database(*(urlsplit(url)._replace(path=f"/{name}").geturl() for url in roles))
    yield made
    conn = await asyncpg.connect(made.system)
    violations = await invariants.check(conn, None, at_rest=False)
    await conn.close()
    await _administer(stack.database_admin, f"DROP DATABASE {name} WITH (FORCE)")
    assert not violations


async def _administer(url: str, statement: str) -> None:
    admin = await asyncpg.connect(url)
    await admin.execute(statement)
    await admin.close()


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world, core_of(world.settings):
        yield world


async def test_api_restart_is_not_noticed_by_what_runs(world: World) -> None:
    async with world.scan_worker():
        run_id = await world.start_run(3, {"sleep_ms": 3_000})
        await until(lambda: world.has_status(run_id, "in_progress", 3))

        await world.stop_api()
        await world.start_api()

        assert await world.closed(run_id) == "completed"
    assert await world.attempts(run_id) == {"completed": 3}


async def test_results_wait_for_an_api_that_is_away(world: World) -> None:
    async with world.scan_worker():
        run_id = await world.start_run(3, {"sleep_ms": 3_000})
        await until(lambda: world.has_status(run_id, "in_progress", 3))

        await world.stop_api()
        spool = world.folder / "one" / "spool"
        await until(lambda: is_true(_packages(spool)))
        await world.start_api()

        assert await world.closed(run_id) == "completed"
        await until(lambda: is_false(_packages(spool)))
    assert await world.attempts(run_id) == {"completed": 3}


async def test_temporal_restart_is_survived(world: World, stack: Stack) -> None:
    async with world.scan_worker():
        run_id = await world.start_run(3, {"sleep_ms": 3_000})
        await until(lambda: world.has_status(run_id, "in_progress", 3))

        await stack.recovered("temporal", stack.kill("temporal"))

        assert await world.closed(run_id) == "completed"
    assert await world.attempts(run_id) == {"completed": 3}


async def test_database_restart_is_survived(world: World, stack: Stack) -> None:
    async with world.scan_worker():
        run_id = await world.start_run(3, {"sleep_ms": 3_000})
        await until(lambda: world.has_status(run_id, "in_progress", 3))

        await stack.recovered("postgres", stack.kill("postgres"))

        assert await world.closed(run_id) == "completed"
    assert await world.attempts(run_id) == {"completed": 3}


async def _packages(folder: Path) -> list[Path]:
    return await asyncio.to_thread(lambda: list(folder.glob("*.result")))
