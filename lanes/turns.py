"""What every lane does in a turn: read, hand on, keep the checkpoint; what it meets on the way is said here.

One transaction per turn holds everything: the lock that makes the instance the only one, the sink's rows, the
inbox and the checkpoint. The acknowledgement follows the commit; when it is lost, the entry comes again and
the inbox says that it was handled.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from time import perf_counter
from typing import Final

import structlog
from redis.exceptions import RedisError

from lanes.arrivals import Arrival, unbroken
from lanes.letters import Letters, describe
from lanes.outages import is_transient, new_backoff
from lanes.redrive import Redriver
from lanes.sink import Sink
from lanes.tally import Tally
from runlane import stream
from runlane.backoff import pause
from runlane.db import lanes, outbox
from runlane.db.lanes import Position
from runlane.db.pool import Connection
from runlane.events import BusEvent, is_subscribed

log = structlog.get_logger(__name__)

MAX_ATTEMPTS: Final = 5
"""Failed or crashed attempts until an event is dead-lettered. Source: Event bridge, Delivery guarantees."""

BATCH: Final = 100
"""Entries of one turn."""

HEAL_BATCH: Final = 500
"""Events of one turn that are read from the outbox."""

BLOCK: Final = timedelta(seconds=2)
"""How long a read waits for an entry. It is never cancelled: a cancelled read may have been answered."""

STANDBY: Final = timedelta(seconds=1)
"""Pause of an instance while another drives the lane."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a turn tries: the first event of the run that counts, and the last one."""

    first: int | None = None
    last: int = 0


@dataclass(slots=True)
class Done:
    """What may be acknowledged once the turn is committed: entries, and events whose attempts are over."""

    arrivals: list[Arrival] = field(default_factory=list)
    attempted: list[int] = field(default_factory=list)


class LaneLoop(ABC):
    """One instance of a lane, on one connection to each server."""

    def __init__(self, sink: Sink, conn: Connection, reader: stream.LaneReader, tally: Tally) -> None:
        self._sink = sink
        self._conn = conn
        self._reader = reader
        self._lane: str = sink.lane
        self._tally = tally
        self._letters = Letters(conn, reader, sink.lane, tally)
        self._redriver = Redriver(sink, conn, reader)
        self._attempt = Attempt()
        self._careful_until = 0
        """Up to this sequence events go one by one: one of them has failed before."""

    @abstractmethod
    async def _attend(self, at: Position) -> Done:
        """Reads and handles once, inside the turn's transaction; returns what may be acknowledged."""

    @abstractmethod
    def _blamed(self, error: Exception) -> None:
        """Remembers that the turn's attempt failed by the sink's fault."""

    async def run(self, stop: asyncio.Event) -> None:
        """Turns until `stop`. An error of a server is raised, one of the sink is counted and tried again."""
        backoff = new_backoff()
        while not stop.is_set():
            await self._redriver.look()
            try:
                is_driving = await self.turn()
            except Exception as error:
                await self._blame(error)
                log.exception("lane_failed", lane=self._lane, sequence=self._attempt.first)
                await pause(backoff.next(), stop)
            else:
                backoff.reset()
                if not is_driving:
                    await pause(STANDBY, stop)

    async def turn(self) -> bool:
        """Reads and handles once; False when another instance drives the lane."""
        self._attempt = Attempt()
        try:
            async with self._conn.transaction():
                if not await lanes.take_turn(self._conn, self._lane):
                    return False
                done = await self._attend(await lanes.position(self._conn, self._lane))
        except stream.GroupLost:
            await self._regroup()
            return True
        entry_ids = [arrival.entry.id for arrival in done.arrivals if arrival.entry]
        await self._reader.acknowledge(entry_ids, done.attempted)
        self._tally.counts.update(arrival.outcome for arrival in done.arrivals if not arrival.is_ghost)
        return True

    async def _regroup(self) -> None:
        """Makes the group anew, from the start of the stream.

        What was pending is forgotten with the group, so the lane first goes back to its checkpoint: what
        comes again the inbox knows, what does not come again is read from the outbox.
        """
        async with self._conn.transaction():
            if not await lanes.take_turn(self._conn, self._lane):
                return
            await lanes.rewind(self._conn, self._lane)
        await self._reader.ensure_group()

    async def _idle(self, at: Position) -> Done:
        """Nothing came. What was published all the same must have been trimmed: it is in the outbox."""
        published = await lanes.published(self._conn)
        if published > at.read_seq:
            return await self._heal(at, published)
        await self._move(at, lanes.Advance(at.read_seq))
        return Done()

    async def _heal(self, at: Position, until: int) -> Done:
        """Handles what the stream no longer had from the outbox, in order, or counts it as lost."""
        first = at.read_seq + 1
        log.warning("lane_heals", lane=self._lane, first=first, last=until)
        events = await outbox.read(self._conn, first, until, HEAL_BATCH)
        if events and events[0].sequence == first:
            arrivals = [Arrival(e.sequence, e if self._wants(e.envelope.type) else None) for e in events]
            return await self._hand_in_order(at, unbroken(arrivals))
        last = events[0].sequence - 1 if events else until
        log.error("events_lost", lane=self._lane, first=first, last=last)
        self._tally.counts["lost"] += last - at.read_seq
        await self._move(at, lanes.Advance(last, lost=last - at.read_seq))
        return Done()

    async def _hand_in_order(self, at: Position, run: list[Arrival]) -> Done:
        """Hands events to the sink and moves the checkpoint behind them; the first that fails ends the turn.

        A run whose first event was tried before goes one by one, to find the one that fails.
        """
        done = Done(run)
        wanted = next(((at, arrival.event) for at, arrival in enumerate(run) if arrival.event), None)
        if wanted is not None:
            first, event = wanted
            attempt = await self._reader.count_attempt(event.sequence)
            if attempt > 1:
                self._careful_until = max(self._careful_until, run[-1].sequence)
            if event.sequence <= self._careful_until:
                done.arrivals = run = run[: first + 1]
            self._attempt = Attempt(event.sequence, run[-1].sequence)
            done.attempted.append(event.sequence)
            if attempt > MAX_ATTEMPTS:
                entry = run[first].entry
                entry_id = entry.id if entry else None
                await self._letters.give_up(event, entry_id, self._last_error(event.sequence), MAX_ATTEMPTS)
            else:
                await self._deliver([arrival.event for arrival in run if arrival.event])
        await self._letters.reject(run)
        entry = run[-1].entry
        await self._move(at, lanes.Advance(run[-1].sequence, entry.id if entry else None))
        return done

    @abstractmethod
    def _last_error(self, sequence: int) -> str:
        """Why the last attempt at this event failed."""

    @abstractmethod
    async def _move(self, at: Position, to: lanes.Advance) -> None:
        """Writes how far the lane came."""

    async def _deliver(self, events: Sequence[BusEvent]) -> None:
        by_id = {event.envelope.id: event for event in reversed(events)}
        new = await lanes.receive(self._conn, self._lane, [event.envelope.id for event in events])
        fresh = [event for event in events if event.envelope.id in new and by_id[event.envelope.id] is event]
        if fresh:
            began = perf_counter()
            await self._sink.handle(self._conn, fresh)
            self._tally.note_handled(perf_counter() - began)

    async def _blame(self, error: Exception) -> None:
        """Notes whose fault a failed turn was. Raises the error again when it was a server's."""
        attempt = self._attempt
        if is_transient(error):
            if attempt.first is not None:
                with suppress(RedisError, OSError):
                    await self._reader.uncount_attempt(attempt.first)
            raise error
        if attempt.first is not None:
            await self._reader.note_failure(attempt.first)
        self._tally.note_failure(describe(error))
        self._careful_until = max(self._careful_until, attempt.last)
        self._blamed(error)

    def _wants(self, event_type: str) -> bool:
        return is_subscribed(self._sink.lane, event_type) and self._sink.accepts(event_type)
