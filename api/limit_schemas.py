"""What the API takes and gives about limits."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from api.action_schemas import StepName, Why
from api.schemas import Answer
from runlane.db.limit_rules import MAX_LIMIT

Number = Annotated[int, Field(ge=1, le=MAX_LIMIT)]


class NewNumbers(Why):
    """How much there may be. A number that is left out is not limited."""

    max_in_progress: Number | None = Field(default=None, description="jobs in progress at once")
    per_minute: Number | None = Field(default=None, description="claims in any minute")


class NewLimit(NewNumbers):
    """A limit of the workspace, or of one tool set in it."""

    toolset: StepName | None = Field(default=None, description="null: all tools of the workspace together")


class NewToolsetLimit(NewNumbers):
    """A limit of a tool set in all workspaces together."""

    toolset: StepName


class LimitSet(Answer):
    """A limit."""

    id: UUID
    workspace_id: UUID | None = Field(description="null: of a tool set everywhere")
    toolset: str | None
    max_in_progress: int | None
    per_minute: int | None
    created_at: datetime


class Limit(LimitSet):
    """A limit, and how much of it is used up now."""

    in_progress: int
    last_minute: int = Field(description="claims of the last minute")


class Limits(Answer):
    """Limits that count."""

    items: list[Limit]
