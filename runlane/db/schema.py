"""Whether the database has the schema that this program needs.

A newer schema is fine: migrations only add while processes of the version before still run. An older one is
not: a process that began on it would work until it met what is missing.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Final

import asyncpg
import structlog

from runlane.backoff import Backoff, pause
from runlane.db.pool import Connection
from runlane.errors import Unavailable

log = structlog.get_logger(__name__)

BEHIND: Final = "schema.behind"
"""Code of what is refused on an older schema."""

_FIRST_PAUSE: Final = timedelta(milliseconds=200)
_MOST_PAUSE: Final = timedelta(seconds=2)
_NOT_THERE: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)

_REVISION: Final = re.compile(r'^revision = "(\w+)"', re.MULTILINE)
_BEFORE: Final = re.compile(r'^down_revision = "(\w+)"', re.MULTILINE)


@cache
def revisions() -> tuple[str, ...]:
    """The revisions that this program knows, the newest first.

    Read from the files alone: a process that only asks needs nothing of what runs migrations.
    """
    folder = Path(str(resources.files("runlane"))).parent / "migrations" / "versions"
    texts = [path.read_text() for path in folder.glob("*.py")]
    before = {_first(_REVISION, text): _first(_BEFORE, text) for text in texts}
    (newest,) = before.keys() - before.values()
    chain = [newest]
    while earlier := before[chain[-1]]:
        chain.append(earlier)
    return tuple(chain)


def head() -> str:
    """The newest revision that this program knows."""
    return revisions()[0]


async def revision_of(conn: Connection) -> str | None:
    """The revision that a database is at; None if nothing was ever migrated there."""
    try:
        revision: str | None = await conn.fetchval("SELECT version_num FROM alembic_version")
    except asyncpg.UndefinedTableError:
        return None
    return revision


async def require_current(conn: Connection) -> None:
    """Passes if the schema is at this program's revision, or at one that this program does not know yet.

    Raises:
        Unavailable: `schema.behind`, migrations are missing.
    """
    found = await revision_of(conn)
    if found is None or found in revisions()[1:]:
        detail = f"the schema is at {found or 'nothing'}, this version needs {head()}: run `runlane migrate`"
        raise Unavailable(detail, code=BEHIND)


async def until_current(url: str, stop: asyncio.Event) -> bool:
    """Waits until the database is there and its schema current; False if the stop came first."""
    return await until_passed(partial(_look, url), stop)


async def until_passed(look: Callable[[], Awaitable[None]], stop: asyncio.Event) -> bool:
    """Looks until `look` passes, as `require_current` does, and logs what it waits for; False: see above."""
    backoff = Backoff(_FIRST_PAUSE, _MOST_PAUSE)
    while not stop.is_set():
        try:
            await look()
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


def _first(form: re.Pattern[str], text: str) -> str:
    found = form.search(text)
    return found[1] if found else ""
