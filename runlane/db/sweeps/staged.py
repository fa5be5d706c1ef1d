"""Staged results that nobody needs any more: left by a process that died between two of its acts.

A result that an open attempt refers to is live work. One that a merge kept is kept while its attempt is.
Source: Job registry, Retention (staged results).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.pool import Connection
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import JobResultCleaned

_ORPHAN: Final = """
r.created_at < clock_timestamp() - make_interval(days => $2)
AND NOT EXISTS (SELECT FROM job_attempts a WHERE a.result_id = r.id AND (a.ended_at IS NULL OR r.kept))
"""

_FIND: Final = f"SELECT r.id FROM job_results r WHERE r.id > $1 AND {_ORPHAN} ORDER BY r.id LIMIT $3"

_REMOVE: Final = f"""
DELETE FROM job_results r WHERE r.id = ANY($1::uuid[]) AND {_ORPHAN}
RETURNING r.id, r.workspace_id, r.run_id, r.object_key
"""

_UNREFERRED: Final = """
SELECT k FROM unnest($1::text[]) AS k
WHERE NOT EXISTS (SELECT FROM job_results r WHERE r.object_key = k)
  AND NOT EXISTS (SELECT FROM screenshots s WHERE s.object_key = k)
"""


async def find_orphans(conn: Connection, after: UUID, limit: int, days: int) -> list[UUID]:
    """Staged results of so many days ago that no open attempt and no kept failure needs."""
    return [row["id"] for row in await conn.fetch(_FIND, after, days, limit)]


async def remove(conn: Connection, result_ids: Sequence[UUID], days: int) -> list[str]:
    """Deletes orphans and says so; returns one text for each, the key of its object or nothing.

    Objects are deleted after the commit: what is left by a crash in between is an orphan of the bucket.
    """
    rows = await conn.fetch(_REMOVE, result_ids, days)
    await outbox.insert(conn, [_cleaned(row["workspace_id"], str(row["id"]), row["run_id"]) for row in rows])
    return [row["object_key"] or "" for row in rows]


async def unreferred(conn: Connection, keys: Sequence[str]) -> list[str]:
    """Those of the keys to which no row refers."""
    return [row["k"] for row in await conn.fetch(_UNREFERRED, keys)]


async def announce(conn: Connection, workspaces: Mapping[str, UUID]) -> None:
    """Says of objects (key → workspace) that they are removed; repeated, it says the same again."""
    await outbox.insert(conn, [_cleaned(owner, key, None) for key, owner in workspaces.items()])


async def days_ago(conn: Connection, days: int) -> datetime:
    """The moment so many days ago, by the clock of the database."""
    moment: datetime = await conn.fetchval("SELECT clock_timestamp() - make_interval(days => $1)", days)
    return moment


def _cleaned(workspace_id: UUID, result_ref: str, run_id: UUID | None) -> Envelope:
    return envelope(
        EVENT_CATALOG.job.result.cleaned,
        JobResultCleaned(result_ref=result_ref, run_id=run_id),
        workspace_id=workspace_id,
        subject=names.result_subject(result_ref),
    )
