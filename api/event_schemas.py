"""What the API takes and gives about events, dead letters and lanes."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import AwareDatetime, Field

from api.action_schemas import Why
from api.deps import PageQuery
from api.schemas import Answer
from runlane.db.dead_letter_lists import CHUNK, Letters
from runlane.db.dead_letters import LetterStatus
from runlane.db.event_lists import Events

LaneName = Annotated[str, Field(max_length=40, pattern=r"^[a-z_]+$")]
EventType = Annotated[str, Field(max_length=100, pattern=r"^[a-z_.]+$")]
Subject = Annotated[str, Field(max_length=256, pattern=r"^[\x21-\x7e]+$")]


class LettersQuery(PageQuery):
    """Which dead letters, and which page of them."""

    lane: LaneName | None = Field(None, description="only of this lane")
    type: EventType | None = Field(None, description="only of events of this type")
    status: LetterStatus | None = Field(None, description="open, asked or redriven")
    since: AwareDatetime | None = Field(None, description="given up at this time or later")
    until: AwareDatetime | None = Field(None, description="given up before")

    @property
    def letters(self) -> Letters:
        """The letters that fit."""
        return Letters(None, self.lane, self.type, self.status, self.since, self.until)


class ChosenLetters(Why):
    """Which dead letters; at least one condition. The oldest 500 that fit."""

    ids: Annotated[list[UUID], Field(max_length=CHUNK)] | None = None
    lane: LaneName | None = None
    type: EventType | None = None

    @property
    def letters(self) -> Letters:
        """The letters that fit."""
        return Letters(self.ids, self.lane, self.type)


class LettersTouched(Answer):
    """How many dead letters it was."""

    letters: int


class DeadLetterHead(Answer):
    """An event that a lane has given up."""

    id: UUID
    lane: str
    event_id: UUID
    sequence: int = Field(validation_alias="bus_seq", description="its place on the bus")
    type: str
    subject: str
    entry_id: str | None = Field(description="its entry on the stream; null: it was read from the outbox")
    attempts: int
    error: str
    status: LetterStatus
    first_failed_at: datetime
    created_at: datetime = Field(description="when the last attempt failed, and it was given up")
    asked_at: datetime | None
    redrives: int = Field(description="how often its lane has handled it once more")
    redriven_at: datetime | None
    redrive_error: str | None = Field(description="why the last redrive failed")


class DeadLetter(DeadLetterHead):
    """A dead letter with its envelope."""

    fields: dict[str, str] = Field(description="the whole envelope, as the fields of its entry")


class UnroutableEntry(Answer):
    """An entry of the stream that belongs to no workspace, or to no known event."""

    id: UUID
    lane: str = Field(description="the lane that met it first")
    entry_id: str
    type: str | None
    fields: dict[str, str]
    error: str
    created_at: datetime


class EventsQuery(PageQuery):
    """Which events, and which page of them. The newest come first."""

    type: EventType | None = Field(None, description="only of this type")
    subject: Subject | None = Field(None, description="only about this, such as `run/…`")
    since: AwareDatetime | None = Field(None, description="recorded at this time or later")
    until: AwareDatetime | None = Field(None, description="recorded before")

    @property
    def events(self) -> Events:
        """The events that fit."""
        return Events(self.type, self.subject, self.since, self.until)


class PlatformEventsQuery(EventsQuery):
    """Which events of all workspaces."""

    workspace: UUID | None = Field(None, description="only of this workspace")


class Event(Answer):
    """An event on the bus."""

    sequence: int = Field(description="its place on the bus")
    event_id: UUID
    workspace_id: UUID
    type: str
    subject: str
    occurred_at: datetime
    attributes: dict[str, object] = Field(description="who caused it, and what else the envelope says")
    data: dict[str, object]
    kept_in: str = Field(description="`outbox`, or `audit`: only what is audited is kept for longer")


class EventPage(Answer):
    """One page of events."""

    items: list[Event]
    next: str | None = Field(description="give it as `after` to get the next page; null at the end")
    whole_after: int = Field(
        description="every event behind this place on the bus is here and can be replayed; of earlier ones "
        "only those that are audited"
    )


class LaneStatus(Answer):
    """How a lane is."""

    lane: str
    health: str = Field(description="ok, failing, lagging or down")
    last_seq: int = Field(description="everything up to here was handled")
    read_seq: int
    lag_events: int
    lag_s: float = Field(description="age of the oldest event that is not handled")
    pending: int | None = Field(description="delivered and not acknowledged; null: not known")
    oldest_pending_s: float | None
    dead_letters: int = Field(description="letters that wait for somebody")
    acked: int
    skipped: int
    failed: int
    dead: int
    lost: int
    unknown: int
    last_error: str | None
    last_error_at: datetime | None
    live_at: datetime | None = Field(description="last sign of life")


class BusStatus(Answer):
    """How the bus is."""

    last_seq: int
    published_seq: int
    epoch: int = Field(description="grows when the stream was lost and begun anew")
    unpublished: int
    oldest_unpublished_s: float
    lanes: list[LaneStatus]
