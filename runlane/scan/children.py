"""Child processes as the scan worker sees them: started by the launcher, awaited on the event loop."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Final, Self

import structlog

from runlane.errors import Unavailable
from runlane.scan.confine import MARK, Limits, blank_mark
from runlane.scan.pipes import Pipes
from runlane.scan.splitting import Splitter

_CHUNK: Final = 65_536
_CLOSE_GRACE_S: Final = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to start and within which bounds: a probe by name, or a program by argument list."""

    attempt: str
    """Text that marks the process and its descendants (variable RUNLANE_ATTEMPT); at most 199 bytes."""
    wall_s: float
    """SIGTERM after this long, SIGKILL two seconds later."""
    probe: str | None = None
    argv: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to PATH, LANG and TMPDIR; nothing else of the worker's environment is passed on."""
    cwd: str = "/"
    output_cap_bytes: int = 64 * 1024 * 1024
    """Output after which the child is killed."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How a child ended."""

    code: int | None
    """Exit code, -n for signal n; None if the launcher was lost before it could say."""
    wall_exceeded: bool = False
    lost: bool = False
    """The launcher died; the child was killed with it."""


class Child:
    """One running child. As a context manager it is killed on leaving, if need be, and its pipes freed."""

    def __init__(self, connection: "_Connection", number: int, spec: ChildSpec, pipes: Pipes) -> None:
        self._connection = connection
        self._number = number
        self._pipes = pipes
        self._ended: asyncio.Future[ExitInfo] = asyncio.get_running_loop().create_future()
        self.pid = 0
        """Process and process group id; 0 until the launcher has said it."""
        self._output = Splitter(spec.output_cap_bytes)
        self.truncated = False
        """Whether it was killed because of too much output or too long a line."""

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Where to write its input; close it to say that there is no more."""
        return self._pipes.stdin

    @property
    def stderr_tail(self) -> bytes:
        """The last 16 KB of its diagnostics; complete after `wait`."""
        return bytes(self._pipes.stderr.tail)

    @property
    def heard_bytes(self) -> int:
        """Output and diagnostics so far: a life sign is when it grows."""
        return self._output.heard_bytes + self._pipes.stderr.heard_bytes

    @property
    def has_ended(self) -> bool:
        """Whether `wait` would return at once."""
        return self._ended.done()

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines of its output without the newline, until it ends or is killed for too much of it."""
        while chunk := await self._pipes.read():
            lines = self._output.feed(chunk)
            if self._output.is_over:
                self.truncated = True
                self.kill()
                return
            for line in lines:
                yield line
        for line in self._output.rest():
            yield line

    async def wait(self) -> ExitInfo:
        """Waits until it has ended. Reading its output is the caller's part: a full pipe stops a child."""
        info = await asyncio.shield(self._ended)
        await self._pipes.stderr.closed.wait()
        return info

    def kill(self) -> None:
        """Kills its whole process group; harmless after its end."""
        if not self._ended.done():
            self._connection.send({"kill": self._number})

    async def close(self) -> None:
        """Kills it if it still runs, waits for its end and frees its descriptors. Idempotent."""
        self.kill()
        try:
            await asyncio.shield(self._ended)
        finally:
            self._pipes.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def end(self, info: ExitInfo) -> None:
        """Told by the connection, once."""
        self._ended.set_result(info)
        self._pipes.end_soon()


class Launcher:
    """Starts children through a resident launcher process, and a new launcher when that one was lost."""

    def __init__(self) -> None:
        self._connection: _Connection | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Starts the launcher process, so that the first child need not wait for it. Idempotent."""
        await self._connected()

    async def launch(self, spec: ChildSpec) -> Child:
        """Starts a child.

        Raises:
            Unavailable: it could not be started, or the launcher was lost meanwhile; another try may work.
        """
        connection = await self._connected()
        return await connection.launch(spec)

    async def close(self) -> None:
        """Ends the launcher, which kills every child. Idempotent."""
        if self._connection is not None:
            await self._connection.close()

    @property
    def pid(self) -> int | None:
        """Process id of the launcher while it runs."""
        return None if self._connection is None else self._connection.process.pid

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _connected(self) -> "_Connection":
        async with self._starting:
            if self._connection is None or self._connection.is_lost:
                if self._connection is not None:
                    await self._connection.close()
                self._connection = _Connection()
            return self._connection


class _Connection:
    """One launcher process and the children it has; useless once that process is gone."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "runlane.scan.launcher", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_launcher_environment(),
                start_new_session=True,
            )
        self._socket = ours
        self._numbers = 0
        self._children: dict[int, Child] = {}
        self._starting: dict[int, asyncio.Future[int]] = {}
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self.is_lost = False
        self._reading = asyncio.create_task(self._read_replies(), name="launcher replies")

    async def launch(self, spec: ChildSpec) -> Child:
        pipes, theirs = await Pipes.open()
        self._numbers += 1
        number = self._numbers
        child = Child(self, number, spec, pipes)
        started: asyncio.Future[int] = self._loop.create_future()
        self._children[number] = child
        self._starting[number] = started
        self.send(_request(number, spec), theirs)
        try:
            child.pid = await started
        except BaseException:
            # refused, lost, or the caller was cancelled: whatever comes of it is not wanted
            child.kill()
            pipes.close()
            raise
        finally:
            self._starting.pop(number, None)
        return child

    def send(self, message: Mapping[str, object], descriptors: tuple[int, ...] = ()) -> None:
        """Queues a message and gives away `descriptors`, which are closed here once they are sent."""
        self._unsent.append((json.dumps(message).encode() + b"\n", descriptors))
        self._flush()

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        if not self.is_lost:
            self._lose()  # cancelled before it began to read
        try:
            await asyncio.to_thread(self.process.wait, _CLOSE_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)

    def _flush(self) -> None:
        try:
            while self._unsent:
                data, descriptors = self._unsent[0]
                sent = len(data) if self.is_lost else socket.send_fds(self._socket, [data], [*descriptors])
                _close_descriptors(descriptors)  # they travel with the first byte
                self._unsent[0] = (data[sent:], ())
                if sent == len(data):
                    self._unsent.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._flush)
            return
        except OSError:
            return  # the launcher is gone; the reader notices and empties the queue
        if not self.is_lost:
            self._loop.remove_writer(self._socket)

    async def _read_replies(self) -> None:
        rest = b""
        try:
            while data := await self._loop.sock_recv(self._socket, _CHUNK):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
            log.warning("launcher_lost", pid=self.process.pid, children=len(self._children))
        except OSError as error:
            log.warning("launcher_lost", pid=self.process.pid, children=len(self._children), error=str(error))
        finally:
            self._lose()

    def _hear(self, reply: dict[str, object]) -> None:
        match reply:
            case {"id": int(number), "pid": int(pid)}:
                if started := self._starting.pop(number, None):
                    started.set_result(pid)
            case {"id": int(number), "error": str(error)}:
                self._children.pop(number).end(ExitInfo(None, lost=True))
                if started := self._starting.pop(number, None):
                    started.set_exception(Unavailable(f"child not started: {error}"))
            case {"id": int(number), "exit": int(code), "wall_exceeded": bool(wall_exceeded)}:
                self._children.pop(number).end(ExitInfo(code, wall_exceeded))

    def _lose(self) -> None:
        """Ends everything that hung on the launcher."""
        self.is_lost = True
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._flush()
        for started in self._starting.values():
            started.set_exception(Unavailable("the launcher was lost"))
        self._starting.clear()
        for child in self._children.values():
            if child.pid:
                # children die with their launcher; what they have started does not
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
            child.end(ExitInfo(None, lost=True))
        self._children.clear()


def _request(number: int, spec: ChildSpec) -> dict[str, object]:
    return {
        "id": number,
        "attempt": spec.attempt,
        "wall_s": spec.wall_s,
        "probe": spec.probe,
        "argv": list(spec.argv),
        "env": dict(spec.env),
        "cwd": spec.cwd,
        "limits": asdict(spec.limits),
    }


def _launcher_environment() -> dict[str, str]:
    """All that the launcher, and so any tool, may know of the worker's environment."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "TMPDIR": tempfile.gettempdir(),
        MARK: blank_mark(),
    }


def _close_descriptors(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
