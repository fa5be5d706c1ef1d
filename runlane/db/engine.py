"""The SQLAlchemy engine of the API: role `runlane_api`, one transaction per request, one workspace each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import asyncpg
from sqlalchemy import event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from runlane.db.pool import COMMAND_TIMEOUT_S, Connection, prepare, session_settings
from runlane.errors import Defect, Unavailable

POOL_TIMEOUT_S: Final = 10.0
"""How long a request waits for a connection before it is answered 503."""

DRIVER_ERRORS: Final = (DBAPIError, PoolTimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
"""Everything that a statement may raise; `is_lost` tells which of them pass."""

_LOST: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.TransactionRollbackError,  # a deadlock, or another try for a serializable one: ask again
    PoolTimeoutError,
    OSError,
)
_CHOOSE_WORKSPACE: Final = text("SELECT set_config('runlane.workspace', :workspace, true)")


def open_engine(url: str, *, size: int) -> AsyncEngine:
    """Makes an engine of up to `size` connections; connects at first use.

    jsonb is read and written as Python objects, also by raw asyncpg functions on a connection of this engine.
    """
    engine = create_async_engine(
        url.replace("postgresql://", "postgresql+asyncpg://", 1),
        pool_size=size,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_S,
        # The codec of `prepare` encodes; SQLAlchemy must hand the object over as it is.
        json_serializer=lambda value: value,
        connect_args={
            "command_timeout": COMMAND_TIMEOUT_S,
            "server_settings": session_settings("runlane-api"),
        },
    )
    event.listen(engine.sync_engine, "connect", _on_connect)
    return engine


@asynccontextmanager
async def workspace_transaction(engine: AsyncEngine, workspace_id: UUID) -> AsyncIterator[AsyncConnection]:
    """Runs one transaction that sees the rows of one workspace; commits at the end, rolls back on an error.

    Raises:
        Unavailable: the database does not answer.
    """
    try:
        async with engine.begin() as conn:
            await conn.execute(_CHOOSE_WORKSPACE, {"workspace": str(workspace_id)})
            yield conn
    except DRIVER_ERRORS as error:
        if is_lost(error):
            raise Unavailable("the database does not answer") from error
        raise


def is_lost(error: BaseException | None) -> bool:
    """Tells whether a driver's error means "not now" (server away, full, a deadlock), not "never"."""
    if isinstance(error, DBAPIError):
        # The dialect wraps asyncpg's error in one of its own, and SQLAlchemy wraps that.
        return error.connection_invalidated or is_lost(error.orig.__cause__ if error.orig else None)
    if isinstance(error, asyncpg.InterfaceError):
        return "closed" in str(error)
    return isinstance(error, _LOST)


def driver(conn: AsyncConnection) -> Connection:
    """Returns the asyncpg connection of the same transaction, for the functions of the hot paths."""
    sync = conn.sync_connection
    raw: Connection | None = sync.connection.driver_connection if sync is not None else None
    if raw is None:
        raise Defect("the connection is not open")
    return raw


def _on_connect(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    adapter: Any = connection  # SQLAlchemy types it as any DBAPI connection; this is its asyncpg adapter
    adapter.run_async(prepare)
