"""What the API takes and gives about exclusions."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints

from api.action_schemas import Why
from api.schemas import Answer, Printable
from runlane.tools.exclusions import ExclusionKind

Value = Annotated[Printable, StringConstraints(min_length=1, max_length=253)]


class NewPlatformExclusion(Why):
    """What no workspace may scan."""

    kind: ExclusionKind = Field(description="domain: the name and all below it; host: that name only")
    value: Value


class NewExclusion(NewPlatformExclusion):
    """What the workspace does not scan."""

    target_id: UUID | None = Field(default=None, description="only in jobs of this target")


class Exclusion(Answer):
    """An exclusion."""

    id: UUID
    workspace_id: UUID | None = Field(description="null: of the platform, it counts in every workspace")
    target_id: UUID | None
    kind: ExclusionKind
    value: str
    reason: str | None
    created_by: str | None
    created_at: datetime


class ExclusionSet(Exclusion):
    """An exclusion that was made, and how many jobs it ended; 0 if it had been there before."""

    jobs: int


class Exclusions(Answer):
    """Exclusions that count."""

    items: list[Exclusion]
