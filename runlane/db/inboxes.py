"""What a recipient reads of notifications, and marks as read. Each sees those of its own name only."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection
from runlane.db.tables import notifications

MOST_COUNTED: Final = 10_000
"""Unread ones that are counted; there may be more."""

ORDERS: Final[Orders] = {
    "created_at": (notifications.c.id,),
    "updated_at": (notifications.c.updated_at, notifications.c.id),
}

_COUNT: Final = """
SELECT count(*)::int FROM (
  SELECT FROM notifications WHERE workspace_id = $1 AND recipient = $2 AND read_at IS NULL LIMIT $3
) unread
"""

_READ: Final = """
UPDATE notifications SET read_at = clock_timestamp()
WHERE workspace_id = $1 AND recipient = $2 AND read_at IS NULL
  AND ($3::uuid[] IS NULL OR id = ANY($3)) AND ($4::uuid IS NULL OR id <= $4)
"""

_UNREAD: Final = """
UPDATE notifications SET read_at = NULL
WHERE workspace_id = $1 AND recipient = $2 AND read_at IS NOT NULL
  AND ($3::uuid[] IS NULL OR id = ANY($3)) AND ($4::uuid IS NULL OR id <= $4)
"""


async def list_inbox(
    conn: AsyncConnection, workspace_id: UUID, recipient: str, page: PageRequest, *, only_unread: bool
) -> Page:
    """One page of a recipient's notifications. Indexes: notifications_list, notifications_unread."""
    statement = select(notifications).where(
        notifications.c.workspace_id == workspace_id, notifications.c.recipient == recipient
    )
    if only_unread:
        statement = statement.where(notifications.c.read_at.is_(None))
    return await fetch_page(conn, statement, ORDERS, page)


async def count_unread(conn: Connection, workspace_id: UUID, recipient: str) -> int:
    """How many are unread, `MOST_COUNTED` at most. Index: notifications_unread."""
    return int(await conn.fetchval(_COUNT, workspace_id, recipient, MOST_COUNTED))


async def mark(
    conn: Connection,
    whose: tuple[UUID, str],
    ids: Sequence[UUID] | None,
    up_to: UUID | None,
    *,
    is_read: bool,
) -> int:
    """Marks these, or all, as read or unread; returns how many that changed. Repeated, it changes nothing.

    `whose`: workspace and recipient. `up_to`: none that is newer, so that nothing unseen is marked as read.
    """
    status = await conn.execute(_READ if is_read else _UNREAD, *whose, ids, up_to)
    return int(status.rpartition(" ")[2])
