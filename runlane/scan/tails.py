"""The last lines that each job in hand has written, sent to the API only while somebody there looks at them.

Nothing of it is kept: a line that is lost is lost for whoever looks; what it found is in the job's result.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from runlane.errors import Refused, Unavailable

MAX_LINES: Final = 200
"""Lines of a job that are remembered."""

MAX_BYTES: Final = 16 * 1024
"""Of all remembered lines of a job: a worker may have many hundred jobs in hand."""

MAX_LINE: Final = 2_000
"""Bytes of a line; the rest is cut off."""

ASKED_FOR_S: Final = 15.0
"""One asking is good for this long; whoever looks on asks again before."""

SEND_EVERY_S: Final = 0.5

Key: TypeAlias = tuple[str, int]
"""Job and attempt."""


class TailApi(Protocol):
    """Where lines go."""

    async def tail(self, job_id: str, attempt: int, first: int, lines: Sequence[str]) -> None:
        """Sends lines, the first of which has this number."""
        ...


@dataclass(slots=True)
class _Ring:
    lines: deque[bytes] = field(default_factory=deque)
    size_bytes: int = 0
    next_number: int = 0
    """Number of the line that comes next."""

    def add(self, line: bytes) -> None:
        kept = line[:MAX_LINE]
        self.lines.append(kept)
        self.size_bytes += len(kept)
        self.next_number += 1
        while len(self.lines) > MAX_LINES or self.size_bytes > MAX_BYTES:
            self.size_bytes -= len(self.lines.popleft())

    def since(self, number: int) -> tuple[int, list[str]]:
        """The remembered lines from this number on, and the number of the first of them."""
        first = max(number, self.next_number - len(self.lines))
        skipped = len(self.lines) - (self.next_number - first)
        return first, [line.decode(errors="replace") for line in list(self.lines)[skipped:]]


@dataclass(slots=True)
class _Asked:
    ring: _Ring
    until: float
    next_number: int = 0
    """Number of the line that is to be sent next."""


class Tails:
    """Rings of the jobs in hand. `hear` is called for each line of each tool, so it does next to nothing."""

    def __init__(self) -> None:
        self._rings: dict[Key, _Ring] = {}
        self._asked: dict[Key, _Asked] = {}
        self._is_asked = asyncio.Event()

    def open(self, keys: Iterable[Key]) -> None:
        """Jobs begin."""
        for key in keys:
            self._rings[key] = _Ring()

    def close(self, keys: Iterable[Key]) -> None:
        """Jobs have ended; what somebody has asked for is still sent."""
        for key in keys:
            self._rings.pop(key, None)

    def hear(self, key: Key, line: bytes) -> None:
        """A job has written a line."""
        if ring := self._rings.get(key):
            ring.add(line)

    def ask(self, job_id: str, attempt: int, *, is_new: bool) -> None:
        """Somebody looks at a job, or goes on looking; `is_new`: from the first remembered line on."""
        key = (job_id, attempt)
        if (ring := self._rings.get(key)) is None:
            return
        asked = self._asked.setdefault(key, _Asked(ring, 0.0))
        asked.until = asyncio.get_running_loop().time() + ASKED_FOR_S
        if is_new:
            asked.next_number = 0
        self._is_asked.set()

    async def send_forever(self, api: TailApi) -> None:
        """Sends what is asked for, twice a second, and sleeps while nothing is."""
        while True:
            await self._is_asked.wait()
            await self._send(api)
            if not self._asked:
                self._is_asked.clear()
            await asyncio.sleep(SEND_EVERY_S)

    async def _send(self, api: TailApi) -> None:
        now = asyncio.get_running_loop().time()
        for key, asked in list(self._asked.items()):
            first, lines = asked.ring.since(asked.next_number)
            if asked.until < now or (not lines and key not in self._rings):
                self._asked.pop(key, None)
            elif lines:
                asked.next_number = asked.ring.next_number
                # lines are no promise, and what a refusal says of this worker its heartbeat says as well
                with suppress(Unavailable, Refused):
                    await api.tail(*key, first, lines)
