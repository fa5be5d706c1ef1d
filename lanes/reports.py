"""Reports how the lanes fare: what was counted since the last report, and what is pending on the stream."""

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Final

import structlog
from redis.exceptions import RedisError

from lanes.tally import Tallies, Tally
from runlane import stream
from runlane.backoff import pause
from runlane.db import lane_status
from runlane.db.lane_status import LaneReport
from runlane.db.pool import Pool, open_pool
from runlane.overlook import Overlook
from runlane.settings import Settings

log = structlog.get_logger(__name__)

EVERY: Final = timedelta(seconds=5)

TIDY: Final = timedelta(hours=1)
"""How often consumers are looked for that nobody is any more, and how long those were idle."""


async def run_reports(settings: Settings, tallies: Tallies, stop: asyncio.Event) -> None:
    """Reports until `stop` is set, and once more then.

    Raises:
        OSError, asyncpg.PostgresError: the database is away; the supervisor starts it again.
    """
    redis = stream.connect(settings.redis_url)
    pool = await open_pool(settings.database_system_url, size=1, name="runlane-reports")
    reporter = Reporter(pool, Overlook(redis))
    try:
        while not stop.is_set():
            await reporter.report(tallies)
            await reporter.tidy(tallies)
            await pause(EVERY, stop)
        await reporter.report(tallies)
    finally:
        await pool.close()
        await redis.aclose()


class Reporter:
    """Remembers what was reported."""

    def __init__(self, pool: Pool, overlook: Overlook) -> None:
        self._pool = pool
        self._overlook = overlook
        self._told: dict[str, Counter[str]] = {}
        self._tidy_at = 0.0

    async def report(self, tallies: Tallies) -> None:
        """Writes a report of each lane."""
        for lane, tally in list(tallies.lanes.items()):
            await self._report(lane, tally)

    async def tidy(self, tallies: Tallies) -> None:
        """Deletes consumers of other names: a version of before, or somebody who looked by hand."""
        now = asyncio.get_running_loop().time()
        if now < self._tidy_at:
            return
        self._tidy_at = now + TIDY.total_seconds()
        for lane in tallies.lanes:
            with suppress(RedisError, OSError):
                dropped = await self._overlook.drop_idle_consumers(lane, TIDY)
                if dropped:
                    log.info("consumers_dropped", lane=lane, consumers=dropped)

    async def _report(self, lane: str, tally: Tally) -> None:
        try:
            waiting = await self._overlook.waiting(lane)
        except (RedisError, OSError):
            waiting = None
        counts, error = Counter(tally.counts), tally.last_error
        new = counts - self._told.get(lane, Counter())
        said = LaneReport(
            lane, waiting.entries if waiting else None, waiting.oldest_s if waiting else None, new, error
        )
        async with self._pool.acquire() as conn:
            await lane_status.report(conn, said)
        self._told[lane] = counts
        if tally.last_error == error:
            tally.last_error = None
