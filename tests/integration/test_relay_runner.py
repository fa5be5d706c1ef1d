"""The process of the lanes: all parts together, kept alive, stopped at once."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
import structlog.testing
from redis.asyncio import Redis

from lanes.runner import run_lanes, supervise
from lanes.turns import BLOCK
from runlane.db.pool import Pool
from runlane.errors import Invalid
from runlane.settings import Settings
from tests.integration.event_bus import audited, cancelled, checkpoint, cluster, produce
from tests.waiting import WAIT_S, until

pytestmark = pytest.mark.integration


async def test_events_reach_the_trail_and_a_stop_ends_everything_soon(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    stop = asyncio.Event()
    process = asyncio.create_task(run_lanes(settings, stop))
    await produce(pool, [cancelled(workspace_id) for _ in range(3)])

    async def are_kept() -> bool:
        return await checkpoint(pool) == 3

    await until(are_kept)
    stop.set()
    async with asyncio.timeout(BLOCK.total_seconds() + 3):
        await process

    assert await audited(pool) == [1, 2, 3]
    assert not await pool.fetchval(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name IN ('runlane-relay', 'runlane-audit')"
    )


async def test_a_cluster_ends_the_process_with_the_reason(settings: Settings, tmp_path: Path) -> None:
    stop = asyncio.Event()
    with cluster(tmp_path) as url, structlog.testing.capture_logs():
        on_cluster = settings.model_copy(update={"redis_url": url})

        async with asyncio.timeout(WAIT_S):
            with pytest.RaisesGroup(pytest.RaisesExc(Invalid, match="not a cluster")):
                await run_lanes(on_cluster, stop)

    assert stop.is_set()


async def test_a_part_that_fails_is_started_again_until_the_stop() -> None:
    starts = 0
    stop = asyncio.Event()

    async def part(stop: asyncio.Event) -> None:
        nonlocal starts
        starts += 1
        if starts == 1:
            raise ConnectionError("the server went away")
        if starts == 2:
            raise ValueError("a bug")
        stop.set()

    with structlog.testing.capture_logs() as lines:
        await supervise("thing", part, stop)

    assert starts == 3
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("part_interrupted", "warning"),
        ("part_failed", "error"),
    ]


async def test_a_cancellation_is_not_lost_when_the_clean_up_fails() -> None:
    begun = asyncio.Event()

    async def part(_: asyncio.Event) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("rollback on a dead connection")

    task = asyncio.create_task(supervise("thing", part, asyncio.Event()))
    await begun.wait()
    task.cancel()

    async with asyncio.timeout(WAIT_S):
        with pytest.raises(asyncio.CancelledError):
            await task
