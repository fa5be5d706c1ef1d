"""Uploads of scan workers: the bucket takes what was announced, and keeps nothing that was not staged."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx2
import pytest
import pytest_asyncio

from runlane.db import uploads
from runlane.db.pool import Pool
from runlane.errors import Invalid, Unavailable
from runlane.presigning import Signer
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from runlane.sweeps import Part
from tests.integration.sweep_world import sweep_world
from tests.integration.worker_host import Host, claimed_host, dispatch, joined_host, package, post
from tests.integration.worker_world import World, world_of

pytestmark = pytest.mark.integration

BODY = b"x" * 1000


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


@pytest.fixture
def storage(settings: Settings) -> Storage:
    return Storage(StorageConfig(**settings.bucket))


async def place(world: World, host: Host, dispatch_id: str, body: bytes = BODY) -> dict[str, str]:
    """What the API answers to a worker that wants to upload a body."""
    wanted = {"dispatch_id": dispatch_id, "size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    headers = {"Authorization": f"Bearer {host.joined.token}", "X-Runlane-Incarnation": host.incarnation}
    answer = await post(world, "/uploads", wanted, **headers)
    answered: dict[str, str] = answer.json()
    return answered


async def put(url: str, body: bytes | AsyncIterator[bytes]) -> int:
    """Status of an upload."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        return (await http.put(url, content=body)).status_code


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    yield body


@pytest.mark.parametrize("more", [-1, 1, 5_000_000])
async def test_body_of_another_size_than_announced_is_refused_by_the_bucket(
    world: World, storage: Storage, more: int
) -> None:
    async with claimed_host(world) as (host, dispatch_id, _):
        given = await place(world, host, dispatch_id)
        assert await put(given["url"], BODY + b"x" * more if more > 0 else BODY[:more]) == 403
        assert await put(given["url"], in_pieces(BODY + b"x" * 5000)) == 403  # without a length
        assert await storage.size_of(given["key"]) is None

        assert await put(given["url"], BODY) == 200

    assert await storage.size_of(given["key"]) == len(BODY)
    await storage.discard([given["key"]])


async def test_body_that_goes_on_behind_its_length_is_not_kept(world: World, storage: Storage) -> None:
    async with claimed_host(world) as (host, dispatch_id, _):
        given = await place(world, host, dispatch_id)
        await send_raw(given["url"], b"", b"x" * 5000)
        assert await storage.size_of(given["key"]) in {None, len(BODY)}
        chunked = b"1388\r\n" + b"x" * 5000 + b"\r\n0\r\n\r\n"
        await send_raw(given["url"], b"Transfer-Encoding: chunked\r\n", chunked)
        assert await storage.size_of(given["key"]) in {None, len(BODY)}
    await storage.discard([given["key"]])


async def send_raw(url: str, more: bytes, body: bytes) -> None:
    """A PUT that announces 1,000 bytes and sends what it likes; the server may cut it off."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    head = f"PUT {at.path}?{at.query} HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Length: {len(BODY)}\r\n"
    writer.write(head.encode() + more + b"Connection: close\r\n\r\n" + body)
    try:
        await writer.drain()
        await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_other_body_than_announced_is_not_staged(world: World, storage: Storage) -> None:
    async with claimed_host(world) as (host, dispatch_id, claimed):
        given = await place(world, host, dispatch_id)
        assert await put(given["url"], BODY) == 200
        other = hashlib.sha256(b"other").hexdigest()
        located = {"key": given["key"], "size": len(BODY), "sha256": other}
        with pytest.raises(Invalid) as refused:
            await host.api.results({**package(host, dispatch_id, claimed).fields, "object": located}, None)
    assert refused.value.code == "result.object"
    assert await world.pool.fetchval("SELECT count(*) FROM job_results") == 0
    await storage.discard([given["key"]])


async def test_object_that_is_larger_than_its_place_is_removed_at_once(
    world: World, storage: Storage
) -> None:
    """As if the bucket's server did not look at the length."""
    async with claimed_host(world) as (host, dispatch_id, claimed):
        given = await place(world, host, dispatch_id)
        await storage.put(given["key"], BODY + b"more")
        located = {"key": given["key"], "size": len(BODY), "sha256": hashlib.sha256(BODY).hexdigest()}
        with pytest.raises(Invalid):
            await host.api.results({**package(host, dispatch_id, claimed).fields, "object": located}, None)
    assert await storage.size_of(given["key"]) is None


async def test_object_that_is_not_there_is_asked_for_again(world: World) -> None:
    async with claimed_host(world) as (host, dispatch_id, claimed):
        given = await place(world, host, dispatch_id)
        located = {"key": given["key"], "size": len(BODY), "sha256": hashlib.sha256(BODY).hexdigest()}
        with pytest.raises(Unavailable) as missing:
            await host.api.results({**package(host, dispatch_id, claimed).fields, "object": located}, None)
    assert missing.value.code == "result.object_missing"


async def test_same_body_asked_for_again_has_the_same_place(world: World) -> None:
    async with claimed_host(world) as (host, dispatch_id, _):
        first = await place(world, host, dispatch_id)
        again = await place(world, host, dispatch_id)
        other = await place(world, host, dispatch_id, BODY + b"y")
    assert first["key"] == again["key"] != other["key"]


async def test_worker_that_uploads_and_never_stages_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MOST_OUTSTANDING", 3)
    monkeypatch.setattr(uploads, "MOST_OUTSTANDING_BYTES", 2500)
    async with joined_host(world) as host, joined_host(world) as neighbour:
        dispatch_id = await dispatch(world, await world.start_run(1))
        answers = [await place(world, host, dispatch_id, b"%d" % n) for n in range(4)]
        of_size = [await place(world, neighbour, dispatch_id, BODY + b"%d" % n) for n in range(3)]
    assert [each.get("code") for each in answers] == [None, None, None, "upload.too_many"]
    assert [each.get("code") for each in of_size] == [None, None, "upload.too_many"]


async def test_object_that_nothing_was_staged_from_counts_until_it_is(
    world: World, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MOST_OUTSTANDING", 1)
    async with claimed_host(world) as (host, dispatch_id, claimed):
        given = await place(world, host, dispatch_id)
        assert await put(given["url"], BODY) == 200
        fields = package(host, dispatch_id, claimed).fields
        located = {"key": given["key"], "size": len(BODY), "sha256": hashlib.sha256(BODY).hexdigest()}
        strangers = [{**fields["members"][0], "job_id": str(uuid4())}]  # type: ignore[index]
        stale = await host.api.results({**fields, "members": strangers, "object": located}, None)
        full = await place(world, host, dispatch_id, BODY + b"y")
        await stage(host, dispatch_id, given, BODY, fields)
        free = await place(world, host, dispatch_id, BODY + b"y")
    assert stale.accepted == ()
    assert (full.get("code"), "url" in free) == ("upload.too_many", True)
    await storage.discard([given["key"]])


async def test_object_of_another_worker_is_neither_staged_nor_removed(world: World, storage: Storage) -> None:
    async with claimed_host(world) as (host, dispatch_id, claimed), joined_host(world) as neighbour:
        given = await place(world, host, dispatch_id)
        assert await put(given["url"], BODY) == 200
        located = {"key": given["key"], "size": 1, "sha256": hashlib.sha256(BODY).hexdigest()}
        fields = package(neighbour, dispatch_id, claimed).fields
        with pytest.raises(Invalid) as refused:
            await neighbour.api.results({**fields, "object": located}, None)
    assert refused.value.code == "result.object"
    assert await storage.size_of(given["key"]) == len(BODY)
    await storage.discard([given["key"]])


async def test_sweep_removes_what_was_never_staged_and_what_came_back_after_its_merge(
    world: World, settings: Settings, storage: Storage
) -> None:
    async with (
        claimed_host(world) as (host, dispatch_id, claimed),
        sweep_world(settings, world.pool) as swept,
    ):
        left, staged, merged = [await place(world, host, dispatch_id, BODY + b"%d" % n) for n in range(3)]
        for given, number in ((left, 0), (staged, 1), (merged, 2)):
            assert await put(given["url"], BODY + b"%d" % number) == 200
        await stage(host, dispatch_id, staged, BODY + b"1", package(host, dispatch_id, claimed).fields)
        await world.pool.execute("UPDATE uploads SET staged_at = now() WHERE object_key = $1", merged["key"])
        assert (await swept.sweep(Part.UPLOADS)).examined == 0

        await world.pool.execute("UPDATE uploads SET expires_at = expires_at - interval '1 hour'")
        report = await swept.sweep(Part.UPLOADS)

    assert (report.examined, report.changed, report.failed) == (3, 3, 0)
    sizes = [await storage.size_of(given["key"]) for given in (left, staged, merged)]
    assert sizes == [None, len(BODY) + 1, None]
    await storage.discard([staged["key"]])


async def stage(
    host: Host, dispatch_id: str, given: dict[str, str], body: bytes, fields: dict[str, object]
) -> None:
    located = {"key": given["key"], "size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    answer = await host.api.results({**fields, "object": located}, None)
    assert answer.accepted
    assert UUID(dispatch_id)


def test_url_is_signed_for_the_host_that_a_client_names() -> None:
    now, minute = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), timedelta(minutes=1)

    def signature(endpoint: str, size_bytes: int = 10) -> str:
        signer = Signer(endpoint, "key", "secret", "us-east-1")
        return signer.put_url("/bucket/a b", size_bytes, now, minute).rpartition("=")[2]

    assert signature("https://s3.test") == signature("https://s3.test:443")
    assert signature("https://s3.test") != signature("https://s3.test:9000")
    assert signature("https://s3.test") != signature("https://s3.test", 11)
    assert "/bucket/a%20b?" in Signer("http://[::1]:9", "k", "s", "r").put_url("/bucket/a b", 1, now, minute)
