"""Dead letters as lanes write them: what was given up, what is to be handled once more, what goes.

The row is the truth, written in the transaction in which the lane goes on; the dead-letter stream has a copy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.pool import Connection
from runlane.events import EVENT_CATALOG, Actor, envelope
from runlane.events.payloads import DeadLetterCreated, DeadLetterRedriven

RETENTION: Final = timedelta(days=30)
"""How long a letter is kept after it was given up, or redriven."""

CAP: Final = 10_000
"""Letters of one workspace that are kept; the oldest go first."""

OWN_DOMAIN: Final = "dead_letter."
"""Events about dead letters: that one of them was given up is no event itself, or it would never end."""


class LetterStatus(StrEnum):
    """What is to become of a letter."""

    OPEN = "open"
    ASKED = "asked"
    """Somebody has asked that its lane handles it once more."""
    REDRIVEN = "redriven"
    PURGING = "purging"
    """It is no letter any more: the lane removes it, and its copy on the stream."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How the attempts at an event ended. `error` is scrubbed and bounded; `first_at` None: now."""

    attempts: int
    error: str
    first_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An event that its lane gives up. `entry_id` None: it was read from the outbox."""

    lane: str
    workspace_id: UUID
    event_id: UUID
    sequence: int
    type: str
    subject: str
    fields: Mapping[str, str]
    entry_id: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A letter that its lane is to handle once more."""

    id: UUID
    workspace_id: UUID
    event_id: UUID
    sequence: int
    type: str
    fields: dict[str, str]
    asked_by: str | None


@dataclass(frozen=True, slots=True)
class Purged:
    """A letter that is gone. Without a workspace it is that of an entry."""

    workspace_id: UUID | None
    event_id: UUID | None
    entry_id: str | None


# A workspace that is gone takes no letter: there is nobody who could read it.
_WRITE: Final = """
INSERT INTO dead_letters
  (workspace_id, lane, event_id, bus_seq, type, subject, entry_id, fields, attempts, error, first_failed_at)
SELECT w.id, $2, $3, $4, $5, $6, $7, $8, $9, $10, coalesce($11, clock_timestamp())
FROM workspaces w WHERE w.id = $1
ON CONFLICT (lane, event_id) WHERE workspace_id IS NOT NULL DO NOTHING
RETURNING id
"""

_WRITE_ENTRY: Final = """
INSERT INTO dead_letters (lane, type, entry_id, fields, attempts, error, first_failed_at)
VALUES ($1, $2, $3, $4, 0, $5, clock_timestamp())
ON CONFLICT (entry_id) WHERE workspace_id IS NULL DO NOTHING
"""

_NEXT_ASKED: Final = f"""
SELECT id, workspace_id, event_id, bus_seq, type, fields, asked_by FROM dead_letters
WHERE lane = $1 AND status = '{LetterStatus.ASKED}'
ORDER BY bus_seq LIMIT 1 FOR UPDATE SKIP LOCKED
"""

_FINISH: Final = f"""
UPDATE dead_letters SET redrives = redrives + 1, redrive_error = $3,
  redriven_at = CASE WHEN $3::text IS NULL THEN clock_timestamp() END,
  status = CASE WHEN $3::text IS NULL THEN '{LetterStatus.REDRIVEN}' ELSE '{LetterStatus.OPEN}' END
WHERE id = $1 AND workspace_id = $2 AND status = '{LetterStatus.ASKED}'
RETURNING redrives
"""

_DROP_PURGED: Final = f"""
DELETE FROM dead_letters WHERE id IN (
  SELECT id FROM dead_letters WHERE lane = $1 AND status = '{LetterStatus.PURGING}'
  LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING workspace_id, event_id, entry_id
"""

_PRUNE: Final = """
DELETE FROM dead_letters WHERE id IN (
  SELECT id FROM (
    SELECT id, coalesce(redriven_at, created_at) AS kept_from,
      row_number() OVER (PARTITION BY workspace_id ORDER BY created_at DESC, id DESC) AS place
    FROM dead_letters
  ) AS letter
  WHERE kept_from < clock_timestamp() - $1::interval OR place > $2
  LIMIT $3
)
"""


async def write(conn: Connection, letter: GivenUp, failure: Failure) -> bool:
    """Keeps an event that its lane gives up, and says so by an event. A second call makes no second letter.

    False: its workspace is gone, or the letter is there.
    """
    letter_id: UUID | None = await conn.fetchval(
        _WRITE,
        letter.workspace_id,
        letter.lane,
        letter.event_id,
        letter.sequence,
        letter.type,
        letter.subject,
        letter.entry_id,
        dict(letter.fields),
        failure.attempts,
        failure.error,
        failure.first_at,
    )
    if letter_id is None:
        return False
    if not letter.type.startswith(OWN_DOMAIN):
        payload = DeadLetterCreated(
            letter_id=letter_id,
            lane=letter.lane,
            event_id=letter.event_id,
            event_type=letter.type,
            sequence=letter.sequence,
            attempts=failure.attempts,
            error=failure.error,
        )
        made = envelope(
            EVENT_CATALOG.dead_letter.created,
            payload,
            workspace_id=letter.workspace_id,
            subject=names.dead_letter_subject(letter_id),
        )
        await outbox.insert(conn, [made])
    return True


async def write_entry(
    conn: Connection, lane: str, entry_id: str, fields: Mapping[str, str], fault: str
) -> None:
    """Keeps an entry that belongs to no workspace or no known event: once, whichever lane met it first."""
    await conn.execute(_WRITE_ENTRY, lane, fields.get("type"), entry_id, dict(fields), fault)


async def next_asked(conn: Connection, lane: str) -> Asked | None:
    """Locks the oldest letter of a lane that is to be handled once more. Index: dead_letters_asked."""
    row = await conn.fetchrow(_NEXT_ASKED, lane)
    return None if row is None else Asked(*row.values())


async def finish(conn: Connection, lane: str, letter: Asked, error: str | None) -> None:
    """Notes what became of a letter that was handled once more, and says so by an audited event."""
    redrives = await conn.fetchval(_FINISH, letter.id, letter.workspace_id, error)
    if redrives is None:
        return
    payload = DeadLetterRedriven(
        letter_id=letter.id,
        lane=lane,
        event_id=letter.event_id,
        event_type=letter.type,
        sequence=letter.sequence,
        has_succeeded=error is None,
        error=error,
    )
    made = envelope(
        EVENT_CATALOG.dead_letter.redriven,
        payload,
        workspace_id=letter.workspace_id,
        subject=names.dead_letter_subject(letter.id),
        ordinal=redrives,
        actor=Actor(letter.asked_by, "api_key") if letter.asked_by else None,
    )
    await outbox.insert(conn, [made])


async def drop_purged(conn: Connection, lane: str, limit: int) -> Sequence[Purged]:
    """Deletes letters of a lane that somebody has purged; answers which, for the stream to follow."""
    return [Purged(*row.values()) for row in await conn.fetch(_DROP_PURGED, lane, limit)]


async def prune(conn: Connection, limit: int) -> int:
    """Deletes up to `limit` letters that are past their retention or beyond the cap; returns how many."""
    status = await conn.execute(_PRUNE, RETENTION, CAP, limit)
    return int(status.rpartition(" ")[2])
