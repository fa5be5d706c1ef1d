"""The oldest transaction: no row that ended after it began can be removed, so every index keeps its entry."""

from dataclasses import dataclass
from typing import Final

from runlane.db.pool import Connection

_OLDEST: Final = """
SELECT who, extract(epoch FROM clock_timestamp() - began)::float8 AS open_s
FROM (
  SELECT format('%s as %s, pid %s, %s', coalesce(nullif(application_name, ''), '?'), usename, pid, state)
           AS who, xact_start AS began
  FROM pg_stat_activity
  WHERE (datname = current_database() AND backend_type = 'client backend' OR backend_type = 'walsender')
    AND coalesce(backend_xid, backend_xmin) IS NOT NULL AND pid <> pg_backend_pid()
  UNION ALL
  SELECT format('prepared transaction %s of %s', gid, owner), prepared
  FROM pg_prepared_xacts
  WHERE database = current_database()
) AS transactions
WHERE began IS NOT NULL
ORDER BY began
LIMIT 1
"""

_SEES_ALL: Final = "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that keeps dead rows."""

    who: str
    """Program, role and process id, or the name of a prepared transaction."""
    open_s: float


async def oldest_transaction(conn: Connection) -> OpenTransaction | None:
    """The oldest other transaction that the session may see; all of them with `sees_all`."""
    row = await conn.fetchrow(_OLDEST)
    return None if row is None else OpenTransaction(row["who"], row["open_s"])


async def sees_all(conn: Connection) -> bool:
    """Whether the role of a session sees transactions of other roles (`pg_read_all_stats`)."""
    return bool(await conn.fetchval(_SEES_ALL))
