"""Limits of a workspace and of tool sets everywhere."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path

from api.action_schemas import Why
from api.deps import ForPlatform, ReadRuns, WriteRuns, no_query
from api.limit_schemas import Limits, LimitSet, NewLimit, NewToolsetLimit
from api.problems import problems
from runlane.db import limit_rules
from runlane.db.engine import driver
from runlane.errors import NotFound

router = APIRouter(tags=["limits"])

LimitId = Annotated[UUID, Path(description="id of a limit")]


@router.get("/limits", dependencies=[Depends(no_query)])
async def index(access: ReadRuns) -> Limits:
    """Lists the limits that count in the workspace, those of tool sets everywhere included."""
    found = await limit_rules.list_limits(driver(access.conn), access.workspace_id)
    return Limits.model_validate({"items": found})


@router.put("/limits", dependencies=[Depends(no_query)])
async def put(access: WriteRuns, body: NewLimit) -> LimitSet:
    """Limits the workspace, or one tool set in it, from the next dispatch and claim on."""
    wanted = limit_rules.NewLimit(access.workspace_id, body.toolset, body.max_in_progress, body.per_minute)
    row = await limit_rules.set_limit(driver(access.conn), wanted, access.act(body.reason))
    return LimitSet.model_validate(row)


@router.post("/limits/{limit_id}/remove", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def remove(access: WriteRuns, limit_id: LimitId, body: Why | None = None) -> LimitSet:
    """Removes a limit of the workspace."""
    act = access.act(body.reason if body else None)
    row = await limit_rules.remove_limit(driver(access.conn), access.workspace_id, limit_id, act)
    return LimitSet.model_validate(row)


@router.get("/platform/limits", dependencies=[Depends(no_query)])
async def platform_index(access: ForPlatform) -> Limits:
    """Lists the limits of tool sets everywhere; needs a platform key."""
    return Limits.model_validate({"items": await limit_rules.list_limits(access.conn, None)})


@router.put("/platform/limits", dependencies=[Depends(no_query)])
async def platform_put(access: ForPlatform, body: NewToolsetLimit) -> LimitSet:
    """Limits a tool set in all workspaces together. Needs a platform key."""
    wanted = limit_rules.NewLimit(None, body.toolset, body.max_in_progress, body.per_minute)
    return LimitSet.model_validate(await limit_rules.set_limit(access.conn, wanted, access.act(body.reason)))


@router.post(
    "/platform/limits/{limit_id}/remove", dependencies=[Depends(no_query)], responses=problems(NotFound)
)
async def platform_remove(access: ForPlatform, limit_id: LimitId, body: Why | None = None) -> LimitSet:
    """Removes a limit of a tool set everywhere. Needs a platform key."""
    act = access.act(body.reason if body else None)
    return LimitSet.model_validate(await limit_rules.remove_limit(access.conn, None, limit_id, act))
