"""The worker's client before servers that hang up, answer nonsense or without end, or stand behind a path."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
import pytest

from runlane.errors import Refused, Unavailable
from runlane.scan import wire
from runlane.scan.client import WorkerApi, until_answered

TOKEN = "rlw_the-token"
SIGNED = "/bucket/a%2Fb.ndjson?X-Amz-Signature=c%2Fd%7E+e~f"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LIFE = wire.JoinRequest("host", ("probe",), {"probe": 1}, "1", 1, "life")


@dataclass
class Server:
    """A server on loopback; says what it is told to each request, and hangs up where that is nothing."""

    answer: Callable[["Server", str], AsyncIterator[bytes]]
    url: str = ""
    heads: list[str] = field(default_factory=list)
    open: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.append(writer)
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client hung up
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lengths = [line[15:] for line in head.lower().split("\r\n") if line.startswith("content-length:")]
        await reader.readexactly(int(lengths[0]) if lengths else 0)
        self.heads.append(head)
        is_answered = False
        async for part in self.answer(self, head):
            is_answered = True
            writer.write(part)
            await writer.drain()
        return is_answered


@asynccontextmanager
async def served(answer: Callable[[Server, str], AsyncIterator[bytes]]) -> AsyncIterator[Server]:
    server = Server(answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        for writer in server.open:
            writer.close()
        listener.close()
        await listener.wait_closed()


def reply(body: object, status: int = 200, more: str = "") -> bytes:
    text = orjson.dumps(body)
    return f"HTTP/1.1 {status} Said\r\nContent-Length: {len(text)}\r\n{more}\r\n".encode() + text


async def nothing_new(server: Server, head: str) -> AsyncIterator[bytes]:
    yield reply({})


async def hang_up(server: Server, head: str) -> AsyncIterator[bytes]:
    parts: tuple[bytes, ...] = ()
    for part in parts:
        yield part


async def elsewhere(server: Server, head: str) -> AsyncIterator[bytes]:
    yield reply({}, 307, "Location: /v1/worker/elsewhere\r\n")


async def nonsense(server: Server, head: str) -> AsyncIterator[bytes]:
    yield b"what?\r\n\r\n"


async def no_end(server: Server, head: str) -> AsyncIterator[bytes]:
    yield CHUNKED
    while True:
        yield b"100000\r\n" + b" " * 0x100000 + b"\r\n"


async def bucket(server: Server, head: str) -> AsyncIterator[bytes]:
    is_upload = head.startswith("PUT ")
    yield reply(None) if is_upload else reply({"url": f"{server.url}{SIGNED}", "key": "k"})


async def broken_bucket(server: Server, head: str) -> AsyncIterator[bytes]:
    async for part in nonsense(server, head) if head.startswith("PUT ") else bucket(server, head):
        yield part


class TestConnection:
    @pytest.mark.parametrize("kind", ["close", "abort"])
    async def test_connection_that_the_server_closes_while_it_is_idle_is_no_lost_call(
        self, kind: str
    ) -> None:
        async with served(nothing_new) as server, WorkerApi(server.url) as api:
            await api.leave()
            getattr(server.open[0].transport, kind)()

            await until_answered(api.leave, 10.0)

        assert len(server.open) == 2

    async def test_call_that_is_hung_up_on_may_be_made_again(self) -> None:
        async with served(hang_up) as server, WorkerApi(server.url) as api:
            with pytest.raises(Unavailable):
                await api.leave()

    async def test_connection_serves_one_call_after_the_other(self) -> None:
        async with served(nothing_new) as server, WorkerApi(server.url) as api:
            for _ in range(3):
                await api.leave()

        assert (len(server.open), len(server.heads)) == (1, 3)

    async def test_absent_server_may_be_called_again(self) -> None:
        async with served(nothing_new) as server:
            pass
        async with WorkerApi(server.url) as api:
            with pytest.raises(Unavailable, match="the API does not answer"):
                await api.leave()

    async def test_proxy_of_the_environment_is_not_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        async with served(nothing_new) as server, WorkerApi(server.url) as api:
            await api.leave()

        assert len(server.heads) == 1


class TestRequest:
    @pytest.mark.parametrize("path", ["", "/", "/behind/a%2Fb", "/behind/a%2Fb/"])
    async def test_path_of_the_address_stands_before_every_call(self, path: str) -> None:
        async with served(nothing_new) as server, WorkerApi(server.url + path) as api:
            await api.leave()

        assert server.heads[0].startswith(f"POST {path.rstrip('/')}/v1/worker/leave HTTP/1.1\r\n")

    async def test_redirect_is_not_followed(self) -> None:
        async with served(elsewhere) as server, WorkerApi(server.url) as api:
            with pytest.raises(Refused):
                await api.leave()

        assert len(server.heads) == 1

    async def test_upload_is_sent_to_the_address_as_it_was_signed(self) -> None:
        body = b"x" * 3_000_000
        async with served(bucket) as server, WorkerApi(server.url) as api:
            staged = await api.upload("d", body)

        upload = server.heads[1]
        assert (staged.key, staged.size) == ("k", len(body))
        assert upload.startswith(f"PUT {SIGNED} HTTP/1.1\r\n")
        assert f"content-length: {len(body)}\r\n" in upload.lower()
        assert not any(name in upload.lower() for name in ("content-type", "authorization", "chunked"))


class TestAnswer:
    async def test_answer_that_does_not_end_is_cut_off(self) -> None:
        async with served(no_end) as server, WorkerApi(server.url) as api:
            with pytest.raises(Unavailable, match="more than 67108864 bytes"):
                await api.leave()

    async def test_error_shows_neither_the_token_nor_the_signed_address(self) -> None:
        async with served(nonsense) as server, WorkerApi(server.url) as api:
            with pytest.raises(Unavailable) as joining:
                await api.join(LIFE, TOKEN)
        async with served(broken_bucket) as server, WorkerApi(server.url) as api:
            with pytest.raises(Unavailable) as uploading:
                await api.upload("d", b"x")

        assert TOKEN not in joining.value.detail
        assert "Signature" not in uploading.value.detail

    async def test_stream_that_can_no_longer_be_read_is_broken(self) -> None:
        was_heard = asyncio.Event()

        async def break_off(server: Server, head: str) -> AsyncIterator[bytes]:
            yield CHUNKED + b'd\r\n{"hello": 1}\n\r\n'
            await was_heard.wait()
            yield b"what?\r\n"

        async with served(break_off) as server, WorkerApi(server.url) as api:
            messages = api.stream()
            assert await anext(messages) == {"hello": 1}
            was_heard.set()
            with pytest.raises(Unavailable, match="the control stream broke"):
                await anext(messages)
