"""Scan workers, as people see them."""

from fastapi import APIRouter

from api.deps import Paging, ReadWorkers
from api.schemas import PageOf, Worker
from runlane.db.queries import list_workers

router = APIRouter(prefix="/workers", tags=["workers"])


@router.get("")
async def index(access: ReadWorkers, query: Paging) -> PageOf[Worker]:
    """Lists the workspace's own scan workers; sorts by `joined_at` or `name`."""
    page = await list_workers(access.conn, access.workspace_id, query.page)
    return PageOf[Worker].model_validate(page, from_attributes=True)
