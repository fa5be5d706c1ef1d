"""Results on disk until the API has them."""

import asyncio
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import orjson
import pytest

from runlane.errors import Conflict, Invalid, Refused, Unavailable
from runlane.jobs import Outcome
from runlane.scan.client import WorkerApi, until_answered
from runlane.scan.delivery import Deliverer
from runlane.scan.spool import BatchIdentity, Package, Spool, pack
from runlane.scan.wire import Member
from tests.waiting import WAIT_S

IDENTITY = BatchIdentity("d", "i", "ports_scanner", "1.0.0")


def member(job_id: str, *records: bytes, error: str | None = None) -> Member:
    return Member(job_id, 2, Outcome.COMPLETED, error, complete=True, reachable=True, records=records)


class Api:
    """A server of the one route that deliveries need; answers with the statuses it is told, then with 200."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.bodies: list[dict[str, object]] = []
        self.port = 0

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        self.bodies.append(orjson.loads(await reader.readexactly(length)))
        status = self.statuses.pop(0) if self.statuses else 200
        text = orjson.dumps({"accepted": ["a"], "stale": [], "code": "result.test", "detail": "said so"})
        head_out = f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        writer.write(head_out.encode() + text)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@pytest.fixture
async def server() -> AsyncIterator[Api]:
    api = Api()
    listener = await api.serve()
    yield api
    listener.close()
    await listener.wait_closed()


@pytest.fixture
async def client(server: Api) -> AsyncIterator[WorkerApi]:
    async with WorkerApi(f"http://127.0.0.1:{server.port}") as api:
        yield api


def files(folder: Path) -> list[Path]:
    return list(folder.glob("*.result"))


class TestPack:
    def test_body_has_a_line_for_each_job_that_found_something(self) -> None:
        (package,) = pack(IDENTITY, [member("a", b"1", b"2"), member("b"), member("c", b"3")])

        assert package.body is not None
        assert [orjson.loads(line) for line in package.body.splitlines()] == [
            {"job": "a", "attempt": 2, "records": [1, 2]},
            {"job": "c", "attempt": 2, "records": [3]},
        ]

    def test_empty_results_have_no_body(self) -> None:
        (package,) = pack(IDENTITY, [member("a"), member("b")])

        assert package.body is None
        assert [job["job_id"] for job in package.fields["members"]] == ["a", "b"]  # type: ignore[attr-defined]

    def test_batch_that_was_not_begun_has_no_version(self) -> None:
        """The API refused it: a batch that a host did not carry was not even told to be rejected."""
        (package,) = pack(BatchIdentity("d", "i", "bench", ""), [member("a")])

        assert orjson.loads(package.header)["members"][0]["tool_version"] is None

    def test_nothing_makes_no_package(self) -> None:
        assert pack(IDENTITY, []) == []

    def test_header_that_would_be_too_large_is_split(self) -> None:
        packages = pack(IDENTITY, [member(f"j{number}", error="e" * 20_000) for number in range(60)])

        assert len(packages) == 3
        assert all(len(package.header) < 600_000 for package in packages)


class TestSpool:
    async def test_package_comes_back_as_it_was(self, tmp_path: Path) -> None:
        spool = Spool(tmp_path, 1_000_000)
        (package,) = pack(IDENTITY, [member("a", b'{"x":1}')])

        path = await spool.put(package)

        assert path is not None
        assert await spool.load(path) == package
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    async def test_full_spool_takes_nothing_more(self, tmp_path: Path) -> None:
        spool = Spool(tmp_path, 100)

        assert await spool.put(Package(b"{}", b"x" * 90)) is not None
        assert await spool.put(Package(b"{}", b"x" * 90)) is None

    async def test_unreadable_file_is_removed(self, tmp_path: Path) -> None:
        path = tmp_path / "x.result"
        path.write_bytes(b"\xff\x00 half a pack")

        assert await Spool(tmp_path, 100).load(path) is None
        assert not path.exists()


class TestDelivery:
    async def test_result_waits_on_disk_while_the_api_fails_and_is_gone_after(
        self, server: Api, client: WorkerApi, tmp_path: Path
    ) -> None:
        server.statuses = [503, 503]
        (package,) = pack(IDENTITY, [member("a", b"1")])

        answer = await Deliverer(client, Spool(tmp_path, 1_000_000), 1000).deliver(package, WAIT_S)

        assert answer.accepted == ("a",)
        assert len(server.bodies) == 3
        assert files(tmp_path) == []

    async def test_result_that_stays_undelivered_lies_on_disk_for_the_next_time(
        self, server: Api, client: WorkerApi, tmp_path: Path
    ) -> None:
        server.statuses = [503] * 100
        deliverer = Deliverer(client, Spool(tmp_path, 1_000_000), 1000)
        (package,) = pack(IDENTITY, [member("a", b"1")])
        with pytest.raises(Unavailable):
            await deliverer.deliver(package, 0.3)
        assert len(files(tmp_path)) == 1

        server.statuses = []

        assert await deliverer.redeliver() == 1
        assert files(tmp_path) == []

    async def test_refused_result_is_not_kept(self, server: Api, client: WorkerApi, tmp_path: Path) -> None:
        server.statuses = [503, 422]
        (package,) = pack(IDENTITY, [member("a", b"1")])

        with pytest.raises(Invalid) as refused:
            await Deliverer(client, Spool(tmp_path, 1_000_000), 1000).deliver(package, WAIT_S)

        assert (refused.value.code, refused.value.detail) == ("result.test", "said so")
        assert files(tmp_path) == []

    async def test_spool_is_kept_when_the_process_is_refused_and_not_the_package(
        self, server: Api, client: WorkerApi, tmp_path: Path
    ) -> None:
        spool = Spool(tmp_path, 1_000_000)
        (package,) = pack(IDENTITY, [member("a", b"1")])
        await spool.put(package)
        server.statuses = [409]

        with pytest.raises(Conflict):
            await Deliverer(client, spool, 1000).redeliver()

        assert len(files(tmp_path)) == 1


class TestUntilAnswered:
    async def test_call_is_made_again_until_it_is_answered(self) -> None:
        assert await until_answered(failing(Unavailable("away"), 2), WAIT_S) == "answer"

    async def test_refusal_is_final(self) -> None:
        with pytest.raises(Refused):
            await until_answered(failing(Refused("no"), 1), WAIT_S)

    async def test_patience_ends(self) -> None:
        with pytest.raises(Unavailable):
            await until_answered(failing(Unavailable("away"), 1000), 0.2)


def failing(error: Exception, times: int) -> Callable[[], Awaitable[str]]:
    left = times

    async def call() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise error
        return "answer"

    return call
