"""Groups of targets: what runs, schedules and blackout windows may be about."""

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Response
from pydantic import Field, StringConstraints

from api.action_schemas import Why
from api.deps import Paging, ReadTargets, WriteTargets, no_query
from api.emitting import Mirror, answered, emits, has_changed
from api.etags import IfMatch, etag, version_in
from api.problems import problems
from api.schemas import Answer, PageOf, Printable, Request, TagName, TagNames, Target
from runlane import names
from runlane.db import groups
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound, Stale, Unconditional
from runlane.events import EVENT_CATALOG

router = APIRouter(prefix="/groups", tags=["groups"])

SIZE: Final = answered("name", "members", "targets", "changed")
"""What an event says of a group, beside what was asked for."""

GroupId = Annotated[UUID, Path(description="id of a group")]
GroupName = Annotated[Printable, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)]
Rule = Annotated[
    list[TagName], Field(max_length=20, description="targets with all of these tags are in the group")
]


class NewGroup(Request):
    """A group to be made."""

    name: GroupName
    tags: Rule = Field(default_factory=list)


class EditedGroup(Request):
    """What is to be changed; what is left out stays."""

    name: GroupName | None = None
    tags: Rule | None = None


class GroupMembers(Why):
    """Targets that come in or leave: any of these, at least one."""

    targets: list[UUID] = Field(default_factory=list, max_length=10_000, description="ids of targets")
    values: list[Annotated[Printable, StringConstraints(max_length=253)]] = Field(
        default_factory=list, max_length=10_000, description="targets by their spelling"
    )
    tags: TagNames = Field(default_factory=list)


class Group(Answer):
    """A group in a list."""

    id: UUID
    name: str
    tags: list[str]
    version: int = Field(description="counts its changes; as `ETag` it is what `If-Match` says")
    created_by: str | None
    created_at: datetime


class GroupDetail(Group):
    """A group with its size."""

    members: int = Field(description="targets that were taken in one by one")
    targets: int = Field(description="all that are in it now, with those that its tags take in")


class GroupChanged(GroupDetail):
    """A group after its members were changed."""

    changed: int = Field(description="members that came in or left")


@router.get("")
async def index(access: ReadTargets, query: Paging) -> PageOf[Group]:
    """Lists groups; sorts by `created_at` or `name`."""
    page = await groups.list_groups(access.conn, access.workspace_id, query.page)
    return PageOf[Group].model_validate(page, from_attributes=True)


@router.post("", status_code=201, dependencies=[Depends(no_query)], responses=problems(Conflict))
@emits(EVENT_CATALOG.asset_group.created, Mirror(names.group_subject, metadata=SIZE))
async def create(access: WriteTargets, body: NewGroup, response: Response) -> GroupDetail:
    """Makes a group. Its members are added then; what has all of its `tags` is in it by itself."""
    conn, creator = driver(access.conn), access.principal.name
    made = await groups.create_group(conn, access.workspace_id, body.name, body.tags, creator)
    return _tagged(GroupDetail.model_validate(made), response)


@router.get("/{group_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadTargets, group_id: GroupId, response: Response) -> GroupDetail:
    """Shows one group and how many targets are in it."""
    found = await groups.get_group(driver(access.conn), access.workspace_id, group_id)
    return _tagged(GroupDetail.model_validate(found), response)


@router.patch(
    "/{group_id}",
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict, Stale, Unconditional),
)
@emits(EVENT_CATALOG.asset_group.updated, Mirror(names.group_subject, metadata=SIZE))
async def edit(
    access: WriteTargets, group_id: GroupId, body: EditedGroup, response: Response, if_match: IfMatch = None
) -> GroupDetail:
    """Renames a group, or gives it another rule. `If-Match` is its `ETag`."""
    wanted = groups.GroupEdit(version_in(if_match), body.name, body.tags)
    done = await groups.edit_group(driver(access.conn), access.workspace_id, group_id, wanted)
    return _tagged(GroupDetail.model_validate(done), response)


@router.post("/{group_id}/delete", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
@emits(EVENT_CATALOG.asset_group.deleted, Mirror(names.group_subject, metadata=SIZE))
async def delete(access: WriteTargets, group_id: GroupId, body: Why | None = None) -> GroupDetail:
    """Deletes a group that no schedule and no blackout window is about; its targets stay."""
    done = await groups.delete_group(driver(access.conn), access.workspace_id, group_id)
    return GroupDetail.model_validate(done)


@router.get("/{group_id}/targets", responses=problems(NotFound))
async def targets(access: ReadTargets, group_id: GroupId, query: Paging) -> PageOf[Target]:
    """Lists the targets that are in a group now; sorts by `value` or `created_at`."""
    await groups.get_group(driver(access.conn), access.workspace_id, group_id)
    page = await groups.list_targets_of(access.conn, access.workspace_id, group_id, query.page)
    return PageOf[Target].model_validate(page, from_attributes=True)


@router.post("/{group_id}/members", dependencies=[Depends(no_query)], responses=problems(NotFound))
@emits(EVENT_CATALOG.asset_group.updated, Mirror(names.group_subject, metadata=SIZE, is_due=has_changed))
async def add(access: WriteTargets, group_id: GroupId, body: GroupMembers) -> GroupChanged:
    """Takes targets into a group: all that are named or, if one is not there, none. Repeatable."""
    members = groups.Members(body.targets, body.values, body.tags)
    done = await groups.add_members(driver(access.conn), access.workspace_id, group_id, members)
    return GroupChanged.model_validate(done)


@router.post("/{group_id}/members/remove", dependencies=[Depends(no_query)], responses=problems(NotFound))
@emits(EVENT_CATALOG.asset_group.updated, Mirror(names.group_subject, metadata=SIZE, is_due=has_changed))
async def remove(access: WriteTargets, group_id: GroupId, body: GroupMembers) -> GroupChanged:
    """Takes members out of a group; what is not in it is passed over."""
    members = groups.Members(body.targets, body.values, body.tags)
    done = await groups.remove_members(driver(access.conn), access.workspace_id, group_id, members)
    return GroupChanged.model_validate(done)


def _tagged(group: GroupDetail, response: Response) -> GroupDetail:
    response.headers["ETag"] = etag(group.version)
    return group
