"""Accidents of the bus: a reply that is lost, a holder that stands still, a turn that is taken away."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import pytest
import structlog.testing
from redis.asyncio import Redis

from lanes import loop, outages, turns, unordered
from lanes.audit import AuditSink
from runlane import names
from runlane.db.pool import Connection, Pool
from runlane.events import BusEvent
from runlane.overlook import Overlook, Waiting
from runlane.settings import Settings
from tests.integration.event_bus import (
    are_published,
    audited,
    cancelled,
    checkpoint,
    lane,
    produce,
    relay,
    running,
    sequences,
)
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.each_redis]


@pytest.fixture(autouse=True)
def _quick_lane(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(outages, "FIRST_PAUSE", timedelta(milliseconds=5))
    monkeypatch.setattr(turns, "BLOCK", timedelta(milliseconds=50))
    monkeypatch.setattr(turns, "STANDBY", timedelta(milliseconds=20))
    with structlog.testing.capture_logs():
        yield


class Swallowing:
    """Stands before a Redis server and swallows the answer to the next publishes, with the connection."""

    def __init__(self, url: str, times: int) -> None:
        self._server = urlsplit(url)
        self.left = times

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Serves for the length of the block; gives the URL to use instead."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        credentials = self._server.netloc.rpartition("@")[0]
        netloc = f"{credentials}@127.0.0.1:{port}" if credentials else f"127.0.0.1:{port}"
        async with server:
            yield urlunsplit(self._server._replace(netloc=netloc))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside, outside = await asyncio.open_connection(self._server.hostname, self._server.port)
        try:
            while request := await reader.read(65_536):
                outside.write(request)
                answer = await inside.read(65_536)
                if b"EVALSHA" in request and self.left and not answer.startswith(b"-"):
                    self.left -= 1
                    return
                writer.write(answer)
                await writer.drain()
        except OSError:
            return
        finally:
            outside.close()
            writer.close()


async def test_publish_whose_answer_is_lost_puts_each_event_on_the_stream_once(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    swallowing = Swallowing(settings.redis_url, times=3)

    async with swallowing.open() as url:
        through = settings.model_copy(update={"redis_url": url})
        async with running(relay(through)):
            for _ in range(6):
                await produce(pool, [cancelled(workspace_id) for _ in range(5)])
                await until(lambda: are_published(pool))

    assert swallowing.left == 0
    assert await sequences(redis) == list(range(1, 31))


class Pausing(AuditSink):
    """An audit sink that stands still in its first call, until it is let go on."""

    def __init__(self) -> None:
        self.is_paused = asyncio.Event()
        self.go_on = asyncio.Event()
        self.starts = 0

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        self.starts += 1
        await super().handle(conn, events)
        if not self.is_paused.is_set():
            self.is_paused.set()
            await self.go_on.wait()


async def lane_reaches(pool: Pool, sequence: int) -> None:
    async def is_there() -> bool:
        return await checkpoint(pool) >= sequence

    await until(is_there)


async def publish(pool: Pool, settings: Settings, workspace_id: UUID, count: int) -> None:
    await produce(pool, [cancelled(workspace_id) for _ in range(count)])
    async with running(relay(settings)):
        await until(lambda: are_published(pool))


async def test_instance_that_stands_still_loses_its_turn_and_the_order_holds(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(pool, settings, workspace_id, 250)
    paused = Pausing()
    monkeypatch.setattr(loop, "PAUSED", timedelta(milliseconds=300))

    async with running(lane(settings, paused)):
        await paused.is_paused.wait()
        async with running(lane(settings)):
            await lane_reaches(pool, 250)
            paused.go_on.set()
            await publish(pool, settings, workspace_id, 50)
            await lane_reaches(pool, 300)

    assert await audited(pool) == list(range(1, 301))


async def test_turn_that_is_taken_away_in_the_middle_writes_nothing(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 150)
    robbed = Pausing()

    async with running(lane(settings, robbed)):
        await robbed.is_paused.wait()
        await pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'runlane-audit'"
        )
        async with running(lane(settings)):
            await lane_reaches(pool, 150)
            robbed.go_on.set()
            await publish(pool, settings, workspace_id, 50)
            await lane_reaches(pool, 200)

    assert await audited(pool) == list(range(1, 201))


async def test_sink_that_takes_longer_than_entries_rest_is_started_once(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Pausing):
        is_ordered = False

    monkeypatch.setattr(unordered, "IDLE", timedelta(0))
    monkeypatch.setattr(unordered, "LOOK", timedelta(0))
    await publish(pool, settings, workspace_id, 5)
    slow, other = Slow(), Slow()

    async with running(lane(settings, slow)):
        await slow.is_paused.wait()
        async with running(lane(settings, other)) as standby:
            await standby.restart()
            slow.go_on.set()
            await lane_reaches(pool, 5)

    assert (slow.starts, other.starts) == (1, 0)
    assert await audited(pool) == [1, 2, 3, 4, 5]


async def test_consumers_that_nobody_is_any_more_go_unless_something_is_pending_with_them(
    redis: Redis,
) -> None:
    await redis.xgroup_create(names.EVENT_STREAM, "audit", "0", mkstream=True)
    await redis.xadd(names.EVENT_STREAM, {"sequence": "1"})
    for consumer in ("audit", "audit-of-before", "left-behind"):
        await redis.xgroup_createconsumer(names.EVENT_STREAM, "audit", consumer)
    await redis.xreadgroup("audit", "left-behind", {names.EVENT_STREAM: ">"}, count=1)
    overlook = Overlook(redis)

    early = await overlook.drop_idle_consumers("audit", timedelta(hours=1))
    dropped = await overlook.drop_idle_consumers("audit", timedelta(0))

    left = {row["name"] for row in await redis.xinfo_consumers(names.EVENT_STREAM, "audit")}
    assert (early, dropped) == (0, 1)
    assert left == {b"audit", b"left-behind"}
    assert await overlook.drop_idle_consumers("nobody", timedelta(0)) == 0
    assert await overlook.waiting("nobody") is None
    assert (await overlook.waiting("audit") or Waiting(0, None)).entries == 1
