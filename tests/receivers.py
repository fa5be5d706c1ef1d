"""Receivers of deliveries: small HTTP servers that keep what reached them byte by byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from httpx2 import AsyncClient

from runlane.outbound.guard import open_client
from runlane.outbound.reach import Reach

LOOPBACK = Reach(("127.0.0.0/8", "::1/128"))
"""Where receivers of tests are."""


@dataclass(frozen=True)
class Received:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def wire(self) -> bytes:
        headers = {"Content-Length": str(len(self.body)), **self.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {self.status} Said\r\n{lines}\r\n".encode() + self.body


def reply(value: object, status: int = 200, **headers: str) -> Reply:
    """An answer of JSON; `_` in names of headers stands for `-`."""
    return Reply(
        status, orjson.dumps(value), {name.replace("_", "-"): text for name, text in headers.items()}
    )


@dataclass
class Receiver:
    """A server. A name that leads here is one that the client of `Receiver.client` resolves to it."""

    port: int
    scheme: str
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://receiver.test:{self.port}"


Respond = Callable[[Received], Reply | None]
"""What is answered; None: nothing, for ever."""


@asynccontextmanager
async def receiver(respond: Respond, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Serves until the end of the block."""
    served: Receiver | None = None
    conversations: set[asyncio.Task[Any]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert served is not None
        conversations.add(task)
        try:
            while request := await _request(reader):
                served.received.append(request)
                answer = respond(request)
                if answer is None:
                    await asyncio.Event().wait()
                    continue
                writer.write(answer.wire())
                await writer.drain()
        except (EOFError, OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=tls, limit=1 << 20)
    served = Receiver(server.sockets[0].getsockname()[1], "https" if tls else "http")
    try:
        yield served
    finally:
        server.close()
        for task in conversations:
            task.cancel()
        await asyncio.gather(*conversations, return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def sender(
    *addresses: str, reach: Reach = LOOPBACK, ca_file: str = ""
) -> AsyncIterator[tuple[AsyncClient, list[str]]]:
    """A guarded client for which every name leads to the addresses, and the names that it asked for."""
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return addresses or ("127.0.0.1",)

    client = open_client(reach, ca_file, resolve)
    try:
        yield client, asked
    finally:
        await client.aclose()


async def _request(reader: asyncio.StreamReader) -> Received | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    method, target, _ = first.split(" ")
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body)
