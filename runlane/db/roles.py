"""What a session is on which server: for those who examine an installation."""

from dataclasses import dataclass
from typing import Final

from runlane.db.pool import Connection

_DESCRIBE: Final = """
SELECT current_setting('server_version_num')::int / 10000 AS major, version() AS version,
       rolsuper OR rolbypassrls AS may_bypass
FROM pg_roles
WHERE rolname = current_user
"""


@dataclass(frozen=True, slots=True)
class Role:
    """The role of a session and the server that it is on."""

    server_major: int
    server_version: str
    """Name and number, such as `PostgreSQL 18.1`."""
    may_bypass: bool
    """Whether row-level security does not bind it."""


async def describe_role(conn: Connection) -> Role:
    """Says as whom and where a connection is."""
    (row,) = await conn.fetch(_DESCRIBE)
    return Role(row["major"], row["version"].partition(" on ")[0], row["may_bypass"])
