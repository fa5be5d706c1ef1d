"""Streams of events and notifications: no gap, no repeat, other tenants, slow readers, lost keys."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx2
import orjson
import pytest

from api import feeds, streams
from runlane.db.keys import revoke_key
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, assert_problem, open_api, served
from tests.integration.inboxes import add_key, failed, number, tell
from tests.waiting import until

pytestmark = pytest.mark.integration

EVENTS = "/v1/events/stream"
NOTIFICATIONS = "/v1/notifications/stream"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "LOOK_S", 0.02)


@dataclass(slots=True)
class Reader:
    """A client of a stream and what it has got. `last_id` is what a browser would come back with."""

    url: str
    key: str
    seen: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    last_id: str | None = None

    def ids(self) -> list[object]:
        return [data["id"] for name, data in self.seen if name not in {"ready", "resync"}]

    def names(self) -> list[str]:
        return [name for name, _ in self.seen]

    async def read(self) -> None:
        """Reads until the stream ends."""
        headers = {"Authorization": f"Bearer {self.key}"}
        if self.last_id is not None:
            headers["Last-Event-ID"] = self.last_id
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as client,
            client.stream("GET", self.url) as response,
        ):
            assert response.headers["content-type"].startswith("text/event-stream")
            event = {"event": "", "data": ""}
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    self.last_id = value
                elif name in event:
                    event[name] = value
                elif not line and event["event"]:
                    self.seen.append((event["event"], orjson.loads(event["data"])))
                    event = {"event": "", "data": ""}


@asynccontextmanager
async def reading(reader: Reader) -> AsyncIterator[asyncio.Task[None]]:
    """Reads for the length of the block; its end drops the connection."""
    task = asyncio.create_task(reader.read())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def idling(url: str, key: str) -> AsyncIterator[asyncio.StreamReader]:
    """A client that asks for the events and reads nothing by itself."""
    place = urlsplit(url)
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    small.connect((place.hostname, place.port))
    slow, writer = await asyncio.open_connection(sock=small, limit=1_024)
    writer.write(f"GET {EVENTS} HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
    try:
        yield slow
    finally:
        writer.transport.abort()


async def test_reader_that_comes_back_to_another_replica_misses_none_and_gets_none_twice(
    world: ApiWorld, settings: Settings, pool: Pool, workspace_id: UUID
) -> None:
    key = await add_key(pool, settings, workspace_id, "ann")
    away = settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    sent = [failed(workspace_id) for _ in range(1_000)]
    async with (
        served(world.app) as one,
        open_api(away, pool) as other_world,
        served(other_world.app) as other,
    ):
        reader = Reader(f"{one}{EVENTS}?type=job", key)
        async with reading(reader):
            await until(lambda: reader.names() == ["ready"])
            await number(pool, sent[:300])
            await until(lambda: len(reader.ids()) > 100)
        await number(pool, sent[300:600])
        reader.url = f"{other}{EVENTS}?type=job"
        async with reading(reader):
            await until(lambda: len(reader.ids()) > 400)
            await number(pool, sent[600:])
            await until(lambda: len(reader.ids()) >= 1_000)

    assert reader.ids() == [str(event.id) for event in sent]
    assert set(reader.names()) == {"ready", "event"}


async def test_notifications_reach_their_recipient_and_nobody_else(
    world: ApiWorld, settings: Settings, pool: Pool, workspace_id: UUID
) -> None:
    theirs = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('theirs') RETURNING id")
    keys = [await add_key(pool, settings, workspace_id, name) for name in ("ann", "ben")]
    keys.append(await add_key(pool, settings, theirs, "ann"))
    run_id = uuid4()
    async with served(world.app) as url:
        ann, ben, other = (Reader(f"{url}{NOTIFICATIONS}", key) for key in keys)
        events = Reader(f"{url}{EVENTS}?severity=medium", keys[2])
        async with reading(ann), reading(ben), reading(other), reading(events):
            await until(lambda: all(reader.seen for reader in (ann, ben, other, events)))
            await tell(pool, [failed(workspace_id, run_id) for _ in range(30)])
            await number(pool, [failed(workspace_id)])
            await until(lambda: len(ann.ids()) == len(ben.ids()) == 21)
            await tell(pool, [failed(workspace_id, run_id)])
            await until(lambda: len(ann.ids()) == 22)
            await tell(pool, [failed(theirs)])
            await number(pool, [failed(theirs)])
            await until(lambda: other.ids() and events.ids())

    assert not set(ann.ids()) & set(ben.ids())
    assert ann.ids()[-1] == ann.ids()[-2]  # the digest has grown
    assert ann.seen[-1][1]["events"] == 11
    assert ann.seen[-1][1]["text"] == "11 times job failed"
    assert (len(other.ids()), len(events.ids())) == (1, 1)


async def test_reader_that_does_not_read_is_sent_away_and_holds_up_nobody(
    world: ApiWorld, settings: Settings, pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "BACKLOG", 300)
    monkeypatch.setattr(streams, "SEND_S", 0.5)
    key = await add_key(pool, settings, workspace_id, "ann")
    hub = world.app.state.resources.events
    sent = [failed(workspace_id, error="long enough " * 160) for _ in range(3_000)]
    async with served(world.app) as url, idling(url, key) as slow:
        quick = Reader(f"{url}{EVENTS}?type=job", key)
        async with reading(quick):
            await until(lambda: quick.seen and len(hub._followers) == 2)
            for start in range(0, len(sent), 100):
                await number(pool, sent[start : start + 100])
                await until(lambda start=start: len(quick.ids()) >= start)  # type: ignore[misc]  # bound now
            await until(lambda: len(quick.ids()) == len(sent))
            await until(lambda: len(hub._followers) == 1)
        text = b""
        while b"event: resync" not in text[-4_000:]:
            piece = await slow.read(65_536)
            assert piece
            text += piece


async def test_stream_ends_when_its_key_is_revoked(
    world: ApiWorld, settings: Settings, pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEY_S", 0.05)
    key = await add_key(pool, settings, workspace_id, "ann")
    async with served(world.app) as url:
        reader = Reader(f"{url}{NOTIFICATIONS}", key)
        async with reading(reader) as task:
            await until(lambda: reader.seen)
            assert not task.done()
            async with pool.acquire() as conn, conn.transaction():
                await revoke_key(conn, await conn.fetchval("SELECT id FROM api_keys"))
            await until(task.done)
            task.result()


@pytest.mark.parametrize("last_id", ["nonsense", "-1", "999999", "1"])
async def test_id_that_is_unknown_or_too_old_is_answered_by_resync_and_goes_on_from_there(
    world: ApiWorld, settings: Settings, pool: Pool, workspace_id: UUID, last_id: str
) -> None:
    key = await add_key(pool, settings, workspace_id, "ann")
    await number(pool, [failed(workspace_id) for _ in range(20)])
    await pool.execute("UPDATE bus_state SET pruned_seq = 10")
    sent = [failed(workspace_id) for _ in range(3)]
    async with served(world.app) as url:
        reader = Reader(f"{url}{EVENTS}", key, last_id=last_id)
        async with reading(reader):
            await until(lambda: reader.seen)
            await number(pool, sent)
            await until(lambda: len(reader.ids()) == 3)

    assert reader.names() == ["resync", "event", "event", "event"]
    assert reader.ids() == [str(event.id) for event in sent]


async def test_idle_stream_says_how_far_the_feed_has_come(
    world: ApiWorld, settings: Settings, pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PING_S", 0.05)
    theirs = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('theirs') RETURNING id")
    key = await add_key(pool, settings, workspace_id, "ann")
    async with served(world.app) as url:
        reader = Reader(f"{url}{EVENTS}?type=job", key)
        async with reading(reader):
            await until(lambda: reader.seen)
            await number(pool, [failed(theirs) for _ in range(50)])
            newest = await pool.fetchval("SELECT last_seq FROM bus_state")
            await until(lambda: reader.last_id == str(newest))

    assert reader.ids() == []


async def test_workspace_with_too_many_streams_is_refused_and_other_scopes_are(
    world: ApiWorld, settings: Settings, pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MOST_OF_WORKSPACE", 1)
    key = await add_key(pool, settings, workspace_id, "ann")
    jobs = await add_key(pool, settings, workspace_id, "jobs", ["jobs:read"])
    async with served(world.app) as url, world.anybody(key) as http, world.anybody(jobs) as stranger:
        reader = Reader(f"{url}{EVENTS}", key)
        async with reading(reader):
            await until(lambda: reader.seen)
            assert_problem(await http.get(EVENTS), 409, "stream.too_many")
            for path in (EVENTS, NOTIFICATIONS):
                assert_problem(await stranger.get(path), 403, "key.scope")
        hub = world.app.state.resources.events
        await until(lambda: not hub._followers)
        assert hub._following is None
