"""Runs hand-written SQL inside a migration's transaction."""

from typing import Any

from alembic import op


def execute(sql: str) -> None:
    """Runs one or more statements by the simple protocol, in the migration's own transaction."""
    bind = op.get_bind()
    if bind.dialect.driver == "asyncpg" and not op.get_context().as_sql:
        driver: Any = bind.connection.dbapi_connection  # SQLAlchemy types it as any DBAPI connection
        driver.run_async(lambda connection: connection.execute(sql))
    else:
        op.execute(sql)
