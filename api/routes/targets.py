"""Targets."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field

from api.action_schemas import Why
from api.deps import PageQuery, ReadTargets, WriteTargets, no_query
from api.problems import problems
from api.schemas import (
    Answer,
    GroupNames,
    NetworkRef,
    NewTarget,
    PageOf,
    Printable,
    TagName,
    TagNames,
    Target,
    TargetIds,
    TargetImport,
    TargetsImported,
)
from runlane.db import tagging, targets
from runlane.db.engine import driver
from runlane.db.tagging import Tagging
from runlane.db.target_imports import GivenFile, import_targets
from runlane.db.target_moves import move_target
from runlane.db.targets import TargetFilter, add_target, get_target, list_targets
from runlane.errors import Conflict, NotFound

router = APIRouter(prefix="/targets", tags=["targets"])

TargetId = Annotated[UUID, Path(description="id of a target")]


class TargetQuery(PageQuery):
    """Which targets."""

    value: Printable | None = Field(None, max_length=253, description="the target of exactly this spelling")
    tag: list[TagName] = Field(default=[], max_length=20, description="repeatable: with all of these tags")
    network: Printable | None = Field(None, max_length=100, description="in this network, by name or id")


class Moved(Why):
    """Where a target is from now on."""

    network: NetworkRef


class Retag(Why):
    """Which targets get and lose which tags."""

    targets: TargetIds = Field(default_factory=list)
    groups: GroupNames = Field(default_factory=list)
    tags: TagNames = Field(default_factory=list)
    add: list[TagName] = Field(default_factory=list, max_length=20)
    remove: list[TagName] = Field(default_factory=list, max_length=20)


class Retagged(Answer):
    """What was changed."""

    changed: int = Field(description="targets whose tags are others now")


@router.get("")
async def index(access: ReadTargets, query: Annotated[TargetQuery, Query()]) -> PageOf[Target]:
    """Lists targets; sorts by `created_at` or `value`."""
    wanted = TargetFilter(query.value, query.tag, query.network)
    page = await list_targets(access.conn, access.workspace_id, wanted, query.page)
    return PageOf[Target].model_validate(page, from_attributes=True)


@router.post("", status_code=201, dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def create(access: WriteTargets, body: NewTarget) -> Target:
    """Adds a target. Addresses that are not public must be in a network that the workspace allows.

    In an internal network (`network`) it may be a name, or an address of that network and no other.
    """
    new = targets.NewTarget(body.value, body.network)
    row = await add_target(access.conn, access.workspace_id, new, access.actor)
    return Target.model_validate(row)


@router.post("/import", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def import_file(access: WriteTargets, body: TargetImport) -> TargetsImported:
    """Adds the targets of a file of up to 10,000 lines: all of them or, if a line is wrong, none.

    `faults` has every line that is wrong. Repeated, it changes nothing.
    """
    conn = driver(access.conn)
    given = GivenFile(body.text, body.format, body.network)
    done = await import_targets(conn, access.workspace_id, given, access.actor)
    return TargetsImported.model_validate(done, from_attributes=True)


@router.post("/tags", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def retag(access: WriteTargets, body: Retag) -> Retagged:
    """Adds tags to targets and removes others: of all that `targets`, `groups` or `tags` name. Repeatable."""
    wanted = Tagging(body.targets, body.groups, body.tags, body.add, body.remove)
    changed = await tagging.retag(driver(access.conn), access.workspace_id, wanted, access.act(body.reason))
    return Retagged(changed=changed)


@router.get("/{target_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadTargets, target_id: TargetId) -> Target:
    """Shows one target."""
    return Target.model_validate(await get_target(access.conn, access.workspace_id, target_id))


@router.post("/{target_id}/network", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def move(access: WriteTargets, target_id: TargetId, body: Moved) -> Target:
    """Moves a target into an internal network, or out of any; jobs of it that wait go with it. Repeatable."""
    conn, act = driver(access.conn), access.act(body.reason)
    return Target.model_validate(await move_target(conn, access.workspace_id, target_id, body.network, act))
