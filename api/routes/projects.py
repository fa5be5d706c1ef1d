"""Projects: named sets of rules over assets, whose new assets may start runs."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Response
from pydantic import Field, StringConstraints

from api.action_schemas import Why
from api.deps import Paging, ReadTargets, WriteTargets, no_query
from api.etags import IfMatch, etag, version_in
from api.problems import problems
from api.schemas import Answer, PageOf, Printable, Request
from runlane.db import projects
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound, Stale, Unconditional
from runlane.projects import MAX_RULES, Rule, RuleKind

router = APIRouter(prefix="/projects", tags=["projects"])

ProjectId = Annotated[UUID, Path(description="id of a project")]
ProjectName = Annotated[Printable, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)]


class ProjectRule(Request):
    """A rule: an asset that it fits is in the project."""

    kind: RuleKind
    value: Annotated[Printable, StringConstraints(min_length=1, max_length=253)]


Rules = Annotated[list[ProjectRule], Field(max_length=MAX_RULES)]


class NewProject(Request):
    """A project to be made."""

    name: ProjectName
    rules: Rules


class EditedProject(Request):
    """What is to be changed; what is left out stays."""

    name: ProjectName | None = None
    rules: Rules | None = None


class ShownRule(Answer):
    """A rule in its one spelling; of a group or a target: its id."""

    kind: RuleKind
    value: str


class Project(Answer):
    """A project in a list."""

    id: UUID
    name: str
    version: int = Field(description="counts its changes; as `ETag` it is what `If-Match` says")
    created_by: str | None
    created_at: datetime


class ProjectDetail(Project):
    """A project with its rules and its size."""

    rules: list[ShownRule]
    assets: int = Field(description="that are in it now; after a change of rules it takes a moment")


class ProjectAsset(Answer):
    """An asset that is in a project."""

    id: UUID
    target_id: UUID
    value: str
    since: datetime


@router.get("")
async def index(access: ReadTargets, query: Paging) -> PageOf[Project]:
    """Lists projects; sorts by `created_at` or `name`."""
    page = await projects.list_projects(access.conn, access.workspace_id, query.page)
    return PageOf[Project].model_validate(page, from_attributes=True)


@router.post("", status_code=201, dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def create(access: WriteTargets, body: NewProject, response: Response) -> ProjectDetail:
    """Makes a project; what any of its rules fits comes in soon, and whatever is found later."""
    conn, act = driver(access.conn), access.act(None)
    made = await projects.create_project(conn, access.workspace_id, body.name, _rules(body.rules), act)
    return _tagged(made, response)


@router.get("/{project_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadTargets, project_id: ProjectId, response: Response) -> ProjectDetail:
    """Shows one project."""
    found = await projects.get_project(driver(access.conn), access.workspace_id, project_id)
    return _tagged(found, response)


@router.patch(
    "/{project_id}",
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict, Stale, Unconditional),
)
async def edit(
    access: WriteTargets,
    project_id: ProjectId,
    body: EditedProject,
    response: Response,
    if_match: IfMatch = None,
) -> ProjectDetail:
    """Renames a project, or gives it other rules. `If-Match` is its `ETag`."""
    rules = None if body.rules is None else _rules(body.rules)
    wanted = projects.ProjectEdit(version_in(if_match), body.name, rules)
    conn, act = driver(access.conn), access.act(None)
    return _tagged(await projects.edit_project(conn, access.workspace_id, project_id, wanted, act), response)


@router.post("/{project_id}/delete", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def delete(access: WriteTargets, project_id: ProjectId, body: Why | None = None) -> ProjectDetail:
    """Deletes a project; its assets and its runs stay."""
    act = access.act(body.reason if body else None)
    done = await projects.delete_project(driver(access.conn), access.workspace_id, project_id, act)
    return ProjectDetail.model_validate(done)


@router.get("/{project_id}/assets", responses=problems(NotFound))
async def assets(access: ReadTargets, project_id: ProjectId, query: Paging) -> PageOf[ProjectAsset]:
    """Lists the assets that are in a project now; sorts by `value` or `since`."""
    await projects.get_project(driver(access.conn), access.workspace_id, project_id)
    page = await projects.list_assets_of(access.conn, access.workspace_id, project_id, query.page)
    return PageOf[ProjectAsset].model_validate(page, from_attributes=True)


def _rules(said: list[ProjectRule]) -> list[Rule]:
    return [Rule(rule.kind, rule.value) for rule in said]


def _tagged(row: dict[str, object], response: Response) -> ProjectDetail:
    shown = ProjectDetail.model_validate(row)
    response.headers["ETag"] = etag(shown.version)
    return shown
