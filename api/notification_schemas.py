"""What the API takes and gives about notifications."""

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from api.action_schemas import Why
from api.deps import PageQuery
from api.schemas import Answer, GroupRef, Printable, Request
from runlane.events import Severity

RuleName = Annotated[Printable, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)]
EventType = Annotated[str, StringConstraints(pattern=r"^[a-z_]+(\.[a-z_]+){0,2}$", max_length=100)]
Least = Annotated[
    Severity, Field(description="info, low, medium, high or critical; events less severe are not told")
]


class Notification(Answer):
    """One event that the caller is told, or a digest of many that are alike."""

    id: UUID
    type: str
    severity: Severity
    text: str = Field(description="for people")
    subject: str = Field(description="of the first event")
    run_id: UUID | None
    target_id: UUID | None
    data: dict[str, object] = Field(description="of the first event")
    is_digest: bool
    events: int = Field(description="how many events it stands for")
    event_ids: list[UUID] = Field(description="the first of them")
    occurred_at: datetime = Field(description="of the newest event")
    created_at: datetime
    updated_at: datetime
    read_at: datetime | None


class InboxQuery(PageQuery):
    """Which notifications are listed."""

    unread: bool = Field(default=False, description="only those that are not read")


class Unread(Answer):
    """How many are unread."""

    unread: int = Field(description="10000: so many, or more")


class Marking(Request):
    """Which notifications are marked: these, or all."""

    ids: list[UUID] | None = Field(default=None, max_length=1_000)
    all: bool = False
    up_to: UUID | None = Field(default=None, description="with `all`: none newer than this one")

    @model_validator(mode="after")
    def _is_of_some(self) -> Self:
        if self.all == (self.ids is not None):
            raise ValueError("give either ids, or all")
        if self.up_to is not None and not self.all:
            raise ValueError("up_to goes with all")
        return self


class Marked(Answer):
    """How many notifications changed."""

    changed: int


class NewRule(Why):
    """Who is told what. A rule of the same name is replaced."""

    name: RuleName = Field(description="`default`: in place of the rule that every workspace begins with")
    types: list[EventType] = Field(
        default_factory=list, max_length=50, description="types of events, or beginnings of types; none: all"
    )
    severity: Least = Severity.MEDIUM
    target_id: UUID | None = Field(default=None, description="only about this target")
    group: GroupRef | None = Field(default=None, description="only about targets of this group: name or id")
    recipients: list[RuleName] = Field(
        default_factory=list,
        max_length=100,
        description="names of API keys; none: all that may read notifications",
    )
    enabled: bool = True

    @model_validator(mode="after")
    def _is_loud(self) -> Self:
        if self.severity is Severity.NONE:
            raise ValueError("events of severity none are never told")
        return self


class Rule(Answer):
    """A rule."""

    id: UUID | None = Field(description="null: the rule that every workspace begins with")
    name: str
    types: list[str] = Field(validation_alias="event_types")
    severity: Severity = Field(validation_alias="least_severity")
    target_id: UUID | None
    group_id: UUID | None
    recipients: list[str]
    enabled: bool = Field(validation_alias="is_on")
    created_by: str | None
    created_at: datetime | None
    updated_at: datetime | None


class Rules(Answer):
    """Rules of the workspace."""

    items: list[Rule]


class NewMute(Why):
    """What is not told for a while: exactly one of a rule, a type and a target."""

    rule: RuleName | None = Field(default=None, description="name of a rule")
    type: EventType | None = Field(default=None, description="type of events, or the beginning of one")
    target_id: UUID | None = None
    for_s: int = Field(ge=60, le=2_592_000, description="how long (seconds)")

    @model_validator(mode="after")
    def _is_about_one(self) -> Self:
        if sum(each is not None for each in (self.rule, self.type, self.target_id)) != 1:
            raise ValueError("give one of rule, type and target_id")
        return self


class MuteAnswer(Answer):
    """A mute."""

    id: UUID
    rule: str | None
    type: str | None = Field(validation_alias="event_type")
    target_id: UUID | None
    until: datetime
    reason: str | None
    created_by: str | None
    created_at: datetime


class Mutes(Answer):
    """What is muted now."""

    items: list[MuteAnswer]
