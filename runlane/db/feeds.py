"""Feeds: events of the bus and notifications, as rows in the order of a number, for whoever follows them.

A number that is visible stands for all below it: those of the bus are given by one leading relay, those of
notifications by one lane, each under a lock that it holds until its commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

import orjson

from runlane.db.pool import Connection, Record
from runlane.events import Severity
from runlane.notifications import LEVELS, fits, loudness, sentence


@dataclass(frozen=True, slots=True)
class FeedItem:
    """One row of a feed. `recipient`: whom it is for, None: for all of the workspace."""

    position: int
    workspace_id: UUID
    recipient: str | None
    type: str
    severity: Severity
    body: bytes
    """JSON."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a feed has: numbers from `first` on, up to `last`. What lies before may be gone."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one reader follows."""

    workspace_id: UUID
    recipient: str | None = None
    types: tuple[str, ...] = ()
    least: Severity = Severity.NONE

    def takes(self, item: FeedItem) -> bool:
        """Whether an item is for this reader."""
        return (
            item.workspace_id == self.workspace_id
            and item.recipient == self.recipient
            and (not self.types or any(fits(item.type, pattern) for pattern in self.types))
            and LEVELS.index(item.severity) >= LEVELS.index(self.least)
        )


class Feed(Protocol):
    """A feed, read by numbers."""

    @property
    def name(self) -> str:
        """What its items are called in a stream."""

    async def span(self, conn: Connection) -> Span:
        """What it has now, of all workspaces: the connection must see them."""

    async def read(
        self, conn: Connection, first: int, last: int, whose: Wanted | None = None
    ) -> Sequence[FeedItem]:
        """All items from `first` to `last` in order; with `whose`, of its workspace and recipient only."""


_BUS_SPAN: Final = "SELECT pruned_seq + 1 AS first, last_seq AS last FROM bus_state"

_BUS: Final = """
SELECT bus_seq AS position, workspace_id, event_id, type, subject, attributes, data, occurred_at
FROM outbox
WHERE bus_seq BETWEEN $1 AND $2 AND ($3::uuid IS NULL OR workspace_id = $3)
ORDER BY bus_seq
"""

_NOTIFICATIONS_SPAN: Final = """
SELECT coalesce((SELECT seq FROM notifications ORDER BY seq LIMIT 1), 1) AS first,
       coalesce((SELECT seq FROM notifications ORDER BY seq DESC LIMIT 1), 0) AS last
"""

_NOTIFICATIONS: Final = """
SELECT seq AS position, workspace_id, recipient, id, type, severity, subject, run_id, target_id, data,
       is_digest, events, event_ids, occurred_at, created_at, updated_at, read_at
FROM notifications
WHERE seq BETWEEN $1 AND $2 AND ($3::uuid IS NULL OR workspace_id = $3 AND recipient = $4)
ORDER BY seq
"""


class BusFeed:
    """Events of the bus, by their places on it. Index: outbox_bus_seq."""

    name = "event"

    async def span(self, conn: Connection) -> Span:
        """From the oldest that the outbox has to the newest with a place."""
        return await _span(conn, _BUS_SPAN)

    async def read(
        self, conn: Connection, first: int, last: int, whose: Wanted | None = None
    ) -> Sequence[FeedItem]:
        """Events with these places, those of one workspace if asked."""
        workspace_id = whose.workspace_id if whose else None
        return [_event(row) for row in await conn.fetch(_BUS, first, last, workspace_id)]


class NotificationFeed:
    """Notifications, by the numbers of their changes: a digest that grew comes again.

    Index: notifications_changes.
    """

    name = "notification"

    async def span(self, conn: Connection) -> Span:
        """From the oldest that is kept to the newest."""
        return await _span(conn, _NOTIFICATIONS_SPAN)

    async def read(
        self, conn: Connection, first: int, last: int, whose: Wanted | None = None
    ) -> Sequence[FeedItem]:
        """Notifications with these numbers, those of one recipient if asked."""
        of = (whose.workspace_id, whose.recipient) if whose else (None, None)
        return [_notification(row) for row in await conn.fetch(_NOTIFICATIONS, first, last, *of)]


async def _span(conn: Connection, query: str) -> Span:
    (row,) = await conn.fetch(query)
    return Span(*row.values())


def _event(row: Record) -> FeedItem:
    attributes = row["attributes"]
    severity = loudness(row["type"], row["data"])
    body = {
        "id": str(row["event_id"]),
        "type": row["type"],
        "severity": severity,
        "subject": row["subject"],
        "time": row["occurred_at"],
        "actor": attributes.get("actorid"),
        "actor_type": attributes.get("actortype"),
        "cause": attributes.get("cause"),
        "data": row["data"],
    }
    return FeedItem(row["position"], row["workspace_id"], None, row["type"], severity, orjson.dumps(body))


def _notification(row: Record) -> FeedItem:
    hidden = ("position", "workspace_id", "recipient")
    shown = {name: value for name, value in row.items() if name not in hidden}
    shown["text"] = sentence(row["type"], row["events"], row["data"])
    severity = Severity(row["severity"])
    # asyncpg's UUID is a subclass that orjson does not know
    body = orjson.dumps(shown, default=str)
    return FeedItem(row["position"], row["workspace_id"], row["recipient"], row["type"], severity, body)
