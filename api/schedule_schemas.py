"""What the API takes and gives about schedules."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints

from api.schemas import Answer, JsonObject, NewRun, Printable
from api.view_schemas import Moment
from runlane.jobs import Priority
from runlane.schedules import (
    DEFAULT_CATCH_UP_S,
    DEFAULT_JITTER_S,
    MAX_CATCH_UP_S,
    MAX_EVERY_S,
    MAX_JITTER_S,
    MIN_CATCH_UP_S,
    MIN_EVERY_S,
    FireOutcome,
    Overlap,
)

ScheduleName = Annotated[Printable, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)]


class NewSchedule(NewRun):
    """What to run when. Either `cron` or `every_s`."""

    name: ScheduleName
    cron: Annotated[Printable, StringConstraints(max_length=200)] | None = Field(
        default=None,
        description="minute, hour, day of month, month, day of week; all must fit; or @daily and the like",
        examples=["30 2 * * 1-5"],
    )
    every_s: int | None = Field(default=None, ge=MIN_EVERY_S, le=MAX_EVERY_S, description="seconds")
    time_zone: Annotated[Printable, StringConstraints(max_length=64)] = Field(
        default="UTC", description="of the cron expression", examples=["Europe/Berlin"]
    )
    jitter_s: int = Field(
        default=DEFAULT_JITTER_S, ge=0, le=MAX_JITTER_S, description="a fire is late by up to this"
    )
    overlap: Overlap = Field(
        default=Overlap.SKIP, description="what becomes of a fire while a run of the schedule is open"
    )
    catch_up_s: int = Field(
        default=DEFAULT_CATCH_UP_S,
        ge=MIN_CATCH_UP_S,
        le=MAX_CATCH_UP_S,
        description="after an outage, fires are made up for that are not older than this",
    )
    ends_at: Moment | None = Field(default=None, description="no fire after this moment")

    @property
    def run(self) -> dict[str, object]:
        """What a fire starts, as it is kept."""
        return self.model_dump(mode="json", include={"definition", "targets", "config", "priority"})

    @property
    def spec(self) -> dict[str, object]:
        """When it fires, as it is kept."""
        of_run = {"name", "definition", "targets", "config", "priority"}
        return self.model_dump(mode="json", exclude=of_run)


class ScheduleSpec(Answer):
    """When a schedule fires."""

    cron: str | None
    every_s: int | None
    time_zone: str
    jitter_s: int
    overlap: Overlap
    catch_up_s: int
    ends_at: datetime | None


class ScheduledRun(Answer):
    """What a fire starts."""

    definition: str | JsonObject
    targets: list[UUID]
    config: dict[str, dict[str, object]]
    priority: Priority


class Schedule(Answer):
    """A schedule."""

    id: UUID
    name: str
    spec: ScheduleSpec
    run: ScheduledRun
    created_by: str | None
    created_at: datetime
    paused_at: datetime | None
    deleted_at: datetime | None
    next_fires: list[datetime] = Field(description="nominal times, without jitter; none while it is paused")


class Fire(Answer):
    """A fire of a schedule, as the ledger has it."""

    due_at: datetime = Field(description="nominal time")
    outcome: FireOutcome
    reason: str | None
    run_id: UUID | None
    recorded_at: datetime
