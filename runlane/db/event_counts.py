"""How many events of each type a workspace has had, and how many still wait for the bus."""

from uuid import UUID

from runlane.db.pool import Connection


async def count_events(conn: Connection, workspace_id: UUID) -> dict[str, int]:
    """Events of a workspace that are still in the outbox (7 days), by type."""
    rows = await conn.fetch(
        "SELECT type, count(*) AS number FROM outbox WHERE workspace_id = $1 GROUP BY type ORDER BY type",
        workspace_id,
    )
    return {row["type"]: row["number"] for row in rows}


async def count_unpublished(conn: Connection) -> int:
    """Events of all workspaces that are not on the bus yet: without a number, or behind the last mark."""
    number: int = await conn.fetchval(
        """
        SELECT (SELECT count(*) FROM outbox WHERE bus_seq IS NULL) + last_seq - published_seq FROM bus_state
        """
    )
    return number
