"""Revoking a scan worker: its credential is good for nothing any more, from this moment and for good."""

from uuid import UUID

import orjson

from runlane import names
from runlane.db import nudges, outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.pool import Connection
from runlane.errors import NotFound

_REVOKE = """
UPDATE workers SET status = 'revoked', stream_seen_at = NULL
WHERE id = $1 AND status <> 'revoked' AND deleted_at IS NULL
RETURNING workspace_id
"""

_IS_KNOWN = "SELECT 1 FROM workers WHERE id = $1 AND deleted_at IS NULL"


async def revoke_worker(conn: Connection, worker_id: UUID, act: Act) -> bool:
    """Revokes a worker, ends its control stream and its polls, and has its jobs looked after.

    False if it was revoked before: then nothing happens. Call it inside a transaction.

    Raises:
        NotFound: `worker.not_found`.
    """
    row = await conn.fetchrow(_REVOKE, worker_id)
    if row is None:
        if not await conn.fetchval(_IS_KNOWN, worker_id):
            raise NotFound("no such worker", code="worker.not_found")
        return False
    notice = orjson.dumps({"kind": "revoked", "worker": str(worker_id)}).decode()
    await conn.execute("SELECT pg_notify($1, $2)", names.CONTROL_CHANNEL, notice)
    await conn.execute("SELECT pg_notify($1, $2)", names.WORKERS_CHANNEL, str(worker_id))
    await nudges.nudge_for_worker(conn, worker_id)
    if row["workspace_id"] is not None:  # what belongs to no workspace is not on the bus
        deed = Deed(Action.WORKER_REVOKE, row["workspace_id"], names.worker_subject(worker_id))
        await outbox.insert(conn, [acted(act, deed)])
    return True
