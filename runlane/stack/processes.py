"""One operating-system process: how to start it, how to know that it is ready, how it ends."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
import structlog

from runlane import errors
from runlane.stack.errors import ProcessDied, StackError
from runlane.stack.state import ProcessRecord

POLL_S: Final = 0.03
READY_TIMEOUT_S: Final = 60.0
LOG_ROTATE_BYTES: Final = 10 * 1024 * 1024
TAIL_BYTES: Final = 1500

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """How to run one process of the stack."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """For a server the whole environment; for a product process what is added to the stack's."""
    ready: Callable[[], Awaitable[None]] | None = None
    """Returns when the process serves, raises `errors.Unavailable` until then. None: alive is ready."""
    clear: Callable[[], None] | None = None
    """Called before every start: removes what a killed predecessor left in the way."""
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_s: float = 15.0
    """How long after the stop signal the whole process group is killed."""
    prefix: tuple[str, ...] = ()
    """Programs that replace themselves by `argv` (a user namespace, for example)."""
    user: int | None = None
    """User and group id to run as; None keeps the caller's."""
    cwd: Path | None = None


class RunningProcess:
    """A live process: started here, or adopted from an earlier supervisor."""

    def __init__(self, record: ProcessRecord, child: subprocess.Popen[bytes] | None) -> None:
        self.record = record
        self._child = child

    @property
    def pid(self) -> int:
        """Process id; also the id of its process group."""
        return self.record.pid

    def exit_code(self) -> int | None:
        """Exit code (negative: signal), -1 for an adopted process that is gone, None while it runs."""
        if self._child is not None:
            return self._child.poll()
        return None if self.record.is_alive() else -1

    async def wait(self) -> int:
        """Waits for the end and returns the exit code as `exit_code()` does."""
        if sys.platform == "linux":
            with suppress(OSError):  # gone already, or a kernel without pidfd: the loop below finds out
                await _readable(os.pidfd_open(self.pid))
        while (code := self.exit_code()) is None:  # noqa: ASYNC110  # nothing announces another's child
            await asyncio.sleep(POLL_S)
        return code

    async def stop(self, sign: signal.Signals, grace_s: float) -> int:
        """Sends the signal, waits, and kills the whole group after the grace. Harmless when already gone."""
        if self.exit_code() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sign)
            try:
                return await asyncio.wait_for(self.wait(), grace_s)
            except TimeoutError:
                log.warning("process_killed", pid=self.pid, grace_s=grace_s)
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        return await self.wait()

    def detach(self) -> None:
        """Leaves the process to itself; it outlives us."""
        if self._child is not None and self._child.returncode is None:
            self._child.returncode = 0  # else the interpreter warns of a child nobody waited for


def launch(spec: ProcessSpec, log_path: Path) -> RunningProcess:
    """Starts the process in its own session with output appended to its log.

    Raises:
        StackError: the program cannot be executed.
    """
    if log_path.exists() and log_path.stat().st_size > LOG_ROTATE_BYTES:
        log_path.replace(log_path.with_suffix(".log.1"))
    if spec.clear is not None:
        spec.clear()
    argv = [*spec.prefix, *spec.argv]
    with log_path.open("ab") as sink:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=dict(spec.env),
                cwd=spec.cwd,
                user=spec.user,
                group=spec.user,
                extra_groups=None if spec.user is None else [],
                start_new_session=True,
                umask=0o077,
            )
        except OSError as error:
            raise StackError(f"{spec.name} cannot be started: {argv[0]}: {error}") from error
    record = ProcessRecord.of(child.pid, spec.stop_signal)
    if record is None:
        code = child.wait()
        raise ProcessDied(f"{spec.name} ended at once with {code}\n{tail(log_path)}")
    return RunningProcess(record, child)


def adopt(spec: ProcessSpec, record: ProcessRecord) -> RunningProcess | None:
    """Takes over a process of an earlier supervisor if it is that very process and runs the same command."""
    if not record.is_alive():
        return None
    try:
        same = psutil.Process(record.pid).cmdline() == list(spec.argv)
    except psutil.Error:
        same = False
    return RunningProcess(record, None) if same else None


async def wait_ready(
    spec: ProcessSpec, process: RunningProcess, log_path: Path, timeout_s: float | None = READY_TIMEOUT_S
) -> None:
    """Waits until the probe succeeds against this very process.

    Raises:
        StackError: the process ended, or the probe still failed after `timeout_s`.
    """
    reason = "no probe"
    try:
        async with asyncio.timeout(timeout_s):
            while (fault := await _probe(spec, process, log_path)) is not None:
                reason = fault
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise StackError(f"{spec.name} not ready after {timeout_s} s: {reason}\n{tail(log_path)}") from error
    if (code := process.exit_code()) is not None:
        # The probe was answered by somebody else on the same port.
        raise ProcessDied(f"{spec.name} ended with {code} while it was probed\n{tail(log_path)}")


async def _probe(spec: ProcessSpec, process: RunningProcess, log_path: Path) -> str | None:
    """Why the process does not serve yet; None if it does."""
    if (code := process.exit_code()) is not None:
        raise ProcessDied(f"{spec.name} ended with {code} before it was ready\n{tail(log_path)}")
    if spec.ready is None:
        return None
    try:
        await spec.ready()
    except errors.Unavailable as error:
        return error.detail
    return None


def tail(log_path: Path) -> str:
    """Returns the end of a log, preceded by its path."""
    try:
        content = log_path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        content = ""
    return f"--- {log_path}\n{content}"


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)
