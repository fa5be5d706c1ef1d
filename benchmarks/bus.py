"""What the bus costs: a publish in bare XADDs, batches in single publishes, a lane in bare reads.

Each pair is measured in turns, seven times; what counts is the median of the ratios. The first is client CPU,
the others are events a second. On a Redis database of its own; the lane's rows are removed again.
"""

import gc
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

from redis.asyncio import Redis

from benchmarks.report import Bound
from lanes.ordered import OrderedLoop
from lanes.tally import Tally
from runlane import names, stream
from runlane.db import lanes
from runlane.db.pool import Connection, open_pool
from runlane.events import SUBSCRIPTIONS, BusEvent, Envelope, Lane
from runlane.events.wire import to_fields
from runlane.settings import Settings

ROUNDS: Final = 7
SINGLES: Final = 300
"""Events of a round that are published one by one."""
EVENTS: Final = 3_000
"""Events of a round that are published or read in batches."""
BATCH: Final = 100
CAP: Final = 100_000
REDIS_DB: Final = 14
LANE: Final = cast("Lane", "bench")  # a lane that exists while it is measured

MOST_CPU: Final = 1.5
LEAST_BATCHED: Final = 3.0
LEAST_LANE: Final = 0.3

Numbered = list[tuple[int, dict[str, str]]]


class NoSink:
    """Takes every event and does nothing."""

    lane = LANE
    is_ordered = True
    from_oldest = False

    def accepts(self, event_type: str) -> bool:
        """Everything."""
        return bool(event_type)

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class BusCost:
    """Median ratios."""

    publish_cpu: float
    batched: float
    lane: float

    def bounds(self) -> list[Bound]:
        """Each with its limit."""
        return [
            Bound("publish ÷ bare XADD, client CPU", self.publish_cpu, MOST_CPU, False, "×"),
            Bound("events/s in batches ÷ one by one", self.batched, LEAST_BATCHED, True, "×"),
            Bound("lane without sink ÷ bare read and ack", self.lane, LEAST_LANE, True, "×"),
        ]


async def measure(settings: Settings) -> BusCost:
    """Measures all three on these servers."""
    url = urlunsplit(urlsplit(settings.redis_url)._replace(path=f"/{REDIS_DB}"))
    redis = stream.connect(url, block_s=1)
    try:
        bench = Bench(redis)
        publishing = [await bench.publishing() for _ in range(ROUNDS)]
        reading = [await bench.reading(settings.database_system_url) for _ in range(ROUNDS)]
    finally:
        await redis.flushdb()
        await redis.aclose()
    return BusCost(
        statistics.median(cpu for cpu, _ in publishing),
        statistics.median(batched for _, batched in publishing),
        statistics.median(reading),
    )


class Bench:
    """One Redis database."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._publisher = stream.Publisher(redis, cap=CAP)

    async def publishing(self) -> tuple[float, float]:
        """CPU of single publishes in multiples of XADDs; speed of batches in multiples of single ones."""
        events = _events(1, EVENTS)
        bare_cpu, _ = await self._timed(lambda: self._bare(events[:SINGLES]))
        single_cpu, single_s = await self._timed(lambda: self._publish(events[:SINGLES], 1))
        _, batched_s = await self._timed(lambda: self._publish(events, BATCH))
        return single_cpu / bare_cpu, (len(events) / batched_s) / (SINGLES / single_s)

    async def reading(self, database_url: str) -> float:
        """Events a second of a lane without sink in multiples of a bare loop that reads and acknowledges."""
        async with _lane(database_url) as (conn, first):
            events = _events(first, EVENTS)
            await self._redis.flushdb()
            await self._publish(events, BATCH)
            reader = stream.LaneReader(self._redis, "bare")
            await reader.ensure_group()
            _, bare_s = await self._timed(lambda: _read_bare(reader), flush=False)
            reader = stream.LaneReader(self._redis, LANE)
            await reader.ensure_group()
            loop = OrderedLoop(NoSink(), conn, reader, Tally())
            _, lane_s = await self._timed(lambda: _turn_until(loop, conn, first + EVENTS - 1), flush=False)
        return bare_s / lane_s

    async def _timed(self, work: Callable[[], Awaitable[None]], *, flush: bool = True) -> tuple[float, float]:
        """CPU and wall seconds."""
        if flush:
            await self._redis.flushdb()
        gc.disable()
        try:
            cpu, wall = time.process_time(), time.perf_counter()
            await work()
            return time.process_time() - cpu, time.perf_counter() - wall
        finally:
            gc.enable()

    async def _bare(self, events: Numbered) -> None:
        for _, fields in events:
            await self._redis.xadd(names.EVENT_STREAM, dict(fields), maxlen=CAP)  # type: ignore[arg-type]

    async def _publish(self, events: Numbered, batch: int) -> None:
        for at in range(0, len(events), batch):
            await self._publisher.publish(events[at : at + batch], events[0][0] if at == 0 else None)


def _events(first: int, count: int) -> Numbered:
    workspace_id = uuid4()
    return [(number, to_fields(_event(workspace_id, number))) for number in range(first, first + count)]


def _event(workspace_id: UUID, number: int) -> BusEvent:
    data: dict[str, object] = {
        "job_id": str(uuid4()),
        "run_id": str(uuid4()),
        "step_id": "ports",
        "attempt": 1,
    }
    sent = Envelope(uuid4(), "job.completed", workspace_id, f"job/{number}", data)
    return BusEvent(sent, number, datetime.now(UTC))


@asynccontextmanager
async def _lane(database_url: str) -> AsyncIterator[tuple[Connection, int]]:
    """A lane of its own on the database; the number of the first event that it takes."""
    subscriptions = cast("dict[Lane, frozenset[str] | None]", SUBSCRIPTIONS)
    subscriptions[LANE] = None
    async with await open_pool(database_url, size=1, name="bench-lane") as pool, pool.acquire() as conn:
        try:
            await lanes.ensure(conn, LANE, from_oldest=False)
            async with conn.transaction():
                at = await lanes.position(conn, LANE)
            yield conn, at.last_seq + 1
        finally:
            for table in ("lane_checkpoints", "lane_inbox"):
                await conn.execute(f"DELETE FROM {table} WHERE lane = $1", LANE)  # noqa: S608  # two words of ours
            del subscriptions[LANE]


async def _read_bare(reader: stream.LaneReader) -> None:
    while entries := await reader.read_new(BATCH, None):
        await reader.acknowledge([entry.id for entry in entries])


async def _turn_until(loop: OrderedLoop, conn: Connection, last: int) -> None:
    for _ in range(0, EVENTS, BATCH):
        await loop.turn()
    async with conn.transaction():
        at = await lanes.position(conn, LANE)
    if at.last_seq != last:
        raise RuntimeError(f"the lane is at {at.last_seq}, not {last}")
