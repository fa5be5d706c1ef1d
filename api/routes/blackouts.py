"""Blackout windows: when nothing of the workspace, a target, a group or a tag may begin."""

from datetime import datetime, time
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path
from pydantic import AwareDatetime, Field

from api.action_schemas import Why
from api.deps import ReadRuns, WriteRuns, no_query
from api.problems import problems
from api.schemas import Answer, GroupRef, Printable, Request, TagName
from runlane.blackouts import Once, Policy, Weekly
from runlane.db import blackouts
from runlane.db.engine import driver
from runlane.errors import Conflict, Invalid, NotFound

router = APIRouter(prefix="/blackouts", tags=["blackouts"])

WindowId = Annotated[UUID, Path(description="id of a window")]


class WeeklyWindow(Request):
    """A window that opens every week."""

    weekdays: list[int] = Field(max_length=7, description="days on which it opens; 1 is Monday")
    begins: time = Field(description="time of day in its zone, such as 22:00")
    ends: time = Field(description="when not later than `begins`: of the next day")
    time_zone: Annotated[Printable, Field(max_length=64)] = "UTC"


class NewWindow(Why):
    """A window: absolute or weekly."""

    starts_at: AwareDatetime | None = None
    ends_at: AwareDatetime | None = None
    weekly: WeeklyWindow | None = None
    target_id: UUID | None = Field(default=None, description="only for jobs of this target")
    group: GroupRef | None = Field(default=None, description="only for targets of this group: its name or id")
    tag: TagName | None = Field(default=None, description="only for targets with this tag")
    policy: Policy = Field(
        default=Policy.FINISH, description="of what runs when it opens; cancel: it runs again afterwards"
    )


class Window(Answer):
    """A window."""

    id: UUID
    target_id: UUID | None
    group_id: UUID | None
    tag: str | None
    policy: Policy
    starts_at: datetime | None
    ends_at: datetime | None
    weekdays: list[int] | None
    begins: time | None
    ends: time | None
    time_zone: str | None
    reason: str | None
    created_by: str | None
    created_at: datetime


class Windows(Answer):
    """Windows of the workspace."""

    items: list[Window]


@router.get("", dependencies=[Depends(no_query)])
async def index(access: ReadRuns) -> Windows:
    """Lists the blackout windows of the workspace."""
    found = await blackouts.list_windows(driver(access.conn), access.workspace_id)
    return Windows.model_validate({"items": found})


@router.post("", status_code=201, dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def create(access: WriteRuns, body: NewWindow) -> Window:
    """Adds a window. While it is open, jobs that it covers wait; what runs is finished or given back."""
    about = (body.target_id, body.group, body.tag)
    wanted = blackouts.NewWindow(access.workspace_id, _when(body), *about, body.policy)
    row = await blackouts.add_window(driver(access.conn), wanted, access.act(body.reason))
    return Window.model_validate(row)


@router.post("/{window_id}/remove", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def remove(access: WriteRuns, window_id: WindowId, body: Why | None = None) -> Window:
    """Removes a window; jobs that it held go on at once."""
    act = access.act(body.reason if body else None)
    row = await blackouts.remove_window(driver(access.conn), access.workspace_id, window_id, act)
    return Window.model_validate(row)


def _when(body: NewWindow) -> Weekly | Once:
    weekly, starts_at, ends_at = body.weekly, body.starts_at, body.ends_at
    if weekly is not None and starts_at is None and ends_at is None:
        begins, ends = weekly.begins.replace(tzinfo=None), weekly.ends.replace(tzinfo=None)
        return Weekly(sorted(set(weekly.weekdays)), begins, ends, weekly.time_zone)
    if weekly is None and starts_at is not None and ends_at is not None:
        return Once(starts_at, ends_at)
    detail = "give either starts_at and ends_at, or weekly"
    raise Invalid(detail, code="blackout.when", fields={"starts_at": detail})
