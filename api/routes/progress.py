"""How far runs are."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path

from api.deps import Opened, ReadRuns, no_query
from api.problems import problems
from api.view_schemas import RunProgress
from runlane.db.views.runs import progress_of
from runlane.errors import NotFound

router = APIRouter(prefix="/runs", tags=["runs"])

RunId = Annotated[UUID, Path(description="id of a run")]


@router.get("/{run_id}/progress", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadRuns, opened: Opened, run_id: RunId) -> RunProgress:
    """Counts the jobs of a run by step and status, and estimates when each step and the run ends."""
    found = await progress_of(access.conn, access.workspace_id, run_id, opened.tallies)
    return RunProgress.model_validate(found, from_attributes=True)
