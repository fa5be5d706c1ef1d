"""Drain: a person has a scan worker finish what it has and take nothing new, until it is undone.

It is a mark on the worker's row, not on one life of its process: a host that is started again meanwhile
still takes nothing. Its control stream stays open, and the gateway holds its polls.
"""

from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.classes import call_blocked, call_stranded
from runlane.db.pool import Connection
from runlane.db.revoking import require_known

_DRAIN: Final = """
UPDATE workers
SET drained_at = clock_timestamp(), status = CASE WHEN status = 'online' THEN 'draining' ELSE status END
WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND deleted_at IS NULL AND status <> 'revoked'
  AND drained_at IS NULL
RETURNING clock_timestamp() AS moment
"""

# A process that is about to end says so again with its next heartbeat.
_UNDRAIN: Final = """
UPDATE workers
SET drained_at = NULL, status = CASE WHEN status = 'draining' THEN 'online' ELSE status END
WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND deleted_at IS NULL AND status <> 'revoked'
  AND drained_at IS NOT NULL
RETURNING clock_timestamp() AS moment
"""


async def drain_worker(conn: Connection, workspace_id: UUID | None, worker_id: UUID, act: Act) -> bool:
    """Drains a worker of a workspace (None: a shared one); False if it was drained before.

    Workflows whose batches wait on queues that only it served are asked to look.

    Raises:
        NotFound: `worker.not_found`.
        Conflict: `worker.revoked`.
    """
    moment = await conn.fetchval(_DRAIN, worker_id, workspace_id)
    if moment is None:
        await require_known(conn, workspace_id, worker_id)
        return False
    await _tell(conn, worker_id)
    await call_stranded(conn, [worker_id])
    await _say(conn, Action.WORKER_DRAIN, (workspace_id, worker_id, moment.isoformat()), act)
    return True


async def undrain_worker(conn: Connection, workspace_id: UUID | None, worker_id: UUID, act: Act) -> bool:
    """Has a drained worker take jobs again; False if it was not drained. Runs that wait are asked to look.

    Raises:
        NotFound: `worker.not_found`.
        Conflict: `worker.revoked`.
    """
    moment = await conn.fetchval(_UNDRAIN, worker_id, workspace_id)
    if moment is None:
        await require_known(conn, workspace_id, worker_id)
        return False
    await _tell(conn, worker_id)
    await call_blocked(conn, [worker_id])
    await _say(conn, Action.WORKER_UNDRAIN, (workspace_id, worker_id, moment.isoformat()), act)
    return True


async def _tell(conn: Connection, worker_id: UUID) -> None:
    await conn.execute("SELECT pg_notify($1, $2)", names.WORKERS_CHANNEL, str(worker_id))


async def _say(conn: Connection, action: Action, what: tuple[UUID | None, UUID, str], act: Act) -> None:
    workspace_id, worker_id, moment = what
    if workspace_id is not None:  # what belongs to no workspace is not on the bus
        deed = Deed(action, workspace_id, names.worker_subject(worker_id), ordinal=moment)
        await outbox.insert(conn, [acted(act, deed)])
