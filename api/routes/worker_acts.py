"""What people do to scan workers, beside the new credential: drain, undo that, revoke, delete. Repeatable.

Each exists twice: for a worker of the workspace, and with a platform key for a shared one.
"""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Path

from api.action_schemas import Why
from api.deps import ForPlatform, WriteWorkers, no_query
from api.problems import problems
from api.schemas import WorkerActed
from runlane.db.draining import drain_worker, undrain_worker
from runlane.db.engine import driver
from runlane.db.revoking import delete_worker, revoke_worker
from runlane.errors import Conflict, NotFound

router = APIRouter(tags=["workers"], dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))

OWN: Final = "/workers/{worker_id}"
SHARED: Final = "/platform/workers/{worker_id}"

WorkerId = Annotated[UUID, Path(description="id of a worker")]


@router.post(f"{OWN}/drain")
async def drain(access: WriteWorkers, worker_id: WorkerId, body: Why | None = None) -> WorkerActed:
    """Has a worker finish what it has and take nothing new, until that is undone."""
    act = access.act(_reason(body))
    changed = await drain_worker(driver(access.conn), access.workspace_id, worker_id, act)
    return WorkerActed(worker_id=worker_id, changed=changed)


@router.post(f"{SHARED}/drain")
async def drain_shared(access: ForPlatform, worker_id: WorkerId, body: Why | None = None) -> WorkerActed:
    """The same of a shared worker; needs a platform key."""
    changed = await drain_worker(access.conn, None, worker_id, access.act(_reason(body)))
    return WorkerActed(worker_id=worker_id, changed=changed)


@router.post(f"{OWN}/undrain")
async def undrain(access: WriteWorkers, worker_id: WorkerId, body: Why | None = None) -> WorkerActed:
    """Has a drained worker take jobs again."""
    act = access.act(_reason(body))
    changed = await undrain_worker(driver(access.conn), access.workspace_id, worker_id, act)
    return WorkerActed(worker_id=worker_id, changed=changed)


@router.post(f"{SHARED}/undrain")
async def undrain_shared(access: ForPlatform, worker_id: WorkerId, body: Why | None = None) -> WorkerActed:
    """The same of a shared worker; needs a platform key."""
    changed = await undrain_worker(access.conn, None, worker_id, access.act(_reason(body)))
    return WorkerActed(worker_id=worker_id, changed=changed)


@router.post(f"{OWN}/revoke")
async def revoke(access: WriteWorkers, worker_id: WorkerId, body: Why | None = None) -> WorkerActed:
    """Makes a worker's credential worthless, for good. Its jobs go to others."""
    act = access.act(_reason(body))
    changed = await revoke_worker(driver(access.conn), access.workspace_id, worker_id, act)
    return WorkerActed(worker_id=worker_id, changed=changed)


@router.post(f"{SHARED}/revoke")
async def revoke_shared(access: ForPlatform, worker_id: WorkerId, body: Why | None = None) -> WorkerActed:
    """The same of a shared worker; needs a platform key."""
    changed = await revoke_worker(access.conn, None, worker_id, access.act(_reason(body)))
    return WorkerActed(worker_id=worker_id, changed=changed)


@router.post(f"{OWN}/delete")
async def delete(access: WriteWorkers, worker_id: WorkerId, body: Why | None = None) -> WorkerActed:
    """Puts a worker away that is off line or revoked; attempts go on to refer to it."""
    act = access.act(_reason(body))
    changed = await delete_worker(driver(access.conn), access.workspace_id, worker_id, act)
    return WorkerActed(worker_id=worker_id, changed=changed)


@router.post(f"{SHARED}/delete")
async def delete_shared(access: ForPlatform, worker_id: WorkerId, body: Why | None = None) -> WorkerActed:
    """The same of a shared worker; needs a platform key."""
    changed = await delete_worker(access.conn, None, worker_id, access.act(_reason(body)))
    return WorkerActed(worker_id=worker_id, changed=changed)


def _reason(body: Why | None) -> str | None:
    return body.reason if body else None
