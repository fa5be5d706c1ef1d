"""Drives a lane: opens its connections, and turns in the way its sink wants."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from lanes import turns
from lanes.ordered import OrderedLoop
from lanes.sink import Sink
from lanes.tally import Tallies
from lanes.turns import LaneLoop
from lanes.unordered import UnorderedLoop
from runlane import stream
from runlane.db import lanes, pool

PAUSED: Final = timedelta(seconds=30)
"""An instance that stands still for so long in the middle of a turn loses it: its host may be frozen."""


@dataclass(frozen=True, slots=True)
class LaneConfig:
    """Where a lane reads and writes."""

    database_url: str
    redis_url: str
    tallies: Tallies = field(default_factory=Tallies)
    """Where it counts what it does."""


async def run_lane(sink: Sink, config: LaneConfig, stop: asyncio.Event) -> None:
    """Drives the lane until `stop`, or until a server goes away: then it raises and is to be run again."""
    async with _open(sink, config) as loop:
        await loop.run(stop)


@asynccontextmanager
async def _open(sink: Sink, config: LaneConfig) -> AsyncIterator[LaneLoop]:
    redis = stream.connect(config.redis_url, block_s=turns.BLOCK.total_seconds())
    try:
        source = await pool.open_pool(config.database_url, size=1, name=f"runlane-{sink.lane}")
        async with source, source.acquire() as conn:
            await lanes.bound_turns(conn, PAUSED)
            await lanes.ensure(conn, sink.lane, from_oldest=sink.from_oldest)
            kind = OrderedLoop if sink.is_ordered else UnorderedLoop
            yield kind(sink, conn, stream.LaneReader(redis, sink.lane), config.tallies.of(sink.lane))
    finally:
        await redis.aclose()
