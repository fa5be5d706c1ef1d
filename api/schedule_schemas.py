"""What the API takes and gives about schedules."""

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from pydantic import Field, StringConstraints

from api.schemas import (
    Answer,
    DefinitionSource,
    GroupNames,
    JsonObject,
    NewRun,
    Printable,
    Request,
    StepOptions,
    TagNames,
    TargetIds,
)
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


Cron = Annotated[
    Printable,
    StringConstraints(max_length=200),
    Field(
        description="minute, hour, day of month, month, day of week; all must fit; or @daily and the like",
        examples=["30 2 * * 1-5"],
    ),
]
EverySeconds = Annotated[int, Field(ge=MIN_EVERY_S, le=MAX_EVERY_S, description="seconds")]
ZoneName = Annotated[
    Printable,
    StringConstraints(max_length=64),
    Field(description="of the cron expression", examples=["Europe/Berlin"]),
]
JitterSeconds = Annotated[int, Field(ge=0, le=MAX_JITTER_S, description="a fire is late by up to this")]
CatchUpSeconds = Annotated[
    int,
    Field(
        ge=MIN_CATCH_UP_S,
        le=MAX_CATCH_UP_S,
        description="after an outage, fires are made up for that are not older than this",
    ),
]

_RUN: Final = {"definition", "targets", "groups", "tags", "config", "priority"}
"""Fields that say what a fire starts; all but the name say when."""


class NewSchedule(NewRun):
    """What to run when. Either `cron` or `every_s`."""

    name: ScheduleName
    cron: Cron | None = None
    every_s: EverySeconds | None = None
    time_zone: ZoneName = "UTC"
    jitter_s: JitterSeconds = DEFAULT_JITTER_S
    overlap: Overlap = Field(
        default=Overlap.SKIP, description="what becomes of a fire while a run of the schedule is open"
    )
    catch_up_s: CatchUpSeconds = DEFAULT_CATCH_UP_S
    ends_at: Moment | None = Field(default=None, description="no fire after this moment")

    @property
    def run(self) -> dict[str, object]:
        """What a fire starts, as it is kept."""
        return self.model_dump(mode="json", include=_RUN)

    @property
    def spec(self) -> dict[str, object]:
        """When it fires, as it is kept."""
        return self.model_dump(mode="json", exclude={"name", *_RUN})


class EditedSchedule(Request):
    """What is to be changed; what is left out stays. Of `cron` and `every_s`, one takes the other's place."""

    name: ScheduleName | None = None
    definition: DefinitionSource | None = None
    targets: TargetIds | None = None
    groups: GroupNames | None = None
    tags: TagNames | None = None
    config: StepOptions | None = None
    priority: Priority | None = None
    cron: Cron | None = None
    every_s: EverySeconds | None = None
    time_zone: ZoneName | None = None
    jitter_s: JitterSeconds | None = None
    overlap: Overlap | None = None
    catch_up_s: CatchUpSeconds | None = None
    ends_at: Moment | None = Field(default=None, description="null: it goes on for ever")

    @property
    def run(self) -> dict[str, object]:
        """What of its run is changed."""
        return {name: value for name, value in self._said().items() if name in _RUN}

    @property
    def spec(self) -> dict[str, object]:
        """What of its times is changed."""
        said = {name: value for name, value in self._said().items() if name not in {"name", *_RUN}}
        for one, other in (("cron", "every_s"), ("every_s", "cron")):
            if one in said:
                said.setdefault(other, None)
        return said

    def _said(self) -> dict[str, object]:
        said = self.model_dump(mode="json", exclude_unset=True)
        return {name: value for name, value in said.items() if value is not None or name == "ends_at"}


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
    groups: list[UUID]
    tags: list[str]
    config: dict[str, dict[str, object]]
    priority: Priority


class Schedule(Answer):
    """A schedule."""

    id: UUID
    name: str
    spec: ScheduleSpec
    run: ScheduledRun
    version: int = Field(description="counts its changes; as `ETag` it is what `If-Match` says")
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
    asked_by: str | None = Field(description="who wanted it now; null: the clock")
    recorded_at: datetime
