"""The log of deliveries, and what a person has sent once more. Rows that have ended are never changed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.calling import call
from runlane.db.engine import driver
from runlane.db.integration_secrets import Place
from runlane.db.integration_tables import deliveries
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection, Record
from runlane.errors import Conflict, NotFound
from runlane.integrations import TEST, DeliveryState

MOST_REPLAYED: Final = 1_000
"""Deliveries of one replay."""

ORDERS: Final[Orders] = {"created_at": (deliveries.c.id,)}

_SHOWN: Final = (
    "id", "integration_id", "event_id", "replay", "type", "subject", "sequence", "events", "state",
    "attempts", "due_at", "status", "error", "ticket", "duration_ms", "created_at", "ended_at",
)  # fmt: skip
_COLUMNS: Final = ", ".join(_SHOWN)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Deliveries of an endpoint that were made since a time. `state` None: whatever became of them."""

    since: datetime
    state: DeliveryState | None
    limit: int = MOST_REPLAYED


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many are to be delivered once more, and whether there are more of that kind."""

    deliveries: int
    has_more: bool


_FIND: Final = f"SELECT {_COLUMNS}, body FROM deliveries WHERE workspace_id = $1 AND id = $2"

_ATTEMPTS: Final = """
SELECT attempt, answer, status, excerpt, error, duration_ms, ended_at FROM delivery_attempts
WHERE workspace_id = $1 AND delivery_id = $2 ORDER BY attempt
"""

_IS_KNOWN: Final = "SELECT EXISTS (SELECT FROM integrations WHERE workspace_id = $1 AND id = $2)"

_HOLD: Final = """
SELECT id, kind, name, status FROM integrations
WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE
"""

_OPEN: Final = f"""
SELECT {_COLUMNS} FROM deliveries WHERE integration_id = $1 AND event_id = $2 AND state = 'pending'
"""

# Numbers of replays are drawn under the lock of the endpoint's row.
_AGAIN: Final = f"""
INSERT INTO deliveries
  (workspace_id, integration_id, event_id, replay, type, subject, sequence, body, digest, events, ticket)
SELECT d.workspace_id, d.integration_id, d.event_id,
  (SELECT max(o.replay) + 1 FROM deliveries o
   WHERE o.integration_id = d.integration_id AND o.event_id = d.event_id),
  d.type, d.subject, d.sequence, d.body, d.digest, d.events, d.ticket
FROM deliveries d WHERE d.id = ANY($1::uuid[])
ORDER BY d.sequence, d.id
RETURNING {_COLUMNS}
"""

# Of each event the latest; one that is still to be delivered is left alone. Index: `deliveries_list`.
_CHOSEN: Final = f"""
SELECT id FROM (
  SELECT DISTINCT ON (d.event_id) d.id, d.event_id, d.state, d.sequence FROM deliveries d
  WHERE d.integration_id = $1 AND d.id >= $5 AND d.created_at >= $2 AND d.type <> '{TEST}'
  ORDER BY d.event_id, d.replay DESC) AS latest
WHERE latest.state <> 'pending' AND ($3::text IS NULL OR latest.state = $3)
ORDER BY latest.sequence, latest.id LIMIT $4
"""

_TEST: Final = f"""
INSERT INTO deliveries (workspace_id, integration_id, event_id, type, subject, sequence, body)
VALUES ($1, $2, $3, '{TEST}', $4, 0, $5)
RETURNING {_COLUMNS}
"""

_UNPAUSE: Final = "UPDATE integrations SET paused_until = NULL, called_for = NULL WHERE id = $1"


async def list_deliveries(conn: AsyncConnection, of: Place, page: PageRequest) -> Page:
    """Deliveries of an endpoint, disconnected or not; the newest first. Index: `deliveries_list`.

    Raises:
        NotFound: `integration.not_found`.
    """
    if not await driver(conn).fetchval(_IS_KNOWN, of.workspace_id, of.integration_id):
        raise NotFound("no such integration", code="integration.not_found")
    statement = select(*(deliveries.c[name] for name in _SHOWN)).where(
        deliveries.c.workspace_id == of.workspace_id, deliveries.c.integration_id == of.integration_id
    )
    return await fetch_page(conn, statement, ORDERS, page)


async def get_delivery(conn: Connection, workspace_id: UUID, delivery_id: UUID) -> dict[str, object]:
    """One delivery, with its body and how each attempt at it went.

    Raises:
        NotFound: `delivery.not_found`.
    """
    row = await conn.fetchrow(_FIND, workspace_id, delivery_id)
    if row is None:
        raise _not_found()
    attempts = await conn.fetch(_ATTEMPTS, workspace_id, delivery_id)
    return {**row, "tries": [dict(each) for each in attempts]}


async def replay(conn: Connection, workspace_id: UUID, delivery_id: UUID, act: Act) -> dict[str, object]:
    """Has an event delivered once more, as another row; the receiver knows it by the same id.

    Repeatable: while it is still to be delivered, that row is the answer.

    Raises:
        NotFound: `delivery.not_found`, `integration.not_found`.
        Conflict: `integration.disabled`.
    """
    row = await conn.fetchrow(_FIND, workspace_id, delivery_id)
    if row is None:
        raise _not_found()
    place = Place(workspace_id, row["integration_id"])
    await _hold(conn, place)
    if open_row := await conn.fetchrow(_OPEN, place.integration_id, row["event_id"]):
        return dict(open_row)
    (again,) = await conn.fetch(_AGAIN, [delivery_id])
    await call(conn, [place.integration_id])
    deed = Deed(
        Action.DELIVERY_REPLAY,
        workspace_id,
        names.integration_subject(place.integration_id),
        ordinal=str(again["id"]),
        value=str(delivery_id),
    )
    await outbox.insert(conn, [acted(act, deed)])
    return dict(again)


async def replay_since(conn: Connection, of: Place, chosen: Chosen, act: Act) -> Replayed:
    """Has what was made since a time delivered once more, the oldest first and so many at most.

    A second call finds what the first one has made still to be delivered, and goes on behind it.

    Raises:
        NotFound: `integration.not_found`.
        Conflict: `integration.disabled`.
    """
    await _hold(conn, of)
    rows = await conn.fetch(
        _CHOSEN, of.integration_id, chosen.since, chosen.state, chosen.limit + 1, _first_id(chosen.since)
    )
    ids = [row["id"] for row in rows[: chosen.limit]]
    if ids:
        await conn.execute(_AGAIN, ids)
        await call(conn, [of.integration_id])
        deed = Deed(
            Action.DELIVERIES_REPLAY,
            of.workspace_id,
            names.integration_subject(of.integration_id),
            ordinal=str(ids[0]),
            value=f"{len(ids)} since {chosen.since.isoformat()}",
        )
        await outbox.insert(conn, [acted(act, deed)])
    return Replayed(len(ids), len(rows) > chosen.limit)


async def send_test(conn: Connection, of: Place) -> dict[str, object]:
    """Has a test sent, which is no event; it does not wait for an endpoint that is left alone for a while.

    Raises:
        NotFound: `integration.not_found`.
        Conflict: `integration.disabled`.
    """
    endpoint = await _hold(conn, of)
    body = {
        "type": TEST,
        "workspaceId": str(of.workspace_id),
        "occurredAt": (await conn.fetchval("SELECT clock_timestamp()")).isoformat(),
        "outcome": "success",
        "actor": None,
        "resourceType": "integration",
        "resourceId": str(of.integration_id),
        "changes": {},
        "metadata": {},
        "payload": {"name": endpoint["name"], "kind": endpoint["kind"]},
    }
    subject = names.integration_subject(of.integration_id)
    (row,) = await conn.fetch(_TEST, of.workspace_id, of.integration_id, uuid4(), subject, body)
    await conn.execute(_UNPAUSE, of.integration_id)
    await call(conn, [of.integration_id])
    return dict(row)


async def _hold(conn: Connection, of: Place) -> Record:
    row = await conn.fetchrow(_HOLD, of.workspace_id, of.integration_id)
    if row is None:
        raise NotFound("no such integration", code="integration.not_found")
    if row["status"] != "active":
        raise Conflict("the integration is disabled: enable it first", code="integration.disabled")
    return row


def _first_id(moment: datetime) -> UUID:
    """The lowest id that a row of that millisecond, or later, can have."""
    return UUID(int=max(int(moment.timestamp() * 1_000), 0) << 80)


def _not_found() -> NotFound:
    return NotFound("no such delivery", code="delivery.not_found")
