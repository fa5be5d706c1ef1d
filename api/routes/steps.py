"""Steps of runs: what people do to them."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path

from api.action_schemas import NewPriority, Prioritised, StepCancelled, Why
from api.deps import WriteRuns, no_query
from api.problems import problems
from runlane.db import priorities
from runlane.db.acts import StepOfRun
from runlane.db.cancel import cancel_step
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound

router = APIRouter(prefix="/runs/{run_id}/steps/{step_id}", tags=["steps"])

RunId = Annotated[UUID, Path(description="id of a run")]
StepId = Annotated[str, Path(max_length=64, pattern=r"^[a-z0-9_-]+$", description="id of a step")]


@router.post("/cancel", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def cancel(access: WriteRuns, run_id: RunId, step_id: StepId, body: Why | None = None) -> StepCancelled:
    """Cancels a step and its jobs that have not ended. Steps that need it are skipped, others go on."""
    act = access.act(body.reason if body else None)
    done = await cancel_step(driver(access.conn), StepOfRun(access.workspace_id, run_id, step_id), act)
    return StepCancelled(run_id=run_id, step_id=step_id, jobs=done.jobs)


@router.post("/priority", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def prioritise(access: WriteRuns, run_id: RunId, step_id: StepId, body: NewPriority) -> Prioritised:
    """Gives a step a priority, and its jobs that have not ended or are still to come."""
    step = StepOfRun(access.workspace_id, run_id, step_id)
    done = await priorities.prioritise_step(driver(access.conn), step, body.priority, access.act(body.reason))
    return Prioritised(run_id=run_id, priority=body.priority, jobs=done.jobs, moved=done.moved)
