"""Events as people see them: what is on the bus, from the outbox, and what was audited before that.

The outbox keeps every event for 7 days; whatever may have left it is looked for in the audit trail.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from runlane.db.paging import PageRequest
from runlane.db.pool import Connection
from runlane.errors import Invalid, NotFound

_NO_CURSOR: Final = 2**63 - 1

_SINCE: Final = "($4::timestamptz IS NULL OR {column} >= $4) AND ($5::timestamptz IS NULL OR {column} < $5)"
_ABOUT: Final = "($2::text IS NULL OR type = $2) AND ($3::text IS NULL OR subject = $3)"


def _list(workspace: str) -> str:
    """Each half reads its own index backwards from the cursor, and no more than a page of it."""
    return f"""
SELECT * FROM (
  (SELECT bus_seq AS sequence, event_id, workspace_id, type, subject, occurred_at, attributes, data,
     'outbox' AS kept_in
   FROM outbox
   WHERE {workspace} AND bus_seq < $6 AND bus_seq > (SELECT pruned_seq FROM bus_state) AND {_ABOUT}
     AND {_SINCE.format(column="created_at")}
   ORDER BY bus_seq DESC LIMIT $7)
  UNION ALL
  (SELECT bus_seq, event_id, workspace_id, type, subject, occurred_at,
     jsonb_strip_nulls(jsonb_build_object('actorid', actor_id, 'actortype', actor_type, 'outcome', outcome)),
     data, 'audit'
   FROM audit_events
   WHERE {workspace} AND bus_seq < $6 AND bus_seq <= (SELECT pruned_seq FROM bus_state) AND {_ABOUT}
     AND {_SINCE.format(column="occurred_at")}
   ORDER BY bus_seq DESC LIMIT $7)
) AS event
ORDER BY sequence DESC LIMIT $7
"""


LIST: Final = _list("workspace_id = $1")
"""Indexes: outbox_of_workspace, audit_events_bus."""

LIST_ALL: Final = _list("$1::uuid IS NULL")
"""Of all workspaces. Indexes: outbox_bus_seq, audit_events_all."""


@dataclass(frozen=True, slots=True)
class Events:
    """Which events. None: whatever it is."""

    type: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class EventsFound:
    """A page of events, the newest first. `whole_after`: every event behind this place is in the outbox."""

    items: list[dict[str, object]]
    next: str | None
    whole_after: int


async def list_events(
    conn: Connection, workspace_id: UUID | None, which: Events, request: PageRequest
) -> EventsFound:
    """Lists events of a workspace, or (None, for the platform) of all.

    Raises:
        Invalid: `sort.unknown`, there is one order only; `cursor.invalid`.
    """
    if request.sort is not None:
        detail = "events have one order, the newest first"
        raise Invalid(detail, code="sort.unknown", fields={"sort": detail})
    statement = LIST_ALL if workspace_id is None else LIST
    rows = await conn.fetch(
        statement, workspace_id, which.type, which.subject, which.since, which.until,
        _read_cursor(request.after), request.limit + 1,
    )  # fmt: skip
    kept = [dict(row) for row in rows[: request.limit]]
    cursor = str(kept[-1]["sequence"]) if len(rows) > request.limit else None
    whole_after: int = await conn.fetchval("SELECT pruned_seq FROM bus_state")
    return EventsFound(kept, cursor, whole_after)


async def get_event(conn: Connection, workspace_id: UUID, sequence: int) -> dict[str, object]:
    """Reads the event at a place on the bus.

    Raises:
        NotFound: `event.not_found`: there is none, it is another workspace's, or it is not kept any more.
    """
    rows = await conn.fetch(LIST, workspace_id, None, None, None, None, sequence + 1, 1)
    if not rows or rows[0]["sequence"] != sequence:
        raise NotFound("no such event", code="event.not_found")
    return dict(rows[0])


def _read_cursor(after: str | None) -> int:
    if after is None:
        return _NO_CURSOR
    if not (after.isascii() and after.isdigit() and int(after) <= _NO_CURSOR):
        detail = "after must be the cursor that the page before gave"
        raise Invalid(detail, code="cursor.invalid", fields={"after": detail})
    return int(after)
