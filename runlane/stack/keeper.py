"""Keeps one process running: starts or adopts it, restarts it when it dies, stops it when told."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog

from runlane.stack.errors import StackError
from runlane.stack.processes import (
    READY_TIMEOUT_S,
    ProcessSpec,
    RunningProcess,
    adopt,
    launch,
    wait_ready,
)
from runlane.stack.state import State, find_by_argv

FIRST_DELAY_S: Final = 0.1
MAX_DELAY_S: Final = 5.0
STABLE_S: Final = 10.0
"""A process that lived this long starts again with the first delay."""
LEFTOVER_GRACE_S: Final = 15.0

log = structlog.get_logger(__name__)


class ProcessState(StrEnum):
    """What a kept process is doing."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPED = "stopped"
    EXTERNAL = "external"
    """Not ours: its URL was given in the environment."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One line of `Stack.status()`."""

    name: str
    state: ProcessState
    pid: int | None
    restarts: int
    """Times it died and was started again since this supervisor began."""
    adopted: bool
    """It was started by an earlier supervisor."""


class Keeper:
    """Keeps one process running from `start()` to `stop()`."""

    def __init__(self, name: str, make_spec: Callable[[], ProcessSpec], state: State, log_path: Path) -> None:
        self.name = name
        self._make_spec = make_spec
        self._state = state
        self._log_path = log_path
        self._process: RunningProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._phase = ProcessState.STOPPED
        self._restarts = 0
        self._adopted = False
        self._delay_s = FIRST_DELAY_S
        self._changed = asyncio.Event()
        self._busy = asyncio.Lock()

    @property
    def pid(self) -> int:
        """Pid of the live process.

        Raises:
            StackError: there is none at the moment.
        """
        if self._process is None or self._process.exit_code() is not None:
            raise StackError(f"{self.name} does not run now")
        return self._process.pid

    def status(self) -> ProcessStatus:
        """Says how the process is."""
        alive = self._process is not None and self._process.exit_code() is None
        pid = self._process.pid if self._process is not None and alive else None
        return ProcessStatus(self.name, self._phase, pid, self._restarts, self._adopted)

    async def adopt(self, timeout_s: float = 10.0) -> bool:
        """Takes over a live process of an earlier supervisor. One that does not answer is stopped.

        Returns whether it was taken over and is now kept.
        """
        spec = self._make_spec()
        record = self._state.processes.get(self.name)
        if record is None or not record.is_alive():
            # A supervisor that was killed between start and record left one that nothing names but its argv.
            record = find_by_argv(spec.argv, spec.stop_signal)
        if record is None:
            return False
        process = adopt(spec, record)
        if process is None:
            await stop_leftover(self._state, self.name)
            return False
        self._hold(process, adopted=True)
        try:
            await wait_ready(spec, process, self._log_path, timeout_s)
        except StackError as error:
            log.warning("leftover_replaced", name=self.name, pid=process.pid, reason=error.detail)
            await self.stop()
            return False
        self._begin()
        log.info("process_adopted", name=self.name, pid=process.pid)
        return True

    async def start(self) -> None:
        """Starts the process and waits until it is ready; from then on it is kept.

        Raises:
            StackError: it died or was not ready in time. Nothing is left running.
        """
        async with self._busy:
            await self._launch_or_end()

    async def stop(self) -> None:
        """Stops the process for good; harmless when it does not run."""
        async with self._busy:
            await self._end()

    async def restart(self) -> None:
        """Stops the process orderly and starts it again; returns when it is ready."""
        async with self._busy:
            await self._end()
            await self._launch_or_end()

    def kill(self) -> int:
        """Kills the process as a crash would; it will be restarted. Returns the pid that was killed."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        return pid

    async def recovered(self, old_pid: int) -> int:
        """Waits until another process than `old_pid` is ready; returns its pid."""
        while True:
            status = self.status()
            if status.state is ProcessState.READY and status.pid not in (None, old_pid):
                return self.pid
            await self._changed.wait()

    async def detach(self) -> None:
        """Stops keeping the process and leaves it running."""
        async with self._busy:
            await self._cancel_keeping()
            if self._process is not None:
                self._process.detach()

    async def _launch_or_end(self) -> None:
        try:
            await self._launch(READY_TIMEOUT_S)
        except BaseException:  # a cancelled start leaves nothing running either
            await self._end()
            raise
        self._begin()

    async def _launch(self, timeout_s: float | None) -> None:
        spec = self._make_spec()
        self._enter(ProcessState.STARTING)
        process = launch(spec, self._log_path)
        self._hold(process, adopted=False)
        await wait_ready(spec, process, self._log_path, timeout_s)
        self._enter(ProcessState.READY)

    def _hold(self, process: RunningProcess, *, adopted: bool) -> None:
        self._process = process
        self._adopted = adopted
        self._state.record(self.name, process.record)

    def _begin(self) -> None:
        self._enter(ProcessState.READY)
        self._task = asyncio.create_task(self._keep(), name=f"keep-{self.name}")

    async def _keep(self) -> None:
        while (process := self._process) is not None:
            since = time.monotonic()
            code = await process.wait()
            if time.monotonic() - since > STABLE_S:
                self._delay_s = FIRST_DELAY_S
            self._restarts += 1
            self._enter(ProcessState.RESTARTING)
            log.warning("process_died", name=self.name, exit_code=code, restarts=self._restarts)
            await self._revive()

    async def _revive(self) -> None:
        while True:
            await asyncio.sleep(self._delay_s)
            self._delay_s = min(MAX_DELAY_S, self._delay_s * 2)
            try:
                # No limit: a database may take long to recover, and killing it then makes it longer.
                await self._launch(None)
            except (StackError, OSError) as error:
                log.warning(
                    "process_restart_failed", name=self.name, reason=str(error), retry_s=self._delay_s
                )
            else:
                log.info("process_restarted", name=self.name, restarts=self._restarts)
                return

    async def _end(self) -> None:
        await self._cancel_keeping()
        if self._process is not None:
            spec = self._make_spec()
            await self._process.stop(spec.stop_signal, spec.stop_grace_s)
            self._process = None
        self._state.forget(self.name)
        self._enter(ProcessState.STOPPED)

    async def _cancel_keeping(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])  # unlike `await task` it cannot confuse its cancellation with ours

    def _enter(self, phase: ProcessState) -> None:
        self._phase = phase
        self._changed.set()  # wakes those who wait now
        self._changed.clear()


async def stop_leftover(state: State, name: str, grace_s: float = LEFTOVER_GRACE_S) -> bool:
    """Stops and forgets a recorded process of an earlier supervisor, if it is still that very process."""
    record = state.processes.get(name)
    stopped = False
    if record is not None and record.is_alive():
        await RunningProcess(record, None).stop(signal.Signals(record.stop_signal), grace_s)
        stopped = True
        log.info("leftover_stopped", name=name, pid=record.pid)
    state.forget(name)
    return stopped
