"""Compares assets with projects whose rules have changed, portion by portion, and with all once an hour."""

import asyncio
from datetime import timedelta
from typing import Final

from runlane.backoff import pause
from runlane.db import memberships
from runlane.db.pool import Pool, open_pool
from runlane.settings import Settings

LOOK: Final = timedelta(seconds=1)
"""How often projects that are due are looked for when none was."""


async def run_evaluations(settings: Settings, stop: asyncio.Event) -> None:
    """Evaluates until `stop` is set. Several may do so: each has a project of its own.

    Raises:
        OSError, asyncpg.PostgresError: the database is away; the supervisor starts it again.
    """
    pool = await open_pool(settings.database_system_url, size=1, name="runlane-projects")
    try:
        while not stop.is_set():
            if not await evaluate(pool):
                await pause(LOOK, stop)
    finally:
        await pool.close()


async def evaluate(pool: Pool) -> bool:
    """Compares one portion; False when no project is due."""
    async with pool.acquire() as conn, conn.transaction():
        return await memberships.evaluate_next(conn)
