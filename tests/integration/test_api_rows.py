"""What the API's code says of the database, compared with the database."""

from uuid import uuid4

import pytest
from sqlalchemy import Connection, inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.types import TypeEngine

from runlane.db import inventory_tables, tables
from runlane.db.columns import metadata
from runlane.db.engine import driver, open_engine, workspace_transaction
from runlane.errors import Unavailable
from runlane.settings import Settings
from tests.conftest import Database

pytestmark = pytest.mark.integration


def _text(kind: TypeEngine[object]) -> str:
    return kind.compile(dialect=postgresql.dialect())  # type: ignore[no-untyped-call] # SQLAlchemy's own


def _real_columns(conn: Connection, table: str) -> dict[str, tuple[str, bool]]:
    return {c["name"]: (_text(c["type"]), c["nullable"]) for c in inspect(conn).get_columns(table)}


async def test_every_table_has_exactly_the_columns_of_the_migrated_one(database: Database) -> None:
    engine = create_async_engine(database.owner.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with engine.connect() as conn:
            assert {tables.jobs, inventory_tables.assets} <= set(metadata.sorted_tables)
            for name, table in metadata.tables.items():
                real = await conn.run_sync(_real_columns, name)
                assert real == {c.name: (_text(c.type), c.nullable) for c in table.columns}, name
    finally:
        await engine.dispose()


async def test_json_goes_through_raw_and_core_alike(settings: Settings) -> None:
    engine = open_engine(settings.database_api_url, size=1)
    value = {"a": [1, None, "ä"], "b": {"c": True}}
    try:
        async with workspace_transaction(engine, uuid4()) as conn:
            assert await driver(conn).fetchval("SELECT $1::jsonb", value) == value
            assert await driver(conn).fetchval("SELECT $1::json", value) == value
            core = await conn.exec_driver_sql("SELECT $1::jsonb", (value,))
            assert core.scalar_one() == value
    finally:
        await engine.dispose()


async def test_error_in_the_block_rolls_everything_back(settings: Settings) -> None:
    engine = open_engine(settings.database_api_url, size=1)

    async def fail() -> None:
        async with workspace_transaction(engine, uuid4()) as conn:
            await driver(conn).execute("CREATE TEMPORARY TABLE left_behind ()")
            raise ZeroDivisionError

    try:
        with pytest.raises(ZeroDivisionError):
            await fail()
        async with workspace_transaction(engine, uuid4()) as conn:
            assert await driver(conn).fetchval("SELECT to_regclass('left_behind')") is None
    finally:
        await engine.dispose()


async def test_database_that_is_away_is_unavailable(settings: Settings) -> None:
    engine = open_engine("postgresql://nobody@127.0.0.1:1/none", size=1)
    try:
        with pytest.raises(Unavailable):
            async with workspace_transaction(engine, uuid4()):
                pass
    finally:
        await engine.dispose()


async def test_connection_that_breaks_in_the_block_is_unavailable(settings: Settings) -> None:
    engine = open_engine(settings.database_api_url, size=1)

    async def use_broken() -> None:
        async with workspace_transaction(engine, uuid4()) as conn:
            await driver(conn).close()
            await conn.exec_driver_sql("SELECT 1")

    try:
        with pytest.raises(Unavailable):
            await use_broken()
        async with workspace_transaction(engine, uuid4()) as conn:
            assert await driver(conn).fetchval("SELECT 1") == 1
    finally:
        await engine.dispose()
