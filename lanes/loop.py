"""The loop that drives one lane: reads the stream in order, hands events to a sink, keeps the checkpoint.

One transaction per turn holds everything: the lock that makes the instance the only one, the sink's rows, the
inbox and the checkpoint. The acknowledgement follows the commit; when it is lost, the entry comes again and
the checkpoint says that it was handled. What is pending is read before what is new, and the first failure
stops the lane, so order holds until an event has failed five times and is dead-lettered.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import structlog
from redis.exceptions import RedisError

from lanes.outages import is_transient, new_backoff
from runlane import stream
from runlane.backoff import pause
from runlane.db import lanes, outbox, pool
from runlane.db.pool import Connection
from runlane.errors import Invalid
from runlane.events import BusEvent, Lane, find_leaf, is_subscribed, scrub_text
from runlane.events.payloads import MAX_ERROR
from runlane.events.wire import decode, sequence_of, to_fields

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


class Sink(Protocol):
    """What a lane does with events. `handle` runs inside the turn's transaction and never commits."""

    @property
    def lane(self) -> Lane:
        """The consumer group."""

    def accepts(self, event_type: str) -> bool:
        """Whether the sink wants events of this type; the others only move the checkpoint."""

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        """Acts on events that the lane has not handled before, in the order of the bus."""


@dataclass(frozen=True, slots=True)
class LaneConfig:
    """Where a lane reads and writes."""

    database_url: str
    redis_url: str


NOWHERE: Final = 0
"""Sequence of an entry that has no place on the bus."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What a turn tries: the first event of the run that counts, and the last one."""

    first: int | None = None
    last: int = 0


@dataclass(frozen=True, slots=True)
class _Failure:
    """How the last attempt that began with this event went wrong."""

    sequence: int | None
    error: str


@dataclass(frozen=True, slots=True)
class _Arrival:
    """An event on its way through a turn. `event` is None when the sink does not want it, or cannot read it:
    then `fault` says why."""

    sequence: int
    event: BusEvent | None = None
    entry: stream.Entry | None = None
    fault: str | None = None


async def run_lane(sink: Sink, config: LaneConfig, stop: asyncio.Event) -> None:
    """Drives the lane until `stop`, or until a server goes away: then it raises and is to be run again."""
    async with _open(sink, config) as loop:
        await loop.run(stop)


@asynccontextmanager
async def _open(sink: Sink, config: LaneConfig) -> AsyncIterator["LaneLoop"]:
    redis = stream.connect(config.redis_url, block_s=BLOCK.total_seconds())
    try:
        source = await pool.open_pool(config.database_url, size=1, name=f"runlane-{sink.lane}")
        async with source, source.acquire() as conn:
            await lanes.ensure(conn, sink.lane)
            reader = stream.LaneReader(redis, sink.lane)
            await reader.ensure_group()
            yield LaneLoop(sink, conn, reader)
    finally:
        await redis.aclose()


class LaneLoop:
    """One instance of a lane, on one connection to each server."""

    def __init__(self, sink: Sink, conn: Connection, reader: stream.LaneReader) -> None:
        self._sink = sink
        self._conn = conn
        self._reader = reader
        self._lane: str = sink.lane
        self._attempt = _Attempt()
        self._failure: _Failure | None = None
        self._careful_until = 0
        """Up to this sequence events go one by one: one of them has failed before."""

    async def run(self, stop: asyncio.Event) -> None:
        """Turns until `stop`. An error of a server is raised, one of the sink is counted and tried again."""
        backoff = new_backoff()
        while not stop.is_set():
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
        self._attempt = _Attempt()
        async with self._conn.transaction():
            if not await lanes.take_turn(self._conn, self._lane):
                return False
            entries = await self._reader.read_pending(BATCH) or await self._reader.read_new(BATCH, BLOCK)
            done = await self._handle(entries, await lanes.checkpoint(self._conn, self._lane))
        await self._reader.acknowledge(
            [arrival.entry.id for arrival in done if arrival.entry], self._attempt.first
        )
        return True

    async def _handle(self, entries: list[stream.Entry], at: int) -> list[_Arrival]:
        """Handles what follows the checkpoint without a gap; returns what may be acknowledged."""
        arrivals = [self._arrival(entry) for entry in entries]
        done = [arrival for arrival in arrivals if arrival.sequence <= at]
        fresh = [arrival for arrival in arrivals if arrival.sequence > at]
        await self._reject([arrival for arrival in done if arrival.sequence == NOWHERE])
        if not fresh:
            await lanes.beat(self._conn, self._lane)
        elif fresh[0].sequence > at + 1:
            await self._heal(at, fresh[0].sequence - 1)
        else:
            done += await self._process(_unbroken(fresh))
        return done

    async def _heal(self, at: int, until: int) -> None:
        """Handles what the stream no longer had from the outbox, or counts it as lost."""
        log.warning("lane_heals", lane=self._lane, first=at + 1, last=until)
        events = await outbox.read(self._conn, at + 1, until, HEAL_BATCH)
        if events and events[0].sequence == at + 1:
            arrivals = [_Arrival(e.sequence, e if self._wants(e.envelope.type) else None) for e in events]
            await self._process(_unbroken(arrivals))
            return
        last = events[0].sequence - 1 if events else until
        log.error("events_lost", lane=self._lane, first=at + 1, last=last)
        await lanes.advance(self._conn, self._lane, lanes.Advance(last, lost=last - at))

    async def _process(self, run: list[_Arrival]) -> list[_Arrival]:
        """Hands events to the sink and moves the checkpoint behind them; returns those that are done.

        A run whose first event was tried before goes one by one, to find the one that fails.
        """
        wanted = next(((at, arrival.event) for at, arrival in enumerate(run) if arrival.event), None)
        if wanted is not None:
            first, event = wanted
            attempt = await self._reader.count_attempt(event.sequence)
            if attempt > 1:
                self._careful_until = max(self._careful_until, run[-1].sequence)
            if event.sequence <= self._careful_until:
                run = run[: first + 1]
            self._attempt = _Attempt(event.sequence, run[-1].sequence)
            if attempt > MAX_ATTEMPTS:
                await self._dead_letter(event)
            else:
                await self._deliver([arrival.event for arrival in run if arrival.event])
        await self._reject(run)
        entry = run[-1].entry
        await lanes.advance(
            self._conn, self._lane, lanes.Advance(run[-1].sequence, entry.id if entry else None)
        )
        return run

    async def _deliver(self, events: Sequence[BusEvent]) -> None:
        by_id = {event.envelope.id: event for event in reversed(events)}
        new = await lanes.receive(self._conn, self._lane, [event.envelope.id for event in events])
        fresh = [event for event in events if event.envelope.id in new and by_id[event.envelope.id] is event]
        if fresh:
            await self._sink.handle(self._conn, fresh)

    async def _dead_letter(self, event: BusEvent) -> None:
        sent = event.envelope
        error = "handling it ended the process"
        if self._failure and self._failure.sequence == event.sequence:
            error = self._failure.error
        await self._reader.dead_letter(sent.workspace_id, to_fields(event), error)
        await lanes.receive(self._conn, self._lane, [sent.id])
        log.error("event_dead_lettered", lane=self._lane, event_id=str(sent.id), type=sent.type, error=error)

    async def _reject(self, arrivals: Sequence[_Arrival]) -> None:
        """Sets entries with a fault aside, where a person finds them."""
        for arrival in arrivals:
            if arrival.entry and arrival.fault:
                await self._reader.dead_letter(None, arrival.entry.fields, arrival.fault)
                log.warning(
                    "entry_unroutable", lane=self._lane, entry_id=arrival.entry.id, fault=arrival.fault
                )

    async def _blame(self, error: Exception) -> None:
        """Notes whose fault a failed turn was. Raises the error again when it was a server's."""
        attempt = self._attempt
        if is_transient(error):
            if attempt.first is not None:
                with suppress(RedisError, OSError):
                    await self._reader.uncount_attempt(attempt.first)
            raise error
        self._careful_until = max(self._careful_until, attempt.last)
        self._failure = _Failure(attempt.first, scrub_text(f"{type(error).__name__}: {error}")[:MAX_ERROR])

    def _arrival(self, entry: stream.Entry) -> _Arrival:
        if not entry.fields:
            return _Arrival(NOWHERE, entry=entry)  # trimmed while it was pending: the gap will show
        sequence = sequence_of(entry.fields)
        if sequence is None:
            return _Arrival(NOWHERE, entry=entry, fault="no sequence")
        name = entry.fields.get(b"type", b"").decode(errors="replace")
        if find_leaf(name) is None:
            return _Arrival(sequence, entry=entry, fault="not in the catalog")
        if b"workspaceid" not in entry.fields:
            return _Arrival(sequence, entry=entry, fault="no workspace")
        if not self._wants(name):
            return _Arrival(sequence, entry=entry)
        try:
            return _Arrival(sequence, decode(entry.fields), entry)
        except Invalid as error:
            return _Arrival(sequence, entry=entry, fault=error.detail)

    def _wants(self, event_type: str) -> bool:
        return is_subscribed(self._sink.lane, event_type) and self._sink.accepts(event_type)


def _unbroken(arrivals: list[_Arrival]) -> list[_Arrival]:
    """The longest start of `arrivals` that goes in steps of one."""
    for at in range(1, len(arrivals)):
        if arrivals[at].sequence != arrivals[at - 1].sequence + 1:
            return arrivals[:at]
    return arrivals
