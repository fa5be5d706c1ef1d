"""A blackout window that cancels, and a real scan worker: its process dies, its job runs again afterwards."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio

from lanes.blackouts import interrupt_all
from runlane.blackouts import Once, Policy
from runlane.db.acts import Act
from runlane.db.blackouts import NewWindow, add_window, remove_window
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.worker_world import World, core_of, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world, core_of(world.settings):
        yield world


async def test_job_that_a_window_gave_back_leaves_its_worker_and_runs_again_after_it(world: World) -> None:
    async with world.scan_worker():
        run_id = await world.start_run(2, {"sleep_ms": 600_000})
        await until(lambda: world.has_status(run_id, "in_progress", 2))
        await world.pool.execute(
            "UPDATE run_steps SET config = '{}' WHERE run_id = $1", run_id
        )  # the next attempt is short
        target = await world.pool.fetchval("SELECT target_id FROM jobs ORDER BY id LIMIT 1")
        now = datetime.now(UTC)
        when = Once(now - timedelta(hours=1), now + timedelta(days=1))
        async with world.pool.acquire() as conn, conn.transaction():
            wanted = NewWindow(world.workspace_id, when, target, policy=Policy.CANCEL)
            window = await add_window(conn, wanted, Act(name="me"))

        given_back = await interrupt_all(world.pool)
        # the other one goes on in its attempt until somebody ends it; the first is held meanwhile
        held = await world.statuses(run_id)
        async with world.pool.acquire() as conn, conn.transaction():
            await remove_window(conn, world.workspace_id, UUID(str(window["id"])), Act())
        await until(lambda: world.has_status(run_id, "completed", 1))
        going_on = await world.statuses(run_id)
        attempts = await world.attempts(run_id)

    assert given_back == 1
    assert held == {"pending": 1, "in_progress": 1}
    assert going_on == {"completed": 1, "in_progress": 1}
    assert attempts == {"released": 1, "completed": 1, "open": 1}
