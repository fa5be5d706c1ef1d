"""Counts stale summaries of targets, and keeps a snapshot of each workspace a day."""

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from runlane.backoff import pause
from runlane.db import statistics, summaries
from runlane.db.locks import SUMMARIES, try_lock
from runlane.db.pool import Pool, open_pool
from runlane.settings import Settings

log = structlog.get_logger(__name__)

EVERY: Final = timedelta(seconds=2)

SHARE: Final = 4
"""It rests so many times as long as it counted: a large target that changes all the time is no load."""

PAGE: Final = 50


async def run_summaries(settings: Settings, stop: asyncio.Event) -> None:
    """Counts until `stop` is set.

    Raises:
        OSError, asyncpg.PostgresError: the database is away; the supervisor starts it again.
    """
    pool = await open_pool(settings.database_system_url, size=1, name="runlane-summaries")
    clock = asyncio.get_running_loop().time
    try:
        while not stop.is_set():
            began = clock()
            counted = await turn(pool)
            spent = timedelta(seconds=clock() - began)
            await pause(SHARE * spent if counted == PAGE else max(EVERY, SHARE * spent), stop)
    finally:
        await pool.close()


async def turn(pool: Pool) -> int:
    """Counts a page of what is stale, and takes snapshots that are due; returns how many were counted.

    One instance at a time does it; the others count nothing. Repeated, it does what is left.
    """
    async with pool.acquire() as conn, conn.transaction():
        if not await try_lock(conn, SUMMARIES):
            return 0
        counted = await summaries.refresh(conn, PAGE)
        taken = await statistics.take_snapshots(conn, PAGE)
    if taken:
        log.info("snapshots_taken", workspaces=taken)
    return counted
