"""Rates: how much is sent a second to a target, a network, or by the workspace."""

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Depends, Path
from pydantic import Field, model_validator

from api.action_schemas import Why
from api.deps import ForPlatform, ReadRuns, WriteRuns, no_query
from api.problems import problems
from api.schemas import Answer
from runlane.db import rate_rules
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound
from runlane.rates import MAX_RATE

router = APIRouter(tags=["rates"])

RateId = Annotated[UUID, Path(description="id of a rate")]
PerSecond = Annotated[int, Field(ge=1, le=MAX_RATE, description="packets or requests a second")]


class NewPlatformRate(Why):
    """What every single target is sent at most, in all workspaces."""

    per_second: PerSecond


class NewRate(NewPlatformRate):
    """What is sent at most to a target, to a network, or by the whole workspace."""

    target_id: UUID | None = Field(default=None, description="a target; all jobs about it together")
    network_id: UUID | None = Field(default=None, description="an internal network; all jobs in it together")

    @model_validator(mode="after")
    def _is_of_one(self) -> Self:
        if self.target_id and self.network_id:
            raise ValueError("a rate is of a target, of a network, or of the workspace")
        return self


class Rate(Answer):
    """A rate."""

    id: UUID
    workspace_id: UUID | None = Field(description="null: of each target everywhere")
    target_id: UUID | None
    network_id: UUID | None
    per_second: int
    created_by: str | None
    created_at: datetime


class Rates(Answer):
    """Rates that count."""

    items: list[Rate]


@router.get("/rates", dependencies=[Depends(no_query)])
async def index(access: ReadRuns) -> Rates:
    """Lists the rates that count in the workspace, that of the platform included."""
    found = await rate_rules.list_rates(driver(access.conn), access.workspace_id)
    return Rates.model_validate({"items": found})


@router.put("/rates", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def put(access: WriteRuns, body: NewRate) -> Rate:
    """Sets what is sent at most a second, for jobs that are claimed from now on."""
    wanted = rate_rules.NewRate(access.workspace_id, body.per_second, body.target_id, body.network_id)
    row = await rate_rules.set_rate(driver(access.conn), wanted, access.act(body.reason))
    return Rate.model_validate(row)


@router.post("/rates/{rate_id}/remove", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def remove(access: WriteRuns, rate_id: RateId, body: Why | None = None) -> Rate:
    """Removes a rate of the workspace."""
    act = access.act(body.reason if body else None)
    row = await rate_rules.remove_rate(driver(access.conn), access.workspace_id, rate_id, act)
    return Rate.model_validate(row)


@router.get("/platform/rates", dependencies=[Depends(no_query)])
async def platform_index(access: ForPlatform) -> Rates:
    """Shows what every target is sent at most; needs a platform key."""
    return Rates.model_validate({"items": await rate_rules.list_rates(access.conn, None)})


@router.put("/platform/rates", dependencies=[Depends(no_query)])
async def platform_put(access: ForPlatform, body: NewPlatformRate) -> Rate:
    """Sets what every single target is sent at most, which no workspace lifts. Needs a platform key."""
    wanted = rate_rules.NewRate(None, body.per_second)
    return Rate.model_validate(await rate_rules.set_rate(access.conn, wanted, access.act(body.reason)))


@router.post(
    "/platform/rates/{rate_id}/remove", dependencies=[Depends(no_query)], responses=problems(NotFound)
)
async def platform_remove(access: ForPlatform, rate_id: RateId, body: Why | None = None) -> Rate:
    """Removes the rate of the platform. Needs a platform key."""
    act = access.act(body.reason if body else None)
    return Rate.model_validate(await rate_rules.remove_rate(access.conn, None, rate_id, act))
