"""The audit lane: writes each event that the policy persists into the audit trail, strictly in order."""

from collections.abc import Sequence

from runlane.db import audit
from runlane.db.pool import Connection
from runlane.events import EVENT_POLICY, BusEvent, Lane


class AuditSink:
    """Sink of the audit lane. Source: Event bridge, Lanes."""

    lane = Lane.AUDIT
    is_ordered = True
    from_oldest = True

    def accepts(self, event_type: str) -> bool:
        """Whether the policy wants the event kept."""
        policy = EVENT_POLICY.get(event_type)
        return policy is not None and policy.persist

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        """Writes the rows. Harmless to repeat: an event has one row."""
        await audit.append(conn, events)
