"""The integrations lane: writes down what is to be delivered to endpoints outside. It sends nothing."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from runlane.db import deliveries
from runlane.db.deliveries import Outgoing
from runlane.db.pool import Connection
from runlane.events import BusEvent, Lane
from runlane.events.outbound import outbound_body
from runlane.integrations import may_leave, severity_of


class IntegrationsSink:
    """Sink of the integrations lane. Source: Event bridge, Lanes."""

    lane = Lane.INTEGRATIONS
    is_ordered = False
    from_oldest = False

    def accepts(self, event_type: str) -> bool:
        """Whether events of this type may leave the platform; what deliveries cause never does."""
        return may_leave(event_type)

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        """Writes the rows. Harmless to repeat: an endpoint has one row of an event."""
        await deliveries.write(conn, [_outgoing(event) for event in events])


def _outgoing(event: BusEvent) -> Outgoing:
    sent = event.envelope
    return Outgoing(
        workspace_id=sent.workspace_id,
        event_id=sent.id,
        type=sent.type,
        subject=sent.subject,
        sequence=event.sequence,
        severity=severity_of(sent.type, sent.data),
        run_id=_run_of(sent.data),
        is_caused="cause" in sent.attributes,
        body=outbound_body(event),
    )


def _run_of(data: Mapping[str, object]) -> UUID | None:
    try:
        return UUID(str(data["run_id"]))
    except (KeyError, ValueError):
        return None
