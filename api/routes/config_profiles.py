"""Profiles of options: a step takes those of its `config_profile`."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path
from pydantic import Field

from api.action_schemas import StepName, Why
from api.deps import Paging, ReadRuns, WriteRuns, no_query
from api.problems import problems
from api.schemas import Answer, JsonObject, PageOf, Printable
from runlane.db import config_profiles
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound

router = APIRouter(prefix="/config-profiles", tags=["definitions"])

ProfileId = Annotated[UUID, Path(description="id of a profile")]
ProfileName = Annotated[Printable, Field(min_length=1, max_length=100)]


class NewProfile(Why):
    """Options of a tool under a name."""

    tool: StepName = Field(description="name of a tool")
    name: ProfileName
    options: JsonObject = Field(description="as in `config` of a step; a credential as `{secret_ref: name}`")


class Profile(Answer):
    """A profile."""

    id: UUID
    tool_id: str
    name: str
    options: JsonObject
    created_at: datetime


@router.put("", dependencies=[Depends(no_query)], responses=problems(Conflict))
async def save(access: WriteRuns, body: NewProfile) -> Profile:
    """Saves options under a tool and a name; runs that have begun keep what they began with."""
    wanted = config_profiles.NewProfile(access.workspace_id, body.tool, body.name, body.options)
    row = await config_profiles.save_profile(driver(access.conn), wanted, access.act(body.reason))
    return Profile.model_validate(row)


@router.get("")
async def index(access: ReadRuns, query: Paging) -> PageOf[Profile]:
    """Lists profiles; sorts by `created_at`, `name` or `tool`."""
    page = await config_profiles.list_profiles(access.conn, access.workspace_id, query.page)
    return PageOf[Profile].model_validate(page, from_attributes=True)


@router.post("/{profile_id}/delete", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def delete(access: WriteRuns, profile_id: ProfileId, body: Why | None = None) -> Profile:
    """Deletes a profile; a later start that names it is refused."""
    act = access.act(body.reason if body else None)
    row = await config_profiles.delete_profile(driver(access.conn), access.workspace_id, profile_id, act)
    return Profile.model_validate(row)
