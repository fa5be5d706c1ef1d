"""A door in front of an engine's socket: while it is shut, the engine is away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


class Door:
    """Passes connections on to the engine, as long as it is open."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_open = True

    def shut(self) -> None:
        """Breaks every connection, and each new one at once."""
        self._is_open = False
        for writer in self._writers:
            writer.transport.abort()

    def open(self) -> None:
        """Lets connections through again."""
        self._is_open = True

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        if not self._is_open:
            writer.transport.abort()
            return
        their_reader, their_writer = await asyncio.open_unix_connection(self._engine)
        both = {writer, their_writer}
        self._writers |= both
        try:
            await asyncio.gather(_pass(reader, their_writer), _pass(their_reader, writer))
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@asynccontextmanager
async def door_to(engine: str, folder: Path) -> AsyncIterator[tuple[Door, str]]:
    """A door and its own address."""
    door = Door(engine.removeprefix("unix://"))
    path = folder / "door.sock"
    async with await asyncio.start_unix_server(door.take, path):
        yield door, f"unix://{path}"
        door.shut()
