"""The standard streams of a container over the connection that an engine gives away for them.

Reading takes a thread as long as nothing comes, so `close` ends the read from this side.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Protocol, TypeVar

from runlane.containers.frames import Frames

_MOST_BYTES: Final = 65_536

_T = TypeVar("_T")


class _Response(Protocol):
    def close(self) -> None: ...


class RawSocket(Protocol):
    """What the SDK answers to an attach."""

    _response: _Response

    def fileno(self) -> int:
        """Descriptor of the connection."""
        ...


class Attachment:
    """One read and one write at a time."""

    def __init__(self, given: RawSocket, pool: Executor) -> None:
        # a socket of our own: the one that is given away has a time limit, and no way to end half of it
        self._socket = socket.socket(fileno=os.dup(given.fileno()))
        self._socket.setblocking(True)
        self._response = given._response
        self._pool = pool
        self._frames = Frames()
        self._is_closed = False

    async def read(self) -> list[tuple[bool, bytes]] | None:
        """The next pieces, each with whether it is diagnostics; None at the end of the output.

        A connection that breaks is an end like any other: the container says how it came to it.
        """
        return await self._in_thread(self._read)

    async def write(self, data: bytes) -> None:
        """Writes all of its input and ends it. What the container does not take is lost, and no error."""
        await self._in_thread(lambda: self._write(data))

    def close(self) -> None:
        """Ends reads and writes in progress and frees the connection. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._response.close()

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def _read(self) -> list[tuple[bool, bytes]] | None:
        with contextlib.suppress(OSError):
            while data := self._socket.recv(_MOST_BYTES):
                if pieces := self._frames.feed(data):
                    return pieces
        return None

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(data)
            self._socket.shutdown(socket.SHUT_WR)
