"""The end of a scan worker: its credential is good for nothing any more, and then its row is put away."""

from typing import Final
from uuid import UUID

import orjson

from runlane import names
from runlane.db import nudges, outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.classes import call_stranded
from runlane.db.pool import Connection
from runlane.db.workers import WorkerStatus
from runlane.errors import Conflict, NotFound

_REVOKE: Final = """
UPDATE workers SET status = 'revoked', stream_seen_at = NULL
WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND status <> 'revoked' AND deleted_at IS NULL
RETURNING id
"""

_DELETE: Final = """
UPDATE workers SET deleted_at = clock_timestamp()
WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND status IN ('offline', 'revoked')
  AND deleted_at IS NULL
RETURNING id
"""

_FIND: Final = """
SELECT status, deleted_at FROM workers WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2
"""


async def revoke_worker(conn: Connection, workspace_id: UUID | None, worker_id: UUID, act: Act) -> bool:
    """Revokes a worker, ends its control stream and its polls, and has its jobs looked after.

    Those in its hands, and those that wait on queues that only it served.

    False if it was revoked before: then nothing happens. Call it inside a transaction.

    Raises:
        NotFound: `worker.not_found`.
    """
    if await conn.fetchval(_REVOKE, worker_id, workspace_id) is None:
        row = await conn.fetchrow(_FIND, worker_id, workspace_id)
        if row is None or row["deleted_at"] is not None:
            raise _not_found()
        return False
    notice = orjson.dumps({"kind": "revoked", "worker": str(worker_id)}).decode()
    await conn.execute("SELECT pg_notify($1, $2)", names.CONTROL_CHANNEL, notice)
    await conn.execute("SELECT pg_notify($1, $2)", names.WORKERS_CHANNEL, str(worker_id))
    await nudges.nudge_for_worker(conn, worker_id)
    await call_stranded(conn, [worker_id])
    await _say(conn, Action.WORKER_REVOKE, workspace_id, worker_id, act)
    return True


async def delete_worker(conn: Connection, workspace_id: UUID | None, worker_id: UUID, act: Act) -> bool:
    """Puts the row of a worker away that is off line or revoked; attempts go on to refer to it.

    Its token is good for nothing any more. False if it was deleted before: then nothing happens.

    Raises:
        NotFound: `worker.not_found`.
        Conflict: `worker.present`, it is on line: revoke it, or stop it, first.
    """
    if await conn.fetchval(_DELETE, worker_id, workspace_id) is None:
        row = await conn.fetchrow(_FIND, worker_id, workspace_id)
        if row is None:
            raise _not_found()
        if row["deleted_at"] is None:
            raise Conflict("the worker is on line: revoke it, or stop it, first", code="worker.present")
        return False
    await conn.execute("SELECT pg_notify($1, $2)", names.WORKERS_CHANNEL, str(worker_id))
    await nudges.nudge_for_worker(conn, worker_id)
    await _say(conn, Action.WORKER_DELETE, workspace_id, worker_id, act)
    return True


async def require_known(conn: Connection, workspace_id: UUID | None, worker_id: UUID) -> None:
    """Passes if there is such a worker that may still do something.

    Raises:
        NotFound: `worker.not_found`.
        Conflict: `worker.revoked`.
    """
    row = await conn.fetchrow(_FIND, worker_id, workspace_id)
    if row is None or row["deleted_at"] is not None:
        raise _not_found()
    if row["status"] == WorkerStatus.REVOKED:
        raise Conflict("the worker was revoked", code="worker.revoked")


async def _say(
    conn: Connection, action: Action, workspace_id: UUID | None, worker_id: UUID, act: Act
) -> None:
    if workspace_id is not None:  # what belongs to no workspace is not on the bus
        deed = Deed(action, workspace_id, names.worker_subject(worker_id))
        await outbox.insert(conn, [acted(act, deed)])


def _not_found() -> NotFound:
    return NotFound("no such worker", code="worker.not_found")
