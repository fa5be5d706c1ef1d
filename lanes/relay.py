"""The outbox relay: carries events from the outbox to the stream, in steps of exactly one.

One relay leads, for as long as its database connection lives. Each of its moves (give numbers, publish,
mark) may be repeated by a successor: the numbers are taken for good at commit, and the stream takes each
number once and tells its newest. Comparing that with the next number is how a stream that lost its tail, or
all of it, is noticed and filled again from the outbox.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from time import perf_counter
from typing import Final

import asyncpg
import structlog

from lanes.tally import Tallies
from runlane import names, stream
from runlane.backoff import pause
from runlane.db import dead_letters, lanes, outbox
from runlane.db.locks import RELAY_LEADER, try_hold
from runlane.db.pool import COMMAND_TIMEOUT_S, Connection, prepare, session_settings
from runlane.errors import Defect
from runlane.events import BusEvent
from runlane.events.wire import to_fields, validate

log = structlog.get_logger(__name__)

READ_LIMIT: Final = 500
"""Events of one turn."""

CALL_LIMIT: Final = 100
"""Events of one call to the stream."""

BRAKE: Final = 0.8
"""Share of the cap that the stream may be ahead of the slowest live lane."""

POLL: Final = timedelta(milliseconds=500)
"""How often the outbox and the stream are looked at when nobody calls."""

LINGER: Final = timedelta(milliseconds=20)
"""Pause after a small turn, so that a busy system is served by few large ones."""

HOUSEKEEPING: Final = timedelta(hours=1)
"""How often partitions are made, and old inbox rows and dead letters dropped."""

LOOK_BACK: Final = timedelta(minutes=1)
"""How often all of the outbox is looked at, not only what is behind the bound."""

PRUNE_TURNS: Final = 200
"""Statements of one housekeeping."""

PRUNE_LIMIT: Final = 5000
"""Rows that one statement drops."""

# Leadership must not outlive a host that vanished without a word.
_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}

# With fresh partitions the planner would sort the whole backlog each turn instead of reading its first rows.
_PLANNER: Final = {"enable_sort": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off"}


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """Where the relay reads and writes. `cap`: entries that the stream keeps."""

    database_url: str
    redis_url: str
    cap: int
    tallies: Tallies = field(default_factory=Tallies)


async def run_relay(config: RelayConfig, stop: asyncio.Event) -> None:
    """Relays until `stop`, or until a server goes away: then it raises and is to be run again.

    Raises:
        Invalid: the bus cannot live on this Redis server.
    """
    redis = stream.connect(config.redis_url)
    try:
        await stream.examine_server(redis)
        async with _connection(config.database_url) as conn:
            publisher = stream.Publisher(redis, cap=config.cap)
            await Relay(conn, publisher, cap=config.cap, tallies=config.tallies).run(stop)
    finally:
        await redis.aclose()


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[Connection]:
    settings = session_settings("runlane-relay") | _KEEPALIVE | _PLANNER
    conn: Connection = await asyncpg.connect(url, command_timeout=COMMAND_TIMEOUT_S, server_settings=settings)
    try:
        await prepare(conn)
        yield conn
    finally:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await conn.close(timeout=2)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the stream ends. `base` is set while it is empty: the number to begin with."""

    last: int
    base: int | None = None


class Relay:
    """One relay on one database connection, which holds the leadership and hears the calls."""

    def __init__(self, conn: Connection, publisher: stream.Publisher, *, cap: int, tallies: Tallies) -> None:
        self._conn = conn
        self._publisher = publisher
        self._tallies = tallies
        self._ahead = int(cap * BRAKE)
        self._wake = asyncio.Event()
        self._place: _Place | None = None
        """None: unknown, look before the next publish."""
        self._bound = outbox.Bound()
        self._is_braking = False

    async def run(self, stop: asyncio.Event) -> None:
        """Waits to lead, then relays until `stop` or until a server goes away."""
        await self._conn.add_listener(names.OUTBOX_CHANNEL, lambda *_: self._wake.set())
        while not stop.is_set():
            if await try_hold(self._conn, RELAY_LEADER):
                log.info("relay_leads")
                await self._lead(stop)
            else:
                await pause(POLL, stop)

    async def _lead(self, stop: asyncio.Event) -> None:
        clock = asyncio.get_running_loop().time
        next_housekeeping = next_look_back = clock()
        self._place = await self._find_place(is_new_leader=True)
        while not stop.is_set():
            if clock() >= next_housekeeping:
                next_housekeeping = clock() + HOUSEKEEPING.total_seconds()
                await self._keep_house()
            if clock() >= next_look_back:
                next_look_back = clock() + LOOK_BACK.total_seconds()
                self._bound.forget()
            moved = await self.turn()
            if moved < CALL_LIMIT:
                await self._rest(stop, LINGER if moved else timedelta(0))

    async def turn(self) -> int:
        """Carries up to `READ_LIMIT` events to the stream; returns how many."""
        self._wake.clear()
        place = self._place or await self._find_place()
        # forgotten until the turn has gone well
        self._place = None
        bus = await outbox.bus(self._conn, self._bound.last_id)
        self._bound.note_look(bus)
        limit = self._limit(place, bus)
        events = await self._next_events(place, bus, limit) if limit > 0 else []
        if events is None:
            return 0
        self._place = await self._publish(place, events)
        return self._place.last - place.last if self._place else 0

    def _limit(self, place: _Place, bus: outbox.Bus) -> int:
        room = READ_LIMIT if bus.slowest is None else bus.slowest + self._ahead - place.last
        is_braking = room <= 0
        if is_braking and not self._is_braking:
            log.warning("relay_brakes", last=place.last, slowest=bus.slowest)
        self._is_braking = is_braking
        return min(READ_LIMIT, room)

    async def _next_events(self, place: _Place, bus: outbox.Bus, limit: int) -> list[BusEvent] | None:
        """What follows the stream's newest; numbers are given when none are waiting. None: look again."""
        if bus.last_seq > place.last:
            return await outbox.read(self._conn, place.last + 1, bus.last_seq, limit)
        if not bus.has_more:
            return []
        async with self._conn.transaction():
            sequenced = await outbox.sequence(self._conn, limit, self._bound.last_id)
        if sequenced is None or sequenced.before != place.last:
            return None
        self._bound.note_numbers(sequenced, limit)
        return sequenced.events

    async def _publish(self, place: _Place, events: list[BusEvent]) -> _Place | None:
        """Sends events in calls of `CALL_LIMIT`; returns the new place, None when the stream disagreed."""
        for at in range(0, len(events), CALL_LIMIT):
            chunk = events[at : at + CALL_LIMIT]
            entries = [(e.sequence, _fields(e)) for e in chunk]
            began = perf_counter()
            answer = await self._publisher.publish(entries, place.base)
            self._tallies.note_published(answer.accepted, perf_counter() - began)
            if answer.begun:
                await self._note_epoch(chunk[0].sequence)
            if answer.accepted < len(chunk):
                log.warning("stream_out_of_step", expected=chunk[0].sequence, last=answer.last)
                return None
            place = _Place(chunk[-1].sequence)
        if events:
            await outbox.mark_published(self._conn, place.last)
        return place

    async def _find_place(self, *, is_new_leader: bool = False) -> _Place:
        """Looks where the stream ends. One that the outbox cannot continue is removed, to be begun anew."""
        newest = await self._publisher.newest()
        # read after the stream: numbers are committed before they are published
        bus = await outbox.bus(self._conn)
        if newest is not None:
            fault = await self._fault_of(newest, bus, check_identity=is_new_leader)
            if fault is None:
                if bus.oldest_unpublished is not None and bus.oldest_unpublished <= newest.sequence:
                    await outbox.mark_published(self._conn, newest.sequence)
                return _Place(newest.sequence)
            log.error("stream_refused", fault=fault, newest=newest.sequence, last_seq=bus.last_seq)
            await self._publisher.remove(newest.sequence)
        floor = bus.slowest
        if floor is None:
            floor = bus.last_seq if bus.oldest_unpublished is None else bus.oldest_unpublished - 1
        following = await outbox.read(self._conn, floor + 1, bus.last_seq, 1)
        base = following[0].sequence if following else bus.last_seq + 1
        return _Place(base - 1, base)

    async def _fault_of(self, newest: stream.Newest, bus: outbox.Bus, *, check_identity: bool) -> str | None:
        """Why the outbox cannot continue a stream that ends so; None: it can."""
        if newest.sequence > bus.last_seq:
            return "ahead of the outbox: the database was restored"
        if newest.sequence < bus.last_seq:
            following = await outbox.read(self._conn, newest.sequence + 1, bus.last_seq, 1)
            if not following or following[0].sequence > newest.sequence + 1:
                return "older than the outbox: the stream was restored"
        expected = await outbox.event_id_at(self._conn, newest.sequence) if check_identity else None
        if expected is not None and str(expected) != newest.event_id:
            return "another history: both were restored"
        return None

    async def _note_epoch(self, base: int) -> None:
        epoch = await outbox.begin_epoch(self._conn, base)
        if epoch > 1:
            log.warning("bus_epoch_changed", epoch=epoch, base=base)

    async def _keep_house(self) -> None:
        try:
            made = await outbox.ensure_partitions(self._conn)
        except asyncpg.PostgresError as error:
            # not fatal: events go to the default partition
            log.error("outbox_partitions_not_made", error=str(error))  # noqa: TRY400  # nothing to trace
        else:
            log.info("outbox_partitions_ensured", made=made)
        for prune in (lanes.prune_inbox, dead_letters.prune):
            # events wait meanwhile, so what is left is dropped an hour later
            for _ in range(PRUNE_TURNS):
                if await prune(self._conn, PRUNE_LIMIT) < PRUNE_LIMIT:
                    break

    async def _rest(self, stop: asyncio.Event, linger: timedelta) -> None:
        await pause(linger, stop)
        if not await pause(POLL, self._wake, stop):
            self._place = None  # nobody called: look whether the stream is still there


def _fields(event: BusEvent) -> dict[str, str]:
    fields = to_fields(event)
    try:
        validate(event, fields)
    except Defect as error:
        # its number is taken, so it must pass; the lanes dead-letter what they cannot read
        log.error("event_not_valid", event_id=str(event.envelope.id), error=error.detail)  # noqa: TRY400
    return fields
