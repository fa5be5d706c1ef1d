"""The notifications lane: writes a row for each recipient of an event, or takes it into a digest."""

from collections.abc import Sequence

from runlane.db import notifications
from runlane.db.pool import Connection
from runlane.events import BusEvent, Lane
from runlane.notifications import may_notify


class NotificationSink:
    """Sink of the notifications lane. Source: Event bridge, Lanes."""

    lane = Lane.NOTIFICATIONS
    is_ordered = False
    from_oldest = False

    def accepts(self, event_type: str) -> bool:
        """Whether the policy lets events of this type notify at all; how loud one is, rules judge."""
        return may_notify(event_type)

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        """Writes the rows. An event that comes again is stopped by the inbox, in the same transaction."""
        await notifications.tell(conn, events)
