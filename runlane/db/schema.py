"""Whether the database has the schema that this program needs.

A newer schema is fine: migrations only add while processes of the version before still run. An older one is
not: a process that began on it would work until it met what is missing.
"""

import asyncio
from datetime import timedelta
from typing import Final

import asyncpg
import structlog

from runlane.backoff import Backoff, pause
from runlane.db import migrate
from runlane.db.pool import Connection
from runlane.errors import Unavailable

log = structlog.get_logger(__name__)

BEHIND: Final = "schema.behind"
"""Code of what is refused on an older schema."""

_FIRST_PAUSE: Final = timedelta(milliseconds=200)
_MOST_PAUSE: Final = timedelta(seconds=2)
_NOT_THERE: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


async def require_current(conn: Connection) -> None:
    """Passes if the schema is at this program's revision, or at one that this program does not know yet.

    Raises:
        Unavailable: `schema.behind`, migrations are missing.
    """
    found, head = await migrate.revision_of(conn), migrate.head()
    if found is None or (found != head and found in migrate.known_revisions()):
        detail = f"the schema is at {found or 'nothing'}, this version needs {head}: run `runlane migrate`"
        raise Unavailable(detail, code=BEHIND)


async def until_current(url: str, stop: asyncio.Event) -> bool:
    """Waits until the database is there and its schema current; False if the stop came first."""
    backoff = Backoff(_FIRST_PAUSE, _MOST_PAUSE)
    while not stop.is_set():
        try:
            await _look(url)
        except Unavailable as error:
            log.warning("schema_behind", detail=error.detail)
        except _NOT_THERE as error:
            log.warning("server_not_there", server="postgresql", error=str(error)[:200])
        else:
            return True
        await pause(backoff.next(), stop)
    return False


async def _look(url: str) -> None:
    conn = await asyncpg.connect(url, timeout=10)
    try:
        await require_current(conn)
    finally:
        await conn.close()
