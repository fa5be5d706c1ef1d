"""Rotation of a scan worker's credential: the host gets a new token over its own channel.

`rotation_asked_at` and the age of the token say that a new one is due; the worker hears it in the answer to
its heartbeat. What it is given is `next_digest` until the host uses it, so an answer that was lost costs
nothing: the old token is good, and is asked with again. The first call with the new one replaces the old,
which opens what it had opened for `OVERLAP_S` more and nothing new: no join, no other token.
Functions never commit: the caller's transaction decides.
"""

from datetime import datetime
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.keys import digest
from runlane.db.pool import Connection
from runlane.db.workers import Presented, Worker, WorkerStatus, new_token
from runlane.errors import Conflict, NotFound, Unauthenticated
from runlane.events import EVENT_CATALOG, envelope
from runlane.events.payloads import WorkerCredentialRotated

OVERLAP_S: Final = 120.0
"""Longer than a poll at the gateway (75 s), so that no open call is cut by a rotation."""

_IS_DUE: Final = """
(rotation_asked_at IS NOT NULL
 OR ({days} > 0 AND token_issued_at < clock_timestamp() - make_interval(days => {days})))
"""

_ASK = """
UPDATE workers SET rotation_asked_at = clock_timestamp()
WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND deleted_at IS NULL AND status <> 'revoked'
  AND rotation_asked_at IS NULL
RETURNING rotation_asked_at
"""

_FIND = """
SELECT status, rotation_asked_at FROM workers
WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND deleted_at IS NULL
"""

_IS_DUE_FOR = f"SELECT {_IS_DUE.format(days='$2::int')} FROM workers WHERE id = $1"

_ISSUE = f"""
UPDATE workers SET next_digest = $2
WHERE id = $1 AND incarnation = $3 AND status <> 'revoked' AND {_IS_DUE.format(days="$4::int")}
RETURNING id
"""

_REPLACE = f"""
WITH changed AS (
  UPDATE workers
  SET token_digest = next_digest, next_digest = NULL, previous_digest = token_digest,
      previous_until = clock_timestamp() + make_interval(secs => $3),
      token_issued_at = clock_timestamp(), rotation_asked_at = NULL
  WHERE id = $1 AND next_digest = $2 AND status <> 'revoked'
  RETURNING id, old.rotation_asked_at IS NOT NULL AS was_asked, token_issued_at
)
SELECT was_asked, token_issued_at, pg_notify('{names.WORKERS_CHANNEL}', id::text) FROM changed
"""


async def ask_rotation(conn: Connection, workspace_id: UUID | None, worker_id: UUID, act: Act) -> datetime:
    """Asks a worker for a new credential; returns since when it is asked. Repeated, it changes nothing.

    `workspace_id` None: a shared worker. One that is away is asked when it is back.

    Raises:
        NotFound: `worker.not_found`.
        Conflict: `worker.revoked`, it has no credential any more.
    """
    asked_at: datetime | None = await conn.fetchval(_ASK, worker_id, workspace_id)
    if asked_at is not None:
        if workspace_id is not None:  # what belongs to no workspace is not on the bus
            deed = Deed(
                Action.WORKER_ROTATE, workspace_id, names.worker_subject(worker_id), asked_at.isoformat()
            )
            await outbox.insert(conn, [acted(act, deed)])
        return asked_at
    row = await conn.fetchrow(_FIND, worker_id, workspace_id)
    if row is None:
        raise NotFound("no such worker", code="worker.not_found")
    if row["status"] == WorkerStatus.REVOKED:
        raise Conflict("the worker was revoked", code="worker.revoked")
    since: datetime = row["rotation_asked_at"]
    return since


async def is_rotation_due(conn: Connection, worker_id: UUID, most_days: int) -> bool:
    """Whether a worker is to get a new token: asked for, or `most_days` old (0: no age is too high)."""
    return bool(await conn.fetchval(_IS_DUE_FOR, worker_id, most_days))


async def issue_token(conn: Connection, worker: Worker, pepper: bytes, most_days: int) -> str:
    """Makes a new token of a worker, which replaces the old one when it is first used.

    A repeated call makes another one, and only the last is good.

    Raises:
        Unauthenticated: `worker.token`, the one that was presented has been replaced.
        Conflict: `worker.rotation_not_due`, or the life is over.
    """
    require_newest(worker)
    token = new_token(worker.worker_id)
    issued = await conn.fetchval(
        _ISSUE, worker.worker_id, digest(token, pepper), worker.require_incarnation(), most_days
    )
    if issued is None:
        raise Conflict("nobody has asked for a new credential", code=names.ROTATION_NOT_DUE_CODE)
    return token


async def replace_token(conn: Connection, worker: Worker, presented: str, pepper: bytes) -> None:
    """Makes the token that was issued, and is now presented, the current one; a lost race changes nothing."""
    row = await conn.fetchrow(_REPLACE, worker.worker_id, digest(presented, pepper), OVERLAP_S)
    if row is None or worker.workspace_id is None:
        return
    payload = WorkerCredentialRotated(
        worker_id=worker.worker_id, name=worker.name, cause="asked" if row["was_asked"] else "age"
    )
    event = envelope(
        EVENT_CATALOG.worker.credential_rotated,
        payload,
        workspace_id=worker.workspace_id,
        subject=worker.subject,
        ordinal=row["token_issued_at"].isoformat(),
    )
    await outbox.insert(conn, [event])


def require_newest(worker: Worker) -> None:
    """Passes unless the token that was presented has been replaced: it begins nothing any more.

    Raises:
        Unauthenticated: `worker.token`.
    """
    if worker.presented is Presented.PREVIOUS:
        raise Unauthenticated("the worker token has been replaced", code=names.WORKER_TOKEN_CODE)
