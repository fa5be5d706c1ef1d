"""Which workers ask for work of which tool sets, written down for all of them every few seconds.

A worker's polls may arrive at any gateway: each notes those that it holds, and the rows are what counts.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

import structlog

from runlane.db.polls import Polled, note, note_gateway
from runlane.db.pool import Pool

log = structlog.get_logger(__name__)

NOTE_S: Final = 5.0
"""Time between notes."""

_WRITE_S: Final = 5.0


class PollNotes:
    """Polls that are open, and those that have ended since. `note_forever` runs beside the calls."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._replica = uuid4().hex
        self._open: Counter[Polled] = Counter()
        self._ended: set[Polled] = set()
        self._steady_since_s: float | None = None
        """Since when notes have gone through without a failure."""

    @contextmanager
    def holding(self, polled: Polled | None) -> Iterator[None]:
        """Counts a poll for as long as it lasts; None is a poll for something else than work."""
        if polled is None:
            yield
            return
        self._open[polled] += 1
        try:
            yield
        finally:
            self._open[polled] -= 1
            if not self._open[polled]:
                del self._open[polled]
            self._ended.add(polled)

    async def note_forever(self) -> None:
        """Writes down what there is to note until cancelled."""
        while True:
            try:
                await self._note()
            except Exception as error:  # noqa: BLE001  # without this loop every worker would seem to be idle
                self._steady_since_s = None
                log.warning("polls_not_noted", error=repr(error))
            await asyncio.sleep(NOTE_S)

    async def _note(self) -> None:
        now_s = asyncio.get_running_loop().time()
        polled, self._ended = self._ended | set(self._open), set()
        async with asyncio.timeout(_WRITE_S), self._pool.acquire() as conn:
            await note(conn, polled)
            if self._steady_since_s is None:
                self._steady_since_s = now_s
            await note_gateway(conn, self._replica, now_s - self._steady_since_s)
