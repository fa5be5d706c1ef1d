"""Keeps requests out until the database has the schema that this program needs.

The process serves from the first moment, so that it can say what it waits for: `/healthz` answers, `/readyz`
and everything else says 503.
"""

import asyncio

from runlane.db.pool import Pool
from runlane.db.schema import require_current, until_passed


class SchemaGate:
    """Asks until the answer was yes once: a schema does not go back under a running process."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._is_current = False

    async def require(self) -> None:
        """Passes if the schema is there.

        Raises:
            Unavailable: `schema.behind`.
            OSError, asyncpg.PostgresError, asyncpg.InterfaceError: the database does not answer.
        """
        if self._is_current:
            return
        async with self._pool.acquire() as conn:
            await require_current(conn)
        self._is_current = True

    async def until_current(self) -> None:
        """Returns when the schema is there; tries as long as it takes."""
        await until_passed(self.require, asyncio.Event())
