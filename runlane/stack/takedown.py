"""Stopping a stack from outside, whoever started it and however that one ended."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from runlane.stack.errors import StackBusy, StackError
from runlane.stack.keeper import stop_leftover
from runlane.stack.processes import POLL_S
from runlane.stack.state import ProcessRecord, State, hold_lock, lock_holder, prepare_folder
from runlane.stack.urls import environment_file

DOWN_TIMEOUT_S: Final = 90.0


async def down(state_dir: Path) -> list[str]:
    """Stops the stack of a folder: its supervisor, then whatever that left. Data stays.

    Returns the names of what was running. Harmless when nothing was.

    Raises:
        StackError: the supervisor did not end in time.
    """
    if not (state_dir / "state.json").exists():
        return []
    folder = prepare_folder(state_dir)
    running = [name for name, record in State.load(folder).processes.items() if record.is_alive()]
    try:
        async with asyncio.timeout(DOWN_TIMEOUT_S):
            await _take_over(folder)
    except TimeoutError as error:
        raise StackError(f"the supervisor of {folder} does not end") from error
    return running


async def _take_over(folder: Path) -> None:
    told: ProcessRecord | None = None
    while True:
        try:
            with hold_lock(folder):
                await _stop_all(folder)
                return
        except StackBusy:
            holder = lock_holder(folder)
            if holder is not None and holder != told:
                _ask_to_end(holder)
                told = holder
            await asyncio.sleep(POLL_S)


def _ask_to_end(supervisor: ProcessRecord) -> None:
    with suppress(ProcessLookupError):
        os.kill(supervisor.pid, signal.SIGTERM)


async def _stop_all(folder: Path) -> None:
    state = State.load(folder)
    for name in reversed(state.processes):
        await stop_leftover(state, name)
    environment_file(folder).unlink(missing_ok=True)


class Guard:
    """A small process that takes the stack down when its supervisor is killed.

    For stacks nobody will come back to (tests). It notices by the end of a pipe, which the kernel closes
    for the dead.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, folder: Path) -> "Guard":
        """Starts guarding a folder."""
        argv = (sys.executable, "-m", __name__, str(folder))
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*argv, stdin=pipe, start_new_session=True))

    async def dismiss(self) -> None:
        """Ends the guard after an orderly stop."""
        await self._process.communicate(b"\n")


def main() -> None:
    """Waits for a line (dismissed) or for the end of the pipe (the supervisor was killed)."""
    if not sys.stdin.buffer.readline():
        asyncio.run(down(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
