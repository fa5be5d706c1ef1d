"""The worker's ends of a child's stdin, stdout and stderr, on the event loop."""

import asyncio
import os
from typing import Final

STDERR_TAIL_BYTES: Final = 16 * 1024
"""How much of the end of a child's diagnostics is kept."""

_CHUNK: Final = 65_536
_EOF_GRACE_S: Final = 2.0  # after its exit, for output that something unkillable still holds open


class Tail(asyncio.Protocol):
    """Keeps the end of what it is sent."""

    def __init__(self) -> None:
        self.tail = bytearray()
        self.heard_bytes = 0
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Called by the transport."""
        self.heard_bytes += len(data)
        self.tail += data
        del self.tail[:-STDERR_TAIL_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the transport, at the end of the output."""
        self.closed.set()


class Pipes:
    """Three pipes to one child; `close` frees them."""

    def __init__(
        self,
        stdin: asyncio.StreamWriter,
        stdout: tuple[asyncio.StreamReader, asyncio.ReadTransport],
        stderr: tuple[Tail, asyncio.ReadTransport],
    ) -> None:
        self.stdin = stdin
        self.stderr, self._stderr_transport = stderr
        self._stdout, self._stdout_transport = stdout
        self._is_reading = False

    @classmethod
    async def open(cls) -> tuple["Pipes", tuple[int, int, int]]:
        """Makes the pipes; the second part are the child's ends, to be given away and closed."""
        loop = asyncio.get_running_loop()
        (stdin_theirs, stdin), (stdout, stdout_theirs), (stderr, stderr_theirs) = (
            os.pipe() for _ in range(3)
        )
        reader = asyncio.StreamReader()
        stdout_transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdout, "rb", buffering=0)
        )
        stderr_transport, tail = await loop.connect_read_pipe(Tail, os.fdopen(stderr, "rb", buffering=0))
        # a stream reader protocol, because it is the one that knows flow control; nothing is ever read
        stdin_transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(stdin, "wb", buffering=0)
        )
        writer = asyncio.StreamWriter(stdin_transport, protocol, None, loop)
        pipes = cls(writer, (reader, stdout_transport), (tail, stderr_transport))
        return pipes, (stdin_theirs, stdout_theirs, stderr_theirs)

    async def read(self) -> bytes:
        """The next piece of the child's output; empty at its end."""
        self._is_reading = True
        try:
            return await self._stdout.read(_CHUNK)
        finally:
            self._is_reading = False

    def end_soon(self) -> None:
        """After the child's end: leaves time to read what it wrote, and stops waiting for more."""
        self._abort_stdin()
        asyncio.get_running_loop().call_later(_EOF_GRACE_S, self._give_up)

    def close(self) -> None:
        """Frees the descriptors. Idempotent."""
        self._abort_stdin()
        self._stdout_transport.close()
        self._stderr_transport.close()

    def _abort_stdin(self) -> None:
        if not self.stdin.is_closing():
            self.stdin.transport.abort()

    def _give_up(self) -> None:
        self._stderr_transport.close()
        if self._stdout_transport.is_closing():
            return
        if self._is_reading:
            self._stdout_transport.close()
        else:
            # output that nobody has asked for yet is not lost output: look again later
            asyncio.get_running_loop().call_later(_EOF_GRACE_S, self._give_up)
