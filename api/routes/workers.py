"""Scan workers, as people see them."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path

from api.action_schemas import Why
from api.deps import ForPlatform, Paging, ReadWorkers, WriteWorkers, no_query
from api.problems import problems
from api.schemas import PageOf, Worker, WorkerDetail, WorkerRotation
from runlane.db.credentials import ask_rotation
from runlane.db.engine import driver
from runlane.db.queries import get_worker, list_workers
from runlane.errors import Conflict, NotFound

router = APIRouter(tags=["workers"])

WorkerId = Annotated[UUID, Path(description="id of a worker")]


@router.get("/workers")
async def index(access: ReadWorkers, query: Paging) -> PageOf[Worker]:
    """Lists the workspace's own scan workers; sorts by `joined_at` or `name`."""
    page = await list_workers(access.conn, access.workspace_id, query.page)
    return PageOf[Worker].model_validate(page, from_attributes=True)


@router.get("/workers/{worker_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadWorkers, worker_id: WorkerId) -> WorkerDetail:
    """Shows one scan worker and how many jobs it has in progress. One that was deleted is shown as well."""
    return WorkerDetail.model_validate(await get_worker(access.conn, access.workspace_id, worker_id))


@router.post(
    "/workers/{worker_id}/rotate",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict),
)
async def rotate(access: WriteWorkers, worker_id: WorkerId, body: Why | None = None) -> WorkerRotation:
    """Has a worker take a new credential within seconds, or when it is back. Repeated, it changes nothing."""
    act = access.act(body.reason if body else None)
    asked_at = await ask_rotation(driver(access.conn), access.workspace_id, worker_id, act)
    return WorkerRotation(worker_id=worker_id, rotation_asked_at=asked_at)


@router.post(
    "/platform/workers/{worker_id}/rotate",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict),
)
async def rotate_shared(access: ForPlatform, worker_id: WorkerId, body: Why | None = None) -> WorkerRotation:
    """The same of a shared worker; needs a platform key."""
    asked_at = await ask_rotation(access.conn, None, worker_id, access.act(body.reason if body else None))
    return WorkerRotation(worker_id=worker_id, rotation_asked_at=asked_at)
