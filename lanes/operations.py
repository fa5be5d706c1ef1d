"""Carries on operations on many jobs, chunk by chunk, until none is left; woken by notice."""

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from runlane import names
from runlane.backoff import pause
from runlane.db import operations
from runlane.db.notices import listening
from runlane.db.pool import Pool, open_pool
from runlane.settings import Settings

log = structlog.get_logger(__name__)

POLL: Final = timedelta(seconds=10)
"""How often open operations are looked for when nobody calls: one whose carrier died is taken over."""


async def run_operations(settings: Settings, stop: asyncio.Event) -> None:
    """Carries operations on until `stop` is set.

    Raises:
        OSError, asyncpg.PostgresError: the database is away, or a deadlock; the supervisor starts it again.
    """
    pool = await open_pool(settings.database_system_url, size=2, name="runlane-operations")
    wake, deaf = asyncio.Event(), asyncio.Event()

    def hear(notice: str | None) -> None:
        if notice is None:
            deaf.set()
        wake.set()

    try:
        async with pool.acquire() as listener, listening(listener, names.OPERATIONS_CHANNEL, hear):
            while not stop.is_set():
                wake.clear()
                chunks = await carry_on(pool, stop)
                if deaf.is_set():
                    raise ConnectionResetError("the connection that hears of operations is gone")
                if chunks:
                    log.info("operations_carried_on", chunks=chunks)
                await pause(POLL, wake, stop)
    finally:
        await pool.close()


async def carry_on(pool: Pool, stop: asyncio.Event) -> int:
    """Does chunks of open operations until none is left that nobody else holds; answers how many."""
    chunks = 0
    while not stop.is_set():
        async with pool.acquire() as conn, conn.transaction():
            if not await operations.advance(conn):
                break
        chunks += 1
    return chunks
