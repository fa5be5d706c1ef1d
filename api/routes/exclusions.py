"""What is never scanned: in a workspace, and anywhere."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path

from api.action_schemas import Why
from api.deps import ForPlatform, ReadRuns, WriteRuns, no_query
from api.exclusion_schemas import Exclusion, Exclusions, ExclusionSet, NewExclusion, NewPlatformExclusion
from api.problems import problems
from runlane.db import exclusions
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound

router = APIRouter(tags=["exclusions"])

ExclusionId = Annotated[UUID, Path(description="id of an exclusion")]


@router.get("/exclusions", dependencies=[Depends(no_query)])
async def index(access: ReadRuns) -> Exclusions:
    """Lists what the workspace does not scan, the exclusions of the platform included."""
    found = await exclusions.list_exclusions(driver(access.conn), access.workspace_id)
    return Exclusions.model_validate({"items": found})


@router.post("/exclusions", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def create(access: WriteRuns, body: NewExclusion) -> ExclusionSet:
    """Excludes a domain, host, network or port at once. Repeated, it changes nothing.

    Jobs that wait for it are skipped, those in progress are cancelled.
    """
    wanted = exclusions.NewExclusion(access.workspace_id, body.kind, body.value, body.target_id)
    row = await exclusions.add_exclusion(driver(access.conn), wanted, access.act(body.reason))
    return ExclusionSet.model_validate(row)


@router.post(
    "/exclusions/{exclusion_id}/remove", dependencies=[Depends(no_query)], responses=problems(NotFound)
)
async def remove(access: WriteRuns, exclusion_id: ExclusionId, body: Why | None = None) -> Exclusion:
    """Removes an exclusion of the workspace. Jobs that it ended stay ended."""
    act = access.act(body.reason if body else None)
    row = await exclusions.remove_exclusion(driver(access.conn), access.workspace_id, exclusion_id, act)
    return Exclusion.model_validate(row)


@router.get("/platform/exclusions", dependencies=[Depends(no_query)])
async def platform_index(access: ForPlatform) -> Exclusions:
    """Lists what no workspace may scan; needs a platform key."""
    return Exclusions.model_validate({"items": await exclusions.list_exclusions(access.conn, None)})


@router.post("/platform/exclusions", dependencies=[Depends(no_query)], responses=problems(Conflict))
async def platform_create(access: ForPlatform, body: NewPlatformExclusion) -> ExclusionSet:
    """Excludes something in every workspace, as above. Needs a platform key."""
    wanted = exclusions.NewExclusion(None, body.kind, body.value)
    return ExclusionSet.model_validate(
        await exclusions.add_exclusion(access.conn, wanted, access.act(body.reason))
    )


@router.post(
    "/platform/exclusions/{exclusion_id}/remove",
    dependencies=[Depends(no_query)],
    responses=problems(NotFound),
)
async def platform_remove(
    access: ForPlatform, exclusion_id: ExclusionId, body: Why | None = None
) -> Exclusion:
    """Removes an exclusion of the platform. Needs a platform key."""
    act = access.act(body.reason if body else None)
    return Exclusion.model_validate(await exclusions.remove_exclusion(access.conn, None, exclusion_id, act))
