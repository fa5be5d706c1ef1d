"""Keeps requests out until the database has the schema that this program needs.

The process serves from the first moment, so that it can say what it waits for: `/healthz` answers, `/readyz`
and everything else says 503.
"""

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from runlane.backoff import Backoff
from runlane.db.engine import DRIVER_ERRORS
from runlane.db.pool import Pool
from runlane.db.schema import require_current
from runlane.errors import Unavailable

log = structlog.get_logger(__name__)

_FIRST_PAUSE: Final = timedelta(milliseconds=200)
_MOST_PAUSE: Final = timedelta(seconds=2)


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
        backoff = Backoff(_FIRST_PAUSE, _MOST_PAUSE)
        while True:
            try:
                await self.require()
            except Unavailable as error:
                log.warning("schema_behind", detail=error.detail)
            except DRIVER_ERRORS as error:
                log.warning("server_not_there", server="postgresql", error=str(error)[:200])
            else:
                return
            await asyncio.sleep(backoff.next().total_seconds())
