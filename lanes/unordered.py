"""A lane whose events do not wait for each other: what fails is set aside and tried again when it was idle.

Stalled entries come before new ones, and never take more than half of a turn. The checkpoint is what comes
before the oldest entry that is pending; how far the lane has *read* is kept apart, so that a gap is noticed.
Source: Event bridge, Delivery guarantees, Retry.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

import asyncpg
import structlog

from lanes import turns
from lanes.arrivals import NOWHERE, Arrival, arrive, unbroken
from lanes.letters import CRASHED, describe
from lanes.outages import is_transient
from lanes.sink import Sink
from lanes.tally import Tally
from lanes.turns import MAX_ATTEMPTS, Attempt, Done, LaneLoop
from runlane.db import lanes
from runlane.db.lanes import Position
from runlane.db.pool import Connection
from runlane.events import BusEvent
from runlane.stream import Entry, LaneReader

log = structlog.get_logger(__name__)

IDLE: Final = timedelta(seconds=30)
"""How long a stalled entry rests until it is tried again. Source: Event bridge, Delivery guarantees."""

LOOK: Final = timedelta(seconds=5)
"""How often stalled entries are looked for."""

STALLED_SHARE: Final = 2
"""At most one in so many entries of a turn is a stalled one: a failing set does not starve what is new."""


class UnorderedLoop(LaneLoop):
    """One instance of a lane that sets failures aside."""

    def __init__(self, sink: Sink, conn: Connection, reader: LaneReader, tally: Tally) -> None:
        super().__init__(sink, conn, reader, tally)
        self._errors: dict[int, str] = {}
        self._inherit_after: str | None = "0"
        """Id behind which pending entries that were never tried are still to be picked up; None: all are."""
        self._look_at = 0.0

    async def _attend(self, at: Position) -> Done:
        at = await self._settled(at)
        entries = await self._stalled()
        # wait for what is new only when nothing else is there
        entries += await self._reader.read_new(turns.BATCH - len(entries), None if entries else turns.BLOCK)
        arrivals = sorted((arrive(e, self._wants) for e in entries), key=lambda arrival: arrival.sequence)
        if not arrivals:
            return await self._idle(at)
        if any(arrival.is_ghost for arrival in arrivals):
            # what was trimmed while it was pending is read from the outbox, from the checkpoint on
            await lanes.rewind(self._conn, self._lane)
            self._inherit_after = "0"
            return Done([arrival for arrival in arrivals if arrival.is_ghost])
        return await self._hand(at, arrivals)

    async def _settled(self, at: Position) -> Position:
        """With the checkpoint where nothing before is pending."""
        oldest = await self._reader.oldest_pending()
        if oldest is None:
            return replace(at, last_seq=at.read_seq)
        if oldest.sequence is None:
            return at
        return replace(at, last_seq=max(at.last_seq, min(at.read_seq, oldest.sequence - 1)))

    async def _stalled(self) -> list[Entry]:
        """Pending entries whose time has come: never tried, as after a crash, or idle for long enough."""
        most = turns.BATCH // STALLED_SHARE
        if self._inherit_after is not None:
            page = await self._reader.read_pending(most, after=self._inherit_after)
            self._inherit_after = page[-1].id if len(page) == most else None
            return await self._reader.untried(page)
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return []
        claimed = await self._reader.claim_idle(most, IDLE)
        if len(claimed) < most:
            self._look_at = now + LOOK.total_seconds()
        return claimed

    async def _hand(self, at: Position, arrivals: list[Arrival]) -> Done:
        """Hands on what follows what was read, without a gap, and what was read before.

        That an event is before the checkpoint does not say that it was handled: a server that lost its last
        second has forgotten what was pending. The inbox says.
        """
        await self._letters.reject([arrival for arrival in arrivals if arrival.sequence == NOWHERE])
        done = Done([arrival for arrival in arrivals if arrival.sequence <= at.old_seq])
        again = [arrival for arrival in arrivals if at.old_seq < arrival.sequence <= at.read_seq]
        fresh = [arrival for arrival in arrivals if arrival.sequence > at.read_seq]
        if fresh and fresh[0].sequence > at.read_seq + 1:
            healed = await self._heal(at, fresh[0].sequence - 1)
            self._inherit_after = "0"
            return Done(done.arrivals, healed.attempted)
        run = unbroken(fresh)
        if len(run) < len(fresh):
            self._inherit_after = "0"
        await self._hand_freely(done, again + run)
        await self._letters.reject(run)
        await self._move(at, lanes.Advance(run[-1].sequence if run else at.read_seq))
        return done

    async def _hand_freely(self, done: Done, arrivals: list[Arrival]) -> None:
        """Hands all to the sink at once; if that fails, one by one."""
        events = [arrival.event for arrival in arrivals if arrival.event]
        failed: set[int] = set()
        if events and not await self._take_together(done, events):
            failed = {
                a.sequence for a in arrivals if a.event and not await self._take_alone(done, a, a.event)
            }
        done.arrivals += [arrival for arrival in arrivals if arrival.sequence not in failed]

    async def _take_together(self, done: Done, events: Sequence[BusEvent]) -> bool:
        first = events[0].sequence
        attempt = await self._reader.count_attempt(first)
        if attempt > 1 or first <= self._careful_until:
            # counted again when it goes alone
            await self._reader.uncount_attempt(first)
            return False
        self._attempt = Attempt(first, events[-1].sequence)
        try:
            async with self._conn.transaction():
                await self._deliver(events)
        except Exception as error:
            if _is_outage(error):
                raise
            await self._reader.uncount_attempt(first)
            log.warning(
                "batch_failed", lane=self._lane, first=first, events=len(events), error=describe(error)
            )
            return False
        done.attempted.append(first)
        return True

    async def _take_alone(self, done: Done, arrival: Arrival, event: BusEvent) -> bool:
        """Tries one event; False when it is to be tried again later."""
        attempt = await self._reader.count_attempt(event.sequence)
        self._attempt = Attempt(event.sequence, event.sequence)
        error = self._last_error(event.sequence)
        if attempt <= MAX_ATTEMPTS:
            try:
                async with self._conn.transaction():
                    await self._deliver([event])
            except Exception as failure:
                if _is_outage(failure):
                    raise
                error = self._errors[event.sequence] = describe(failure)
                log.exception("event_failed", lane=self._lane, sequence=event.sequence, attempt=attempt)
                await self._reader.note_failure(event.sequence)
                self._tally.note_failure(error)
                if attempt < MAX_ATTEMPTS:
                    return False
            else:
                self._errors.pop(event.sequence, None)
                done.attempted.append(event.sequence)
                return True
        self._errors.pop(event.sequence, None)
        entry_id = arrival.entry.id if arrival.entry else None
        await self._letters.give_up(event, entry_id, error, MAX_ATTEMPTS)
        done.attempted.append(event.sequence)
        return True

    async def _move(self, at: Position, to: lanes.Advance) -> None:
        await lanes.advance(
            self._conn, self._lane, lanes.Advance(at.last_seq, to.entry_id, to.lost), read_seq=to.last_seq
        )

    def _blamed(self, error: Exception) -> None:
        self._inherit_after = "0"
        if self._attempt.first is not None:
            self._errors[self._attempt.first] = describe(error)

    def _last_error(self, sequence: int) -> str:
        return self._errors.get(sequence, CRASHED)


def _is_outage(error: Exception) -> bool:
    """Whether a server was away. A statement that took too long was not: the server rolled it back for us."""
    return is_transient(error) and not isinstance(error, TimeoutError | asyncpg.QueryCanceledError)
