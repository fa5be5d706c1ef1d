"""The control stream of scan workers: what goes down it, and what its being open says."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
import pytest_asyncio

from api import control
from runlane import names
from runlane.db.cancel import cancel_run
from runlane.db.keys import NewKey, Scope, create_key
from runlane.db.pool import Pool
from runlane.errors import Conflict
from runlane.settings import Settings
from tests.integration.worker_host import (
    NOTHING,
    column,
    has,
    joined_host,
    next_of,
    open_stream,
)
from tests.integration.worker_world import World, world_of
from tests.waiting import WAIT_S, until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


class TestStream:
    async def test_cancelled_run_is_told_to_workers_of_its_workspace_only(self, world: World) -> None:
        other = await world.pool.fetchval("INSERT INTO workspaces (name) VALUES ('other') RETURNING id")
        pepper = world.settings.key_pepper.get_secret_value().encode()
        async with world.pool.acquire() as conn:
            key = await create_key(conn, NewKey("enrol", other, [Scope.WORKER_JOIN]), pepper)
        run_id = await world.start_run(1)
        async with (
            joined_host(world) as host,
            joined_host(world, key.plaintext) as stranger,
            open_stream(world, host) as mine,
            open_stream(world, stranger) as theirs,
        ):
            async with world.pool.acquire() as conn, conn.transaction():
                await cancel_run(conn, world.workspace_id, run_id)
            assert await next_of(mine, "cancel_run") == str(run_id)
            assert await next_of(theirs, "ping") == 1
            assert theirs.empty()

    async def test_cancelled_jobs_are_told_to_their_worker(self, world: World) -> None:
        async with joined_host(world) as host, open_stream(world, host) as messages:
            notice = {"kind": "cancel_jobs", "worker": host.joined.worker_id, "jobs": [["j", 3], ["k", 1]]}
            await world.pool.execute(
                "SELECT pg_notify($1, $2)", names.CONTROL_CHANNEL, orjson.dumps(notice).decode()
            )
            async with asyncio.timeout(WAIT_S):
                assert await messages.get() == {"cancel_jobs": [["j", 3], ["k", 1]]}

    async def test_malformed_notices_are_survived(self, world: World) -> None:
        async with joined_host(world) as host, open_stream(world, host) as messages:
            for notice in (
                "",
                "[]",
                "{",
                '{"kind": "drain", "worker": "no id"}',
                '{"kind": "cancel_run", "run": "x"}',
            ):
                await world.pool.execute("SELECT pg_notify($1, $2)", names.CONTROL_CHANNEL, notice)
            drain = {"kind": "drain", "worker": host.joined.worker_id}
            await world.pool.execute(
                "SELECT pg_notify($1, $2)", names.CONTROL_CHANNEL, orjson.dumps(drain).decode()
            )
            assert await next_of(messages, "drain") is True

    async def test_broken_stream_takes_the_worker_off_line_after_the_grace(self, world: World) -> None:
        async with joined_host(world) as host:
            async with open_stream(world, host):
                assert await column(world, host, "status") == "online"
            await until(lambda: has(world, host, "status", "offline"), 10)
        assert await world.pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'worker.timed_out'") == 1

    async def test_stream_that_comes_back_in_time_keeps_the_worker(self, world: World) -> None:
        async with joined_host(world) as host:
            async with open_stream(world, host):
                pass
            async with open_stream(world, host) as messages:
                await next_of(messages, "ping")
                await next_of(messages, "ping")
                assert await column(world, host, "status") == "online"
        assert await world.pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'worker.timed_out'") == 0

    async def test_stop_of_the_api_is_no_disconnect(self, world: World) -> None:
        async with joined_host(world) as host, open_stream(world, host):
            await world.stop_api()
            seen = await column(world, host, "stream_seen_at")
            status = await column(world, host, "status")
            await world.start_api()
        assert seen is not None
        assert status == "online"

    async def test_worker_whose_replica_died_with_it_is_found(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(control, "SILENT_S", 0.5)
        async with joined_host(world) as host:
            await world.pool.execute(
                """UPDATE workers SET stream_replica = 'gone', beat_at = beat_at - interval '1 minute',
                                      stream_seen_at = clock_timestamp() - interval '1 minute'"""
            )
            await until(lambda: has(world, host, "status", "offline"), 15)

    async def test_stream_of_a_replaced_life_is_closed(self, world: World) -> None:
        async with joined_host(world) as host, open_stream(world, host) as messages:
            await world.pool.execute("UPDATE workers SET incarnation = $1", uuid4())
            assert await next_of(messages, "ended")
            with pytest.raises(Conflict):
                await host.api.heartbeat(NOTHING)
