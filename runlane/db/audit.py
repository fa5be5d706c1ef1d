"""The audit trail: one row per persisted event, append-only, in the order of the bus."""

from collections.abc import Sequence
from typing import Final

from runlane.db.pool import Connection, encode_json
from runlane.events import EVENT_POLICY, BusEvent, Severity, scrub_data

_APPEND: Final = """
INSERT INTO audit_events
  (workspace_id, event_id, bus_seq, type, subject, actor_id, actor_type, outcome, severity, data, occurred_at)
SELECT e.workspace_id, e.event_id, e.bus_seq, e.type, e.subject, e.actor_id, e.actor_type, e.outcome,
       e.severity, e.data::jsonb, e.occurred_at
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::text[], $11::timestamptz[])
  AS e (workspace_id, event_id, bus_seq, type, subject, actor_id, actor_type, outcome, severity, data,
        occurred_at)
ORDER BY e.bus_seq
ON CONFLICT (event_id) DO NOTHING
"""


async def append(conn: Connection, events: Sequence[BusEvent]) -> None:
    """Writes the rows of these events, in one statement; an event that has its row keeps it.

    Data is scrubbed once more, and says which fields it lost: an entry of the stream may come from something
    else than our producers.
    """
    sent = [event.envelope for event in events]
    await conn.execute(
        _APPEND,
        [e.workspace_id for e in sent],
        [e.id for e in sent],
        [event.sequence for event in events],
        [e.type for e in sent],
        [e.subject for e in sent],
        [e.attributes.get("actorid") for e in sent],
        [e.attributes.get("actortype") for e in sent],
        [e.attributes.get("outcome") for e in sent],
        [_severity(event).value for event in events],
        [encode_json(scrub_data(e.data)) for e in sent],
        [event.time for event in events],
    )


def _severity(event: BusEvent) -> Severity:
    policy = EVENT_POLICY.get(event.envelope.type)
    return policy.severity if policy else Severity.NONE
