"""Alembic environment: one async connection as the owner role, `RUNLANE_DATABASE_URL`."""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

LOCK_TIMEOUT = "5s"
"""A migration that cannot get its lock gives up instead of queueing everybody behind it."""


def _url() -> str:
    url = context.config.attributes.get("url") or os.environ["RUNLANE_DATABASE_URL"]
    return str(url).replace("postgresql://", "postgresql+asyncpg://", 1)


def _run(connection: Connection) -> None:
    connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.commit()
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


async def _main() -> None:
    engine = create_async_engine(_url())
    async with engine.connect() as connection:
        await connection.run_sync(_run)
    await engine.dispose()


asyncio.run(_main())
