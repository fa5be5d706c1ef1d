"""Operations: acts on many jobs, with their progress. One begins where its action is."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path

from api.action_schemas import Operation, Why
from api.deps import Paging, ReadJobs, WriteJobs, no_query
from api.problems import problems
from api.schemas import PageOf
from runlane.db import operations
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound

router = APIRouter(prefix="/operations", tags=["operations"])

OperationId = Annotated[UUID, Path(description="id of an operation")]


@router.get("")
async def index(access: ReadJobs, query: Paging) -> PageOf[Operation]:
    """Lists operations; sorts by `created_at`."""
    page = await operations.list_operations(access.conn, access.workspace_id, query.page)
    return PageOf[Operation].model_validate(page, from_attributes=True)


@router.get("/{operation_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadJobs, operation_id: OperationId) -> Operation:
    """Shows one operation and how far it has come."""
    found = await operations.get_operation(driver(access.conn), access.workspace_id, operation_id)
    return Operation.model_validate(found)


@router.post(
    "/{operation_id}/abort", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict)
)
async def abort(access: WriteJobs, operation_id: OperationId, body: Why | None = None) -> Operation:
    """Ends an operation before its time; what it has done stays done."""
    act = access.act(body.reason if body else None)
    done = await operations.abort(driver(access.conn), access.workspace_id, operation_id, act)
    return Operation.model_validate(done)
