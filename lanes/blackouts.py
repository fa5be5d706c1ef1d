"""Looks for blackout windows that have opened and interrupt: what runs under one is given back."""

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from runlane.backoff import pause
from runlane.db import interruptions
from runlane.db.pool import Pool, open_pool
from runlane.settings import Settings

log = structlog.get_logger(__name__)

LOOK: Final = timedelta(seconds=2)
"""How often. No job is looked at while no window is open, and then only what is in flight."""


async def run_blackouts(settings: Settings, stop: asyncio.Event) -> None:
    """Interrupts until `stop` is set. Several may do so: each job is given back once.

    Raises:
        OSError, asyncpg.PostgresError: the database is away, or a deadlock; the supervisor starts it again.
    """
    pool = await open_pool(settings.database_system_url, size=1, name="runlane-blackouts")
    try:
        while not stop.is_set():
            if jobs := await interrupt_all(pool):
                log.info("jobs_interrupted", jobs=jobs)
            await pause(LOOK, stop)
    finally:
        await pool.close()


async def interrupt_all(pool: Pool) -> int:
    """Gives back what runs under windows that are open and interrupt; answers how many jobs."""
    async with pool.acquire() as conn:
        workspaces = await interruptions.find_workspaces(conn)
    given_back = 0
    for workspace_id in workspaces:
        jobs = interruptions.CHUNK
        while jobs >= interruptions.CHUNK:
            async with pool.acquire() as conn, conn.transaction():
                jobs = await interruptions.interrupt(conn, workspace_id)
            given_back += jobs
    return given_back
