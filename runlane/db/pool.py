"""The asyncpg pool of the hot paths, with jsonb as Python objects."""

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import asyncpg
import orjson

if TYPE_CHECKING:
    Connection: TypeAlias = (
        asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    )
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    Record: TypeAlias = asyncpg.Record
else:
    Connection = asyncpg.Connection
    Pool = asyncpg.Pool
    Record = asyncpg.Record


COMMAND_TIMEOUT_S: Final = 60.0
"""How long one statement may take, on whatever connection."""

IDLE_IN_TRANSACTION_S: Final = 120
"""After this the server ends a transaction that nobody continues: dead rows are kept while it is open.
The longest pause of ours is the work between two statements of a large merge."""


def session_settings(name: str) -> dict[str, str]:
    """Settings of every session of ours. `name` shows in pg_stat_activity."""
    return {
        "application_name": name,
        "timezone": "UTC",
        "jit": "off",
        "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S}s",
    }


def encode_json(value: object) -> str:
    """JSON text for a jsonb parameter; the value must have passed `clean()` if it came from outside."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


async def prepare(connection: "Connection") -> None:
    """Teaches a connection jsonb; each connection of the pool passes here once."""
    codec: dict[str, Any] = {"encoder": encode_json, "decoder": orjson.loads, "schema": "pg_catalog"}
    await connection.set_type_codec("jsonb", **codec)
    await connection.set_type_codec("json", **codec)


async def _keep_session(connection: "Connection") -> None:
    """Nothing of a session outlives its transaction here, so there is no round trip to reset it."""


async def ping(pool: "Pool", *, timeout_s: float) -> None:
    """Returns when the server answers a statement.

    Raises:
        OSError, asyncpg.PostgresError, asyncpg.InterfaceError: it does not, in time (TimeoutError) or at all.
    """
    await pool.fetchval("SELECT 1", timeout=timeout_s)


async def open_pool(url: str, *, size: int, name: str = "runlane", at_once: int = 2) -> "Pool":
    """Opens a pool of up to `size` connections, `at_once` of them now. `name` shows in pg_stat_activity.

    Raises:
        OSError, asyncpg.PostgresError: the server does not answer or refuses; not with none at once.
    """
    pool: Pool = await asyncpg.create_pool(
        url,
        min_size=min(at_once, size),
        max_size=size,
        init=prepare,
        reset=_keep_session,
        command_timeout=COMMAND_TIMEOUT_S,
        server_settings=session_settings(name),
    )
    return pool
