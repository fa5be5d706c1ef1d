"""Handles dead letters of one lane once more, when somebody has asked for it, and removes purged ones.

The event goes to the sink of that lane only, past its inbox: that it is handled twice is what was asked for.
Each has a transaction of its own, in which what became of it is written on the letter and told by an event.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Final

import structlog
from redis.exceptions import RedisError

from lanes.letters import CRASHED, describe, key_of
from lanes.outages import is_transient
from lanes.sink import Sink
from runlane.db import dead_letters, lanes
from runlane.db.dead_letters import Asked
from runlane.db.pool import Connection
from runlane.events.wire import BusEvent, decode
from runlane.stream import LaneReader

log = structlog.get_logger(__name__)

LOOK: Final = timedelta(seconds=1)
"""How often a lane looks for letters that somebody has asked about."""

PORTION: Final = 20
"""Letters between two turns of the lane, so that what is new does not wait for what is old."""

PURGE_PORTION: Final = 500

MAX_ATTEMPTS: Final = 5
"""A letter whose handling ends the process so often is open again, with that said on it."""


class Redriver:
    """The letters of one lane, on its connections."""

    def __init__(self, sink: Sink, conn: Connection, reader: LaneReader) -> None:
        self._sink = sink
        self._conn = conn
        self._reader = reader
        self._lane: str = sink.lane
        self._look_at = 0.0

    async def look(self) -> None:
        """Does what was asked, a portion at most. Raises the errors of servers; nothing is lost then."""
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return
        await self._purge()
        for _ in range(PORTION):
            if not await self._redrive_next():
                self._look_at = now + LOOK.total_seconds()
                return

    async def _redrive_next(self) -> bool:
        """Handles the oldest letter that is asked for; False: there is none, or another drives the lane."""
        async with self._conn.transaction():
            if not await lanes.take_turn(self._conn, self._lane):
                return False
            letter = await dead_letters.next_asked(self._conn, self._lane)
            if letter is None:
                return False
            error = await self._hand(letter)
            await dead_letters.finish(self._conn, self._lane, letter, error)
        await self._reader.acknowledge([], [letter.sequence])
        log.info("dead_letter_redriven", lane=self._lane, letter_id=str(letter.id), error=error)
        return True

    async def _hand(self, letter: Asked) -> str | None:
        """Why the sink failed once more, None if it did not."""
        attempt = await self._reader.count_attempt(letter.sequence)
        if attempt > MAX_ATTEMPTS:
            return CRASHED
        try:
            async with self._conn.transaction():
                await self._sink.handle(self._conn, [_event_of(letter)])
        except Exception as error:
            if is_transient(error):
                with suppress(RedisError, OSError):
                    await self._reader.uncount_attempt(letter.sequence)
                raise
            return describe(error)
        return None

    async def _purge(self) -> None:
        async with self._conn.transaction():
            purged = await dead_letters.drop_purged(self._conn, self._lane, PURGE_PORTION)
            for letter in purged:
                key = letter.entry_id if letter.workspace_id is None else key_of(self._lane, letter.event_id)
                await self._reader.take_back(letter.workspace_id, str(key))


def _event_of(letter: Asked) -> BusEvent:
    return decode({name.encode(): text.encode() for name, text in letter.fields.items()})
