"""What is to be delivered: one row for each endpoint and event that it asks for, or one that counts many.

Written by the lane in the transaction of its turn; nothing is sent here. The endpoints are locked first, so
that none is switched off between being seen and being given a row, and no digest is sent while it still
counts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias
from uuid import UUID

from runlane.db.calling import call
from runlane.db.pool import Connection, Record, encode_json
from runlane.integrations import (
    DIGEST_ABOVE,
    DIGEST_WINDOW,
    TICKETS,
    Kind,
    fits,
    is_for,
    severities_from,
)

DIGEST_MARGIN: Final = timedelta(seconds=5)
"""A digest is sent so long after its window has closed."""

DISABLED: Final = "the integration was disabled"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An event as endpoints get it. `is_caused`: one act has set off many of them."""

    workspace_id: UUID
    event_id: UUID
    type: str
    subject: str
    sequence: int
    severity: str
    run_id: UUID | None
    is_caused: bool
    body: Mapping[str, object]


_Group: TypeAlias = tuple[UUID, str, UUID | None]
"""Workspace, type and run: what is told as one when there is too much of it."""


@dataclass(slots=True)
class _Row:
    """A delivery to be written. `digest`: the window that it counts in, and when that began."""

    endpoint: Record
    event: Outgoing
    digest: str | None = None
    began_at: datetime | None = None
    events: int = 1


_ENDPOINTS: Final = """
SELECT id, workspace_id, kind, events, least_severity, status FROM integrations
WHERE workspace_id = ANY($1::uuid[]) AND deleted_at IS NULL
ORDER BY id FOR NO KEY UPDATE
"""

_COUNT: Final = """
INSERT INTO delivery_windows AS w (workspace_id, type, run_id, began_at, events)
SELECT g.workspace_id, g.type, g.run_id, clock_timestamp(), g.events
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::int[]) AS g (workspace_id, type, run_id, events)
ORDER BY g.workspace_id, g.type, g.run_id
ON CONFLICT (workspace_id, type, run_id) DO UPDATE SET
  began_at = CASE WHEN w.began_at > excluded.began_at - $5::interval THEN w.began_at
                  ELSE excluded.began_at END,
  events = excluded.events + CASE WHEN w.began_at > excluded.began_at - $5::interval THEN w.events ELSE 0 END
RETURNING workspace_id, type, run_id, began_at, events
"""

_WRITE: Final = """
INSERT INTO deliveries
  (workspace_id, integration_id, event_id, type, subject, sequence, body, digest, events, due_at, state,
   ended_at, error)
SELECT r.workspace_id, r.integration_id, r.event_id, r.type, r.subject, r.sequence, r.body::jsonb, r.digest,
  r.events, coalesce(r.due_at, clock_timestamp()), CASE WHEN r.is_on THEN 'pending' ELSE 'skipped' END,
  CASE WHEN NOT r.is_on THEN clock_timestamp() END, CASE WHEN NOT r.is_on THEN $12::text END
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[],
            $9::int[], $10::timestamptz[], $11::boolean[])
  AS r (workspace_id, integration_id, event_id, type, subject, sequence, body, digest, events, due_at, is_on)
"""

_WRITE_EACH: Final = f"{_WRITE} ON CONFLICT (integration_id, event_id, replay) DO NOTHING"

_WRITE_DIGESTS: Final = f"""
{_WRITE}
ON CONFLICT (integration_id, digest) WHERE digest IS NOT NULL AND replay = 0
DO UPDATE SET events = deliveries.events + excluded.events
"""


async def write(conn: Connection, events: Sequence[Outgoing]) -> int:
    """Writes what endpoints get of these events, in their order, and calls for what is due; returns the rows.

    An event that comes again has its row already; the lane's inbox lets none count twice in a digest.
    """
    endpoints = await conn.fetch(_ENDPOINTS, list({event.workspace_id for event in events}))
    heard = [event for event in events if any(_wants(endpoint, event) for endpoint in endpoints)]
    if not heard:
        return 0
    windows = await _count(conn, heard)
    rows = _rows(endpoints, heard, windows)
    each = [row for row in rows if row.digest is None]
    digests = [row for row in rows if row.digest is not None]
    for statement, chosen in ((_WRITE_EACH, each), (_WRITE_DIGESTS, digests)):
        if chosen:
            await conn.execute(statement, *_columns(chosen), DISABLED)
    await call(conn, sorted({row.endpoint["id"] for row in rows}))
    return len(rows)


@dataclass(slots=True)
class _Window:
    """How many events of a group came before those of this turn, and since when."""

    began_at: datetime
    before: int


async def _count(conn: Connection, events: Sequence[Outgoing]) -> dict[_Group, _Window]:
    came = Counter(_group(event) for event in events)
    columns = [list(column) for column in zip(*came, strict=True)]
    rows = await conn.fetch(_COUNT, *columns, list(came.values()), DIGEST_WINDOW)
    found = {(row["workspace_id"], row["type"], row["run_id"]): row for row in rows}
    return {group: _Window(row["began_at"], row["events"] - came[group]) for group, row in found.items()}


def _rows(
    endpoints: Sequence[Record], events: Sequence[Outgoing], windows: Mapping[_Group, _Window]
) -> list[_Row]:
    rows: list[_Row] = []
    digests: dict[tuple[UUID, str], _Row] = {}
    for event in events:
        window = windows[_group(event)]
        window.before += 1
        is_alone = not event.is_caused and window.before <= DIGEST_ABOVE
        for endpoint in endpoints:
            if not _wants(endpoint, event):
                continue
            if is_alone or Kind(endpoint["kind"]) in TICKETS:  # a ticket is about one finding
                rows.append(_Row(endpoint, event))
                continue
            name = f"{event.type}/{event.run_id}/{window.began_at.isoformat()}"
            if known := digests.get((endpoint["id"], name)):
                known.events += 1
                continue
            digests[endpoint["id"], name] = row = _Row(endpoint, event, name, window.began_at)
            rows.append(row)
    return rows


def _wants(endpoint: Record, event: Outgoing) -> bool:
    if endpoint["workspace_id"] != event.workspace_id or not is_for(Kind(endpoint["kind"]), event.type):
        return False
    if event.severity not in severities_from(endpoint["least_severity"]):
        return False
    return not endpoint["events"] or any(fits(entry, event.type) for entry in endpoint["events"])


def _group(event: Outgoing) -> _Group:
    return event.workspace_id, event.type, event.run_id


def _columns(rows: Sequence[_Row]) -> tuple[list[object], ...]:
    after = DIGEST_WINDOW + DIGEST_MARGIN
    return (
        [row.event.workspace_id for row in rows],
        [row.endpoint["id"] for row in rows],
        [row.event.event_id for row in rows],
        [row.event.type for row in rows],
        [row.event.subject for row in rows],
        [row.event.sequence for row in rows],
        [encode_json(row.event.body) for row in rows],
        [row.digest for row in rows],
        [row.events for row in rows],
        [row.began_at + after if row.began_at else None for row in rows],
        [row.endpoint["status"] == "active" for row in rows],
    )
