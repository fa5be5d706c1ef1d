"""One container for one attempt of a job: made, followed, and gone for certain afterwards.

A container lives in a task of its own. Whoever waits for it may go away, at a cancel or at the end of the
worker, and it is removed all the same; until then it keeps its place, so that there are never more than there
may be. Nothing here waits for an image: one that is not present sends the job back, uncharged.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import structlog

from runlane import names
from runlane.connectors import Manifest
from runlane.containers import MIB, ContainerEnd, ContainerSpec
from runlane.errors import Defect, NotFound, Refused, Unavailable
from runlane.scan.container_host import ContainerHost
from runlane.scan.pipes import STDERR_TAIL_BYTES
from runlane.scan.running import How, RunEnd
from runlane.scan.splitting import Splitter
from runlane.scan.wire import ClaimedJob
from runlane.tools.adapters.adapter import Command

if TYPE_CHECKING:
    from runlane.containers.attachment import Attachment

log = structlog.get_logger(__name__)

KILL_PATIENCE_S: Final = 5.0
"""How long a kill waits to see its container gone; it goes on without whoever asked for it."""

_CHECK_EVERY_S: Final = 0.5
_WORKPLACE: Final = Path("/tmp")  # noqa: S108  # inside the container


@dataclass(frozen=True, slots=True)
class ContainerRunner:
    """Runs the jobs of a batch in containers; see `Runner`."""

    host: ContainerHost
    manifest: Manifest
    wall_s: float
    """Limit of one job. It begins with its container: the job may have waited for a place before."""
    run_id: str

    def workplace(self) -> AbstractAsyncContextManager[Path]:
        """See `Runner`. Each container has a `/tmp` of its own."""
        return _workplace()

    def child(self, job: ClaimedJob, wall_s: float) -> "ContainerRun":
        """See `Runner`. The seconds that are left are not looked at: see `wall_s` of the runner."""
        own = {
            names.CONTAINER_RUN: self.run_id,
            names.CONTAINER_JOB: job.job_id,
            names.CONTAINER_ATTEMPT: str(job.attempt),
        }
        return ContainerRun(self.host, self.manifest, self.wall_s, {**self.host.labels, **own})


@asynccontextmanager
async def _workplace() -> AsyncIterator[Path]:
    yield _WORKPLACE


class ContainerRun:
    """One container; see `Running`."""

    def __init__(
        self, host: ContainerHost, manifest: Manifest, wall_s: float, labels: Mapping[str, str]
    ) -> None:
        self._host = host
        self._manifest = manifest
        self._wall_s = wall_s
        self._labels = labels
        self._loop = asyncio.get_running_loop()
        self._killed = asyncio.Event()
        self._output = Splitter(manifest.limits.output_mb * MIB)
        self._stderr = bytearray()
        self._started_at: float | None = None
        self._alive_at = self._loop.time()

    @property
    def is_alive(self) -> bool:
        """See `Running`. One that waits for its place, or for the engine to make it, lives."""
        silence_s = self._loop.time() - self._alive_at
        return self._started_at is None or silence_s < self._manifest.limits.silence_s + 2 * _CHECK_EVERY_S

    def kill(self) -> None:
        """See `Running`."""
        self._killed.set()

    async def follow(self, command: Command, _folder: Path, on_line: Callable[[bytes], None]) -> RunEnd:
        """See `Running`."""
        ended: asyncio.Future[RunEnd] = self._loop.create_future()
        life = self._host.begin(self._live(command, on_line, ended))
        killed = asyncio.create_task(self._killed.wait())
        try:
            any_end: list[asyncio.Future[Any]] = [ended, life, killed]
            await asyncio.wait(any_end, return_when=asyncio.FIRST_COMPLETED)
            if not self._killed.is_set():
                return ended.result() if ended.done() else _of_broken(life)
            await asyncio.wait([life], timeout=KILL_PATIENCE_S)
            return RunEnd(How.KILLED)
        finally:
            killed.cancel()
            self._killed.set()

    async def _live(
        self, command: Command, on_line: Callable[[bytes], None], ended: asyncio.Future[RunEnd]
    ) -> None:
        """The whole life of the container. `ended` is told as soon as it is known how it ended."""
        try:
            image_id = await self._host.image_id(self._manifest)
            await self._host.require_network(self._manifest)
            if not await self._host.places.take(unless=self._killed):
                return _tell(ended, RunEnd(How.KILLED))
        except (Refused, Unavailable) as error:
            return _tell(ended, RunEnd(How.ABSENT, error.detail))
        # named by us: an answer that is lost on its way loses no container
        name = f"runlane-{uuid4().hex}"
        try:
            _tell(ended, await self._make_and_run(name, self._spec(image_id, command), command, on_line))
        except Unavailable as error:
            _tell(ended, RunEnd(How.ABSENT, error.detail))
            self._host.remove_late(name)
        finally:
            await self._host.remove(name)
            self._host.places.give_back()

    async def _make_and_run(
        self, name: str, spec: ContainerSpec, command: Command, on_line: Callable[[bytes], None]
    ) -> RunEnd:
        try:
            await self._host.engine.create(name, spec)
        except Refused as error:
            return RunEnd(How.ABSENT, f"the engine does not make the container: {error.detail}")
        try:
            return await self._run(name, command, on_line)
        except Refused as error:
            return RunEnd(How.FAILED, f"the container cannot be started: {error.detail}")

    def _spec(self, image_id: str, command: Command) -> ContainerSpec:
        limits = self._manifest.limits
        return ContainerSpec(
            image_id=image_id,
            argv=command.argv,
            has_stdin=bool(command.stdin),
            memory_bytes=limits.memory_mb * MIB,
            cpus=limits.cpus,
            pids=limits.pids,
            tmpfs_bytes=limits.tmpfs_mb * MIB,
            network=self._host.network_of(self._manifest),
            labels=self._labels,
        )

    async def _run(self, name: str, command: Command, on_line: Callable[[bytes], None]) -> RunEnd:
        engine = self._host.engine
        attachment = await engine.attach(name, has_stdin=bool(command.stdin))
        writing: asyncio.Task[None] | None = None
        try:
            if self._killed.is_set():
                return RunEnd(How.KILLED)
            await engine.start(name)
            self._started_at = self._alive_at = self._loop.time()
            if command.stdin:
                # beside the reading: a container that does not read must not keep us from its output
                writing = asyncio.create_task(attachment.write(command.stdin))
            end = await self._read(attachment, on_line)
            return end if end is not None else await self._await_end(name)
        finally:
            attachment.close()
            if writing is not None:
                await writing

    async def _read(self, attachment: "Attachment", on_line: Callable[[bytes], None]) -> RunEnd | None:
        """Reads to the end of the output; answers what ended it, if that was us."""
        killed = asyncio.create_task(self._killed.wait())
        reading = asyncio.create_task(attachment.read())
        try:
            while True:
                due = self._loop.time() + _CHECK_EVERY_S
                either: list[asyncio.Future[Any]] = [reading, killed]
                await asyncio.wait(either, timeout=_CHECK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
                if self._loop.time() - due > _CHECK_EVERY_S:
                    self._alive_at = self._loop.time()  # we were frozen: what it said waits to be read
                if self._killed.is_set():
                    return RunEnd(How.KILLED)
                if reading.done():
                    pieces = reading.result()
                    if pieces is None:
                        for line in self._output.rest():
                            on_line(line)
                        return None
                    reading = asyncio.create_task(attachment.read())
                    self._take(pieces, on_line)
                if (end := self._overdue()) is not None:
                    return end
        finally:
            killed.cancel()
            attachment.close()  # frees the thread that reads
            with suppress(asyncio.CancelledError):
                await reading

    def _take(self, pieces: list[tuple[bool, bytes]], on_line: Callable[[bytes], None]) -> None:
        self._alive_at = self._loop.time()
        for is_diagnostics, piece in pieces:
            if is_diagnostics:
                self._stderr += piece
                del self._stderr[:-STDERR_TAIL_BYTES]
                continue
            for line in self._output.feed(piece):
                on_line(line)

    def _overdue(self) -> RunEnd | None:
        """Why the container is to be ended now; None if it may go on."""
        now, stderr = self._loop.time(), self._said
        if self._output.is_over:
            return RunEnd(How.FAILED, "the tool wrote too much", stderr=stderr)
        if self._started_at is not None and now - self._started_at > self._wall_s:
            return RunEnd(How.TIMED_OUT, f"over the limit of {self._wall_s:g} s", stderr=stderr)
        if now - self._alive_at > self._manifest.limits.silence_s:
            return RunEnd(How.TIMED_OUT, "the tool gave no life sign", stderr=stderr)
        return None

    async def _await_end(self, name: str) -> RunEnd:
        """How it ended; one that has closed its output may run on, within the same limits."""
        try:
            while (end := await self._host.engine.wait(name, 2 * _CHECK_EVERY_S)) is None:
                if self._killed.is_set():
                    return RunEnd(How.KILLED)
                if (overdue := self._overdue()) is not None:
                    return overdue
        except NotFound:
            return RunEnd(How.FAILED, "the container was removed by somebody else", stderr=self._said)
        return self._judge(end)

    def _judge(self, end: ContainerEnd) -> RunEnd:
        if end.is_oom:
            most = f"{self._manifest.limits.memory_mb} MB"
            return RunEnd(How.FAILED, f"out of memory: the container may use {most}", stderr=self._said)
        return RunEnd(How.EXITED, code=end.code, stderr=self._said)

    @property
    def _said(self) -> str:
        return self._stderr.decode(errors="replace").strip()


def _of_broken(life: asyncio.Task[None]) -> RunEnd:
    life.result()
    raise Defect("a container's life ended without saying how")


def _tell(ended: asyncio.Future[RunEnd], end: RunEnd) -> None:
    if not ended.done():
        ended.set_result(end)
