"""One child of a foreign program: started, fed, watched, and judged by how it ended."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from runlane.errors import Unavailable
from runlane.private_files import write_private
from runlane.scan.children import Child, ChildSpec, ExitInfo, Launcher
from runlane.scan.confine import Limits
from runlane.scan.running import How, RunEnd
from runlane.scan.wire import ClaimedJob
from runlane.tools.adapters.adapter import Adapter, Command

log = structlog.get_logger(__name__)

NOT_FOUND_CODE: Final = 127
"""How the launcher says that the program is not there."""

MAX_OUTPUT_FILE_BYTES: Final = 32 * 1024 * 1024
"""A result file above this is not read."""

_CHECK_EVERY_S: Final = 0.5
_START_TRIES: Final = 3
_START_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class ProgramHost:
    """What every foreign program of a worker needs."""

    launcher: Launcher
    folder: Path
    """Where private folders are made."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Where a program is, by the name that adapters know it by."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Version of each tool of the carried tool sets that is made of programs."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one child may take."""

    wall_s: float
    silence_s: float
    output_bytes: int
    address_space_bytes: int | None


@asynccontextmanager
async def private_folder(root: Path) -> AsyncIterator[Path]:
    """A folder for one child, gone afterwards with all that is in it."""
    folder = await asyncio.to_thread(_make_folder, root)
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        write_private(folder / name, content)


def _make_folder(root: Path) -> Path:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=root))


@dataclass(frozen=True, slots=True)
class ProgramRunner:
    """Runs the children of a batch as processes of this host; see `Runner`."""

    host: ProgramHost
    adapter: Adapter
    mark: str
    """Text by which processes of this batch are known."""
    output_bytes: int
    """What one child may write."""

    def workplace(self) -> AbstractAsyncContextManager[Path]:
        """See `Runner`."""
        return private_folder(self.host.folder)

    def child(self, job: ClaimedJob, wall_s: float) -> "Run":
        """See `Runner`."""
        bounds = Bounds(wall_s, self.adapter.silence_s, self.output_bytes, self.adapter.address_space_bytes)
        return Run(self.host, self.adapter, bounds, f"{self.mark}/{job.job_id}")


class Run:
    """One child process; see `Running`."""

    def __init__(self, host: ProgramHost, adapter: Adapter, bounds: Bounds, mark: str) -> None:
        self._host = host
        self._adapter = adapter
        self._bounds = bounds
        self._mark = mark
        self._loop = asyncio.get_running_loop()
        self._child: Child | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._check_due = 0.0
        self._heard_bytes = 0
        self._alive_at = self._loop.time()
        self._is_silent = False
        self._is_killed = False

    @property
    def is_alive(self) -> bool:
        """See `Running`."""
        return self._loop.time() - self._alive_at < self._bounds.silence_s + 2 * _CHECK_EVERY_S

    def kill(self) -> None:
        """See `Running`."""
        self._is_killed = True
        if self._child is not None:
            self._child.kill()

    async def follow(self, command: Command, folder: Path, on_line: Callable[[bytes], None]) -> RunEnd:
        """See `Running`."""
        spec = self._child_spec(command, folder)
        await asyncio.to_thread(_write_files, folder, command.files)
        try:
            child = await self._start(spec)
        except Unavailable as error:
            return RunEnd(How.ABSENT, f"the host cannot start the tool: {error.detail}")
        if child is None:
            return RunEnd(How.KILLED)
        async with child:
            info = await self._read(child, command, on_line)
        end = self._judge(child, info)
        return replace(end, output=await _read_output(folder, command)) if end.how is How.EXITED else end

    def _child_spec(self, command: Command, folder: Path) -> ChildSpec:
        name, *arguments = command.argv
        home = Path.home() if self._adapter.needs_home else folder
        return ChildSpec(
            attempt=self._mark,
            wall_s=self._bounds.wall_s,
            argv=[self._host.paths.get(name, name), *arguments],
            env={"HOME": str(home), "TMPDIR": str(folder)},
            cwd=str(folder),
            output_cap_bytes=self._bounds.output_bytes,
            limits=Limits(address_space_bytes=self._bounds.address_space_bytes),
        )

    async def _start(self, spec: ChildSpec) -> Child | None:
        tries = 0
        while not self._is_killed:
            try:
                return await self._host.launcher.launch(spec)
            except Unavailable as error:
                tries += 1
                log.warning("child_not_started", program=spec.argv[0], detail=error.detail)
                if tries == _START_TRIES:
                    raise
            await asyncio.sleep(_START_PAUSE_S)
        return None

    async def _read(self, child: Child, command: Command, on_line: Callable[[bytes], None]) -> ExitInfo:
        self._child = child
        self._alive_at = self._loop.time()
        if self._is_killed:
            child.kill()
        # Written without waiting: a child that does not read must not keep us from its output.
        child.stdin.write(command.stdin)
        child.stdin.close()
        self._plan_check()
        try:
            async for line in child.lines():
                on_line(line)
            return await child.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._child = None

    def _plan_check(self) -> None:
        self._check_due = self._loop.time() + _CHECK_EVERY_S
        self._timer = self._loop.call_later(_CHECK_EVERY_S, self._check)

    def _check(self) -> None:
        """Looks for silence, twice a second."""
        now = self._loop.time()
        was_frozen = now - self._check_due > _CHECK_EVERY_S  # this process: what was said waits to be read
        self._plan_check()
        if self._child is None:
            return
        if was_frozen or self._child.heard_bytes != self._heard_bytes:
            self._heard_bytes = self._child.heard_bytes
            self._alive_at = now
        elif now - self._alive_at > self._bounds.silence_s:
            self._is_silent = True
            self._child.kill()

    def _judge(self, child: Child, info: ExitInfo) -> RunEnd:
        stderr = child.stderr_tail.decode(errors="replace").strip()
        if self._is_killed:
            return RunEnd(How.KILLED)
        if info.lost or info.code is None:
            return RunEnd(How.LOST)
        if child.truncated:
            return RunEnd(How.FAILED, "the tool wrote too much", stderr=stderr)
        if self._is_silent:
            return RunEnd(How.TIMED_OUT, "the tool gave no life sign", stderr=stderr)
        if info.wall_exceeded:
            return RunEnd(How.TIMED_OUT, f"over the limit of {self._bounds.wall_s:g} s", stderr=stderr)
        if info.code == NOT_FOUND_CODE:
            return RunEnd(How.ABSENT, f"the host cannot start the tool: {stderr[-200:]}", stderr=stderr)
        if info.code < 0:
            return RunEnd(How.FAILED, f"the tool died of signal {-info.code}", stderr=stderr)
        return RunEnd(How.EXITED, code=info.code, stderr=stderr)


async def _read_output(folder: Path, command: Command) -> bytes | None:
    """The command's result file; None if there is none, or if it is no plain file of a bearable size."""
    if command.output is None:
        return None
    return await asyncio.to_thread(_read_file, folder / command.output)


def _read_file(path: Path) -> bytes | None:
    with contextlib.suppress(OSError):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_OUTPUT_FILE_BYTES:
            return path.read_bytes()
    return None
