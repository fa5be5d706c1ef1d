"""What the API takes and gives about connectors."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints

from api.action_schemas import Why
from api.schemas import Answer, JsonObject
from runlane.connectors import MAX_SOURCE_BYTES
from runlane.tools import Category, FansOut


class NewConnector(Why):
    """A connector to be added, or the new manifest of one."""

    manifest: Annotated[str, StringConstraints(max_length=MAX_SOURCE_BYTES)] | JsonObject = Field(
        description="the manifest as an object, or as the text of its YAML file",
    )


class Connector(Answer):
    """A connector: a tool that comes as an image."""

    id: UUID
    workspace_id: UUID | None = Field(description="null: of the platform, every workspace has it")
    slug: str = Field(description="what steps name it by")
    tool_id: str = Field(
        description="what its jobs carry; another one than the slug if it is a workspace's own"
    )
    version: str
    category: Category
    fans_out: FansOut
    enabled: bool = Field(description="false: nothing new of it is begun")
    image: str
    digest: str = Field(description="the only image that runs")
    manifest: JsonObject
    created_by: str | None
    created_at: datetime
    changed_at: datetime


class ConnectorChanged(Connector):
    """A connector after an act, and whether the act changed anything."""

    is_changed: bool


class Connectors(Answer):
    """Connectors that steps may name."""

    items: list[Connector]
