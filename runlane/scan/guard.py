"""A small process beside a worker in container mode, which removes its containers if it is killed.

An engine does not know that the worker is gone: its containers would run on to nobody's use until its next
start. The guard waits for the end of its standard input, which the kernel closes however the worker ends. If
nothing was said before, it did not clear up itself. Run as `python -m runlane.scan.guard ENGINE INCARNATION`.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

_ALL_CLEAR: Final = b"."

_PASSED_ON: Final = ("PATH", "HOME", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
"""What it takes to reach the engine whose address it is told, certificates included; nothing else."""


@dataclass(slots=True)
class Guard:
    """What the worker tells its guard at its end."""

    is_all_clear: bool = False
    """Whether nothing is left to be removed."""


@asynccontextmanager
async def guarded(engine_url: str, incarnation: str) -> AsyncIterator[Guard]:
    """Has a guard beside this process for the time of the block; then it clears up what is not all clear."""
    guard = Guard()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runlane.scan.guard", engine_url, incarnation),
        stdin=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}},
        start_new_session=True,  # what is sent to the worker's group is not for its guard
    )
    try:
        yield guard
    finally:
        if process.stdin is not None:
            process.stdin.write(_ALL_CLEAR if guard.is_all_clear else b"")
            process.stdin.close()
        if guard.is_all_clear:
            await process.wait()


def main() -> None:
    """Waits; then becomes the program that clears up, whose libraries are not loaded before."""
    if sys.stdin.buffer.read(1) != _ALL_CLEAR:
        successor = [sys.executable, "-m", "runlane.scan.orphans", *sys.argv[1:]]
        os.execv(successor[0], successor)  # noqa: S606  # no shell is wanted


if __name__ == "__main__":
    main()
