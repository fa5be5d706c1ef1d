"""Pauses of a workspace and of everything. A run is paused and resumed under its own address."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path

from api.action_schemas import Pause, Pauses, PauseToolset, Why
from api.deps import ForPlatform, ReadRuns, WriteRuns, no_query
from api.problems import problems
from runlane.db import pauses
from runlane.db.engine import driver
from runlane.db.pauses import NewPause
from runlane.errors import NotFound

router = APIRouter(tags=["pauses"])

PauseId = Annotated[UUID, Path(description="id of a pause")]


@router.get("/pauses", dependencies=[Depends(no_query)])
async def index(access: ReadRuns) -> Pauses:
    """Lists the pauses in force, those of everything included."""
    found = await pauses.active(driver(access.conn), access.workspace_id)
    return Pauses.model_validate({"items": found})


@router.post("/pauses", dependencies=[Depends(no_query)])
async def pause(access: WriteRuns, body: PauseToolset | None = None) -> Pause:
    """Stops dispatch of the workspace, or of one of its tool sets; what runs is finished."""
    body = body or PauseToolset()
    wanted = NewPause(access.workspace_id, toolset=body.toolset)
    done = await pauses.pause(driver(access.conn), wanted, access.act(body.reason))
    return Pause.model_validate(done.row)


@router.post("/pauses/{pause_id}/lift", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def lift(access: WriteRuns, pause_id: PauseId, body: Why | None = None) -> Pause:
    """Lets dispatch go on, unless another pause still stops it."""
    act = access.act(body.reason if body else None)
    done = await pauses.lift(driver(access.conn), access.workspace_id, pause_id, act)
    return Pause.model_validate(done.row)


@router.get("/platform/pauses", dependencies=[Depends(no_query)])
async def platform_index(access: ForPlatform) -> Pauses:
    """Lists the pauses of everything; needs a platform key."""
    return Pauses.model_validate({"items": await pauses.active(access.conn, None)})


@router.post("/platform/pauses", dependencies=[Depends(no_query)])
async def platform_pause(access: ForPlatform, body: Why | None = None) -> Pause:
    """Stops dispatch in every workspace, for maintenance; what runs is finished. Needs a platform key."""
    done = await pauses.pause(access.conn, NewPause(None), access.act(body.reason if body else None))
    return Pause.model_validate(done.row)


@router.post(
    "/platform/pauses/{pause_id}/lift", dependencies=[Depends(no_query)], responses=problems(NotFound)
)
async def platform_lift(access: ForPlatform, pause_id: PauseId, body: Why | None = None) -> Pause:
    """Ends the maintenance. Needs a platform key."""
    act = access.act(body.reason if body else None)
    done = await pauses.lift(access.conn, None, pause_id, act)
    return Pause.model_validate(done.row)
