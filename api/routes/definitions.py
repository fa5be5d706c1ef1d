"""Saved definitions: runs are started by their names, and events start runs of those with `on`."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path
from pydantic import Field, StringConstraints

from api.action_schemas import Why
from api.deps import Paging, ReadRuns, WriteRuns, no_query
from api.problems import problems
from api.schemas import Answer, JsonObject, PageOf, Request
from runlane.db import definitions
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound

router = APIRouter(prefix="/definitions", tags=["definitions"])

DefinitionId = Annotated[UUID, Path(description="id of a saved definition")]


class NewDefinition(Request):
    """A definition to be saved."""

    definition: Annotated[str, StringConstraints(max_length=65_536)] | JsonObject = Field(
        description="`{name, on?, jobs: {…}}`, or the same as YAML; `on` says which events start a run of it",
    )


class SavedDefinition(Answer):
    """A saved definition."""

    id: UUID
    name: str
    version: int
    body: JsonObject
    created_at: datetime


class DefinitionVersion(Answer):
    """What a saved definition said in one version."""

    version: int
    body: JsonObject
    saved_by: str | None
    saved_at: datetime


@router.put("", dependencies=[Depends(no_query)], responses=problems(Conflict))
async def save(access: WriteRuns, body: NewDefinition) -> SavedDefinition:
    """Saves a definition under its name, as a new version if there is one of that name."""
    conn, workspace_id = driver(access.conn), access.workspace_id
    definition = await definitions.read_definition(conn, workspace_id, body.definition)
    row = await definitions.save_definition(conn, workspace_id, definition, access.act(None))
    return SavedDefinition.model_validate(row)


@router.get("")
async def index(access: ReadRuns, query: Paging) -> PageOf[SavedDefinition]:
    """Lists saved definitions; sorts by `created_at` or `name`."""
    page = await definitions.list_definitions(access.conn, access.workspace_id, query.page)
    return PageOf[SavedDefinition].model_validate(page, from_attributes=True)


@router.get("/{definition_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadRuns, definition_id: DefinitionId) -> SavedDefinition:
    """Shows a saved definition in its newest version."""
    row = await definitions.get_definition(driver(access.conn), access.workspace_id, definition_id)
    return SavedDefinition.model_validate(row)


@router.get("/{definition_id}/versions", responses=problems(NotFound))
async def versions(access: ReadRuns, definition_id: DefinitionId, query: Paging) -> PageOf[DefinitionVersion]:
    """Lists the last 100 versions of a saved definition, the newest first; sorts by `version`."""
    await definitions.get_definition(driver(access.conn), access.workspace_id, definition_id)
    page = await definitions.list_versions(access.conn, access.workspace_id, definition_id, query.page)
    return PageOf[DefinitionVersion].model_validate(page, from_attributes=True)


@router.post("/{definition_id}/delete", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def delete(access: WriteRuns, definition_id: DefinitionId, body: Why | None = None) -> SavedDefinition:
    """Deletes a saved definition; its runs go on."""
    act = access.act(body.reason if body else None)
    row = await definitions.delete_definition(driver(access.conn), access.workspace_id, definition_id, act)
    return SavedDefinition.model_validate(row)
