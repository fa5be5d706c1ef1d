"""The projection lane: adds events to the statistics of their day, and marks summaries that they change."""

from collections.abc import Sequence

from runlane.db import statistics, summaries
from runlane.db.pool import Connection
from runlane.events import BusEvent, Lane
from runlane.statistics import READ, count, touched


class ProjectionSink:
    """Sink of the projection lane. Source: Event bridge, Lanes."""

    lane = Lane.PROJECTION
    is_ordered = False
    from_oldest = True

    def accepts(self, event_type: str) -> bool:
        """Whether it changes a statistic or a summary."""
        return event_type in READ

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        """Adds and marks. An event that comes again is stopped by the inbox, in the same transaction."""
        await statistics.add(conn, count(events))
        await summaries.mark(conn, touched(events))
