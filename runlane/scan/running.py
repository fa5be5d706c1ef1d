"""What a batch of shape `each` needs of whatever runs its jobs: processes of this host, or containers."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from runlane.scan.wire import ClaimedJob
from runlane.tools.adapters.adapter import Command


class How(Enum):
    """How a child ended."""

    EXITED = auto()  # by itself, with an exit code
    TIMED_OUT = auto()  # over its limit, or silent
    FAILED = auto()  # of a signal, or it took or wrote too much
    ABSENT = auto()  # it could not be started here
    LOST = auto()  # the launcher died, which says nothing about the program
    KILLED = auto()  # by us, because nobody wants its result


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of one child."""

    how: How
    error: str = ""
    code: int = 0
    stderr: str = ""
    output: bytes | None = None
    """Content of the command's `output` file after a clean end, if it is there."""


class Running(Protocol):
    """One child. `follow` runs it to its end; `kill` may come at any time, from before its start on."""

    @property
    def is_alive(self) -> bool:
        """Whether it has shown life within what it may stay silent."""
        ...

    def kill(self) -> None:
        """Ends it; its result is not wanted. Idempotent."""
        ...

    async def follow(self, command: Command, folder: Path, on_line: Callable[[bytes], None]) -> RunEnd:
        """Runs the command and hands over each line of its output as it comes."""
        ...


class Runner(Protocol):
    """Makes the children of one batch."""

    def workplace(self) -> AbstractAsyncContextManager[Path]:
        """A folder that one child may use, as the child knows it."""
        ...

    def child(self, job: ClaimedJob, wall_s: float) -> Running:
        """A child for a job that has so many seconds left; it is not started yet."""
        ...
