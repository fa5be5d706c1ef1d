"""The outbox: the log of all events, of which the stream is a window.

One row per event, written in the transaction of its cause, scrubbed. `bus_seq` is its place on the bus, given
later by the one leading relay. Functions never commit; the caller's transaction decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.locks import RELAY_TURN, try_lock
from runlane.db.pool import Connection, Record, encode_json
from runlane.db.publish_counts import COUNTS
from runlane.errors import UnknownEvent
from runlane.events import BusEvent, Envelope, require_publishable

PARTITION_DAYS_AHEAD: Final = 7
"""Daily partitions that exist in advance."""

INSERT_CHUNK: Final = 1_000
"""Events of one insert."""

LANE_DEAD_AFTER: Final = timedelta(minutes=10)
"""A lane without a sign of life for this long is not waited for; it heals from the outbox later."""

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

    A statement for each chunk: a merge of many records or the cancel of a large run neither holds up its
    process nor meets the limit of a statement's time. A repeated transaction writes the same event ids again;
    what keeps events single is the conditional update of their cause in the same transaction.

    Raises:
        UnknownEvent: a type is not in the catalog, or reserved; it is counted and logged as a producer's bug.
    """
    for name in {e.type for e in envelopes}:
        _require_publishable(name)
    for start in range(0, len(envelopes), INSERT_CHUNK):
        await _insert(conn, envelopes[start : start + INSERT_CHUNK])


def _require_publishable(name: str) -> None:
    try:
        require_publishable(name)
    except UnknownEvent as error:
        COUNTS.note_refused(name, error.detail)
        raise


async def _insert(conn: Connection, envelopes: Sequence[Envelope]) -> None:
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


@dataclass(frozen=True, slots=True)
class Bus:
    """The bus as the database knows it.

    `last_seq`: newest number given out. `slowest`: checkpoint of the slowest live lane, None without one.
    `oldest_unpublished`: lowest number not yet marked as published. `has_more`: events wait for a number.
    `oldest_running`: lowest id of a transaction that may still write; `next_transaction`: of none so far.
    """

    last_seq: int
    slowest: int | None
    oldest_unpublished: int | None
    has_more: bool
    oldest_running: int
    next_transaction: int


@dataclass(frozen=True, slots=True)
class Sequenced:
    """Events that were just given the numbers after `before`, in order. `last_id`: of the last one's row."""

    before: int
    events: list[BusEvent]
    last_id: int


@dataclass(slots=True)
class Bound:
    """Up to which id every event has its number, so that no look for more begins before it.

    Rows that had no number when some open transaction began to read are kept for it, and each look from the
    beginning would pass all of them. The bound rises to an id that was numbered once whoever may still commit
    a lower one has ended, and a look that began after that has left none. An id is drawn by a transaction
    that is known to run, since it has locked or written the cause; an event without a cause may be drawn an
    instant before, which is why all is forgotten from time to time.
    """

    last_id: int = 0
    _seen: int = 0
    _next: int = 0
    _ended_from: int | None = None
    _is_over: bool = False

    def note_look(self, bus: Bus) -> None:
        """Compares who ran when ids were seen with who runs now."""
        if self._ended_from is None and self._seen > self.last_id:
            self._next, self._ended_from = self._seen, bus.next_transaction
        self._is_over = self._ended_from is not None and bus.oldest_running >= self._ended_from
        if not bus.has_more:
            self._rise()

    def note_numbers(self, sequenced: Sequenced, limit: int) -> None:
        """Follows the numbers that were given after that look."""
        self._seen = max(self._seen, sequenced.last_id)
        if len(sequenced.events) < limit or sequenced.last_id > self._next:
            self._rise()

    def forget(self) -> None:
        """Makes the next looks begin at the beginning."""
        self.last_id, self._ended_from, self._is_over = 0, None, False

    def _rise(self) -> None:
        if self._is_over:
            self.last_id, self._ended_from, self._is_over = self._next, None, False


_COLUMNS: Final = "bus_seq, event_id, type, workspace_id, subject, data, attributes, occurred_at"

_BUS: Final = """
SELECT last_seq,
  (SELECT min(c.last_seq) FROM lane_checkpoints c
   WHERE c.live_at > clock_timestamp() - $1::interval) AS slowest,
  CASE WHEN published_seq < last_seq THEN published_seq + 1 END AS oldest_unpublished,
  EXISTS (SELECT 1 FROM outbox o WHERE o.bus_seq IS NULL AND o.id > $2) AS has_more,
  pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest_running,
  pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_transaction
FROM bus_state
"""

_SEQUENCE: Final = f"""
WITH next AS (
  SELECT created_at, id FROM outbox WHERE bus_seq IS NULL AND id > $3 ORDER BY id LIMIT $1
), numbered AS (
  SELECT created_at, id, $2::bigint + row_number() OVER (ORDER BY id) AS number FROM next
)
UPDATE outbox SET bus_seq = n.number FROM numbered n
WHERE outbox.created_at = n.created_at AND outbox.id = n.id
RETURNING {_COLUMNS}, outbox.id AS row_id
"""

_BETWEEN: Final = f"""
SELECT {_COLUMNS} FROM outbox WHERE bus_seq BETWEEN $1 AND $2 ORDER BY bus_seq LIMIT $3
"""


async def bus(conn: Connection, after_id: int = 0) -> Bus:
    """Reads the counter, the slowest live lane and what is left to publish, behind an id."""
    (row,) = await conn.fetch(_BUS, LANE_DEAD_AFTER, after_id)
    return Bus(*row.values())


async def sequence(conn: Connection, limit: int, after_id: int = 0) -> Sequenced | None:
    """Gives the next places on the bus to up to `limit` events behind an id, in the order of theirs.

    Needs a transaction of its own: places are taken for good at commit, and a rollback leaves no hole.
    None: another relay is doing just that.
    """
    if not await try_lock(conn, RELAY_TURN):
        return None
    before: int = await conn.fetchval("SELECT last_seq FROM bus_state FOR UPDATE")
    # a statement of its own: its snapshot must be younger than the lock
    rows = await conn.fetch(_SEQUENCE, limit, before, after_id)
    if rows:
        await conn.execute(
            "UPDATE bus_state SET last_seq = $1, updated_at = clock_timestamp()", before + len(rows)
        )
    events = sorted((_event(row) for row in rows), key=lambda event: event.sequence)
    return Sequenced(before, events, max((row["row_id"] for row in rows), default=0))


async def read(conn: Connection, first: int, last: int, limit: int) -> list[BusEvent]:
    """Up to `limit` events from `first` to `last` (both included) in order. Index: outbox_bus_seq."""
    return [_event(row) for row in await conn.fetch(_BETWEEN, first, last, limit)]


async def event_id_at(conn: Connection, number: int) -> UUID | None:
    """Id of the event at a place on the bus, None when its row is gone."""
    found: UUID | None = await conn.fetchval("SELECT event_id FROM outbox WHERE bus_seq = $1", number)
    return found


async def mark_published(conn: Connection, last: int) -> None:
    """Notes that every event up to `last` is on the stream: one number, no row is touched. Repeatable."""
    await conn.execute(
        "UPDATE bus_state SET published_seq = $1, updated_at = clock_timestamp() WHERE published_seq < $1",
        last,
    )


async def begin_epoch(conn: Connection, base: int) -> int:
    """Notes that the stream was begun anew with number `base`; returns the epoch, 1 for the very first."""
    epoch: int = await conn.fetchval(
        "UPDATE bus_state SET epoch = epoch + 1, base_seq = $1, updated_at = clock_timestamp()"
        " RETURNING epoch",
        base,
    )
    return epoch


async def ensure_partitions(conn: Connection) -> int:
    """Makes the daily partitions that are missing from today on; returns how many it made."""
    made: int = await conn.fetchval("SELECT runlane_ensure_outbox_partitions($1)", PARTITION_DAYS_AHEAD)
    return made


def _event(row: Record) -> BusEvent:
    sent = Envelope(
        id=row["event_id"],
        type=row["type"],
        workspace_id=row["workspace_id"],
        subject=row["subject"],
        data=row["data"],
        attributes=row["attributes"],
    )
    return BusEvent(sent, row["bus_seq"], row["occurred_at"])
