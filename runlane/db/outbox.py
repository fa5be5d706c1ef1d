"""The outbox: the log of all events, of which the stream is a window.

One row per event, written in the transaction of its cause, scrubbed. `bus_seq` is its place on the bus, given
later by the one leading relay. Functions never commit; the caller's transaction decides.
"""

from collections.abc import Sequence
from typing import Final

from runlane import names
from runlane.db.pool import Connection, encode_json
from runlane.events import Envelope, require_publishable

PARTITION_DAYS_AHEAD: Final = 7
"""Daily partitions that exist in advance."""

_INSERT: Final = """
WITH written AS (
  INSERT INTO outbox (workspace_id, event_id, type, subject, attributes, data)
  SELECT e.workspace_id, e.event_id, e.type, e.subject, e.attributes::jsonb, e.data::jsonb
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[])
    WITH ORDINALITY AS e (workspace_id, event_id, type, subject, attributes, data, ordinal)
  ORDER BY e.ordinal
)
SELECT pg_notify($7, '')
"""


async def insert(conn: Connection, envelopes: Sequence[Envelope]) -> None:
    """Writes events, in this order, and wakes the relay at commit. Call it after the row locks of the cause.

    One statement. A repeated transaction writes the same event ids again; what keeps events single is the
    conditional update of their cause in the same transaction.

    Raises:
        UnknownEvent: a type is not in the catalog, or reserved.
    """
    if not envelopes:
        return
    for name in {e.type for e in envelopes}:
        require_publishable(name)
    await conn.execute(
        _INSERT,
        [e.workspace_id for e in envelopes],
        [e.id for e in envelopes],
        [e.type for e in envelopes],
        [e.subject for e in envelopes],
        [encode_json(e.attributes) if e.attributes else "{}" for e in envelopes],
        [encode_json(e.data) for e in envelopes],
        names.OUTBOX_CHANNEL,
    )
