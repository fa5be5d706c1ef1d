"""A wire that can be cut: a TCP relay on the loopback between a process and a server that it talks to."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, Self

_CHUNK: Final = 65_536


class Link:
    """While it is cut nothing passes either way, and nobody is told: connections stay open."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self.port = 0

    @classmethod
    @asynccontextmanager
    async def to(cls, host: str, port: int) -> AsyncIterator[Self]:
        """A wire to a server; its near end is `port` of the loopback."""
        link = cls(host, port)
        near = await asyncio.start_server(link._connect, "127.0.0.1", 0)
        link.port = near.sockets[0].getsockname()[1]
        try:
            yield link
        finally:
            near.close()
            link.mend()
            if link._relays:
                await asyncio.wait(link._relays)

    def cut(self) -> None:
        """Lets nothing pass from now on."""
        self._passing.clear()

    def mend(self) -> None:
        """Lets new connections pass; those of before break now, at both ends."""
        for writer in self._writers:
            writer.transport.abort()
        self._passing.set()

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._held(writer), suppress(OSError):  # the server may be away
            await self._passing.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._server)
            with self._held(far_writer):
                await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    @contextmanager
    def _held(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._passing.wait()
                writer.write(data)
                await writer.drain()
        await self._passing.wait()
        writer.close()
