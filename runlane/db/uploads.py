"""Places in the bucket that scan workers were given for results that are too large for a call.

A place is for one body: its size is in the signature of the URL, its hash is compared when it is merged.
What was uploaded and never staged is removed when the URL has expired; until then it counts against the
worker, so that a host cannot fill the bucket.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection
from runlane.db.staging import ObjectRef
from runlane.db.sweeps.staged import unreferred
from runlane.errors import Unavailable

MOST_OUTSTANDING: Final = 64
"""Places of one worker that nothing was staged from; a worker has as many batches at once, or fewer."""

MOST_OUTSTANDING_BYTES: Final = 2 * 1024**3
"""Their bodies together."""

_LATE: Final = timedelta(minutes=5)
"""A body may be on its way while its URL expires."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a worker wants to upload."""

    worker_id: UUID
    workspace_id: UUID
    dispatch_id: UUID
    size_bytes: int
    sha256: bytes


_LOCK = "SELECT 1 FROM workers WHERE id = $1 FOR NO KEY UPDATE"

_AGAIN = """
UPDATE uploads SET expires_at = clock_timestamp() + $5::interval
WHERE worker_id = $1 AND dispatch_id = $2 AND sha256 = $3 AND size_bytes = $4 AND staged_at IS NULL
RETURNING object_key
"""

_OUTSTANDING = """
SELECT count(*) AS places, coalesce(sum(size_bytes), 0)::bigint AS size_bytes
FROM uploads WHERE worker_id = $1 AND staged_at IS NULL
"""

_RESERVE = """
INSERT INTO uploads (workspace_id, worker_id, dispatch_id, object_key, size_bytes, sha256, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7::interval)
"""

_HOLD = """
SELECT id FROM uploads WHERE object_key = $1 AND worker_id = $2 AND size_bytes = $3 AND sha256 = $4
FOR NO KEY UPDATE
"""

_NOTE_STAGED = """
UPDATE uploads SET staged_at = clock_timestamp() WHERE object_key = $1 AND staged_at IS NULL
"""

_FIND_EXPIRED = """
SELECT id FROM uploads WHERE id > $1 AND expires_at < clock_timestamp() - $2::interval ORDER BY id LIMIT $3
"""

_FORGET = """
DELETE FROM uploads WHERE id = ANY($1::uuid[]) AND expires_at < clock_timestamp() - $2::interval
RETURNING object_key
"""


async def reserve(conn: Connection, wanted: Wanted, fresh_key: str, expiry: timedelta) -> str:
    """Gives a worker a place, for as long as its URL is good; the key of it. Call it inside a transaction.

    Asked again for the same body before it was staged, it is the same place for longer.

    Raises:
        Unavailable: `upload.too_many`, the worker has uploaded enough of which nothing was staged.
    """
    await conn.execute(_LOCK, wanted.worker_id)
    key: str | None = await conn.fetchval(
        _AGAIN, wanted.worker_id, wanted.dispatch_id, wanted.sha256, wanted.size_bytes, expiry
    )
    if key is not None:
        return key
    held = await conn.fetchrow(_OUTSTANDING, wanted.worker_id)
    if held is not None and (
        held["places"] >= MOST_OUTSTANDING or held["size_bytes"] + wanted.size_bytes > MOST_OUTSTANDING_BYTES
    ):
        raise Unavailable("too much was uploaded and not staged", code="upload.too_many")
    await conn.execute(
        _RESERVE,
        wanted.workspace_id,
        wanted.worker_id,
        wanted.dispatch_id,
        fresh_key,
        wanted.size_bytes,
        wanted.sha256,
        expiry,
    )
    return fresh_key


async def hold(conn: Connection, worker_id: UUID, ref: ObjectRef) -> bool:
    """Whether this worker was given this place for this body; it stays until the transaction has ended."""
    return await conn.fetchval(_HOLD, ref.key, worker_id, ref.size_bytes, ref.sha256) is not None


async def note_staged(conn: Connection, ref: ObjectRef) -> None:
    """Notes that a result refers to what lies there, so that it no longer counts. Repeatable."""
    await conn.execute(_NOTE_STAGED, ref.key)


async def find_expired(conn: Connection, after: UUID, limit: int) -> list[UUID]:
    """Places whose URLs have expired. The table is as small as its rows are short-lived."""
    return [row["id"] for row in await conn.fetch(_FIND_EXPIRED, after, _LATE, limit)]


async def forget(conn: Connection, upload_ids: Sequence[UUID]) -> list[str]:
    """Forgets expired places; returns the keys of those that no staged result refers to.

    Their objects are deleted after the commit: one that is left by a crash in between is an orphan of the
    bucket. A body that was uploaded once more after its merge is among them.
    """
    rows = await conn.fetch(_FORGET, list(upload_ids), _LATE)
    return await unreferred(conn, [row["object_key"] for row in rows])
