"""What the API takes and gives of statistics and summaries."""

from datetime import date, datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from api.schemas import Answer, Printable
from runlane.jobs import RunStatus
from runlane.statistics import MAX_DAYS, Granularity, Kind


class StatisticQuery(BaseModel):
    """Which statistics."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: list[Printable] = Field(
        default_factory=list,
        max_length=50,
        description="a metric, or the beginning of some (findings); may be repeated; none: all",
    )
    days: int = Field(30, ge=1, le=MAX_DAYS, description="how many days")
    until: date | None = Field(None, description="the last of them, in UTC; by default today")
    by: Granularity = Field(Granularity.DAY, description="day, week (from Monday) or month")


class StatisticPoint(Answer):
    """What a metric was in one period; a period in which nothing was counted has no point."""

    metric: str
    kind: Kind = Field(description="counter: added up over the period; gauge: the last snapshot of it")
    since: date = Field(description="the first day of the period, in UTC")
    value: int


class Statistics(Answer):
    """Points in the order of metric and time."""

    items: list[StatisticPoint]


class OpenFindings(Answer):
    """Open findings by severity."""

    info: int
    low: int
    medium: int
    high: int
    critical: int


class _Summary(Answer):
    assets: int = Field(description="those that are not gone")
    ports: int = Field(description="open ones of such assets, at each of their addresses")
    services: int = Field(description="those of such assets that are not closed")
    findings: OpenFindings
    scanned_at: datetime | None = Field(description="when a run was completed last")
    stale_since: datetime | None = Field(description="since when something is not counted yet")


class LastRun(Answer):
    """The newest run on a target."""

    run_id: UUID
    name: str
    status: RunStatus
    created_at: datetime
    closed_at: datetime | None


class TargetSummary(_Summary):
    """What is known of a target."""

    target_id: UUID
    value: str
    last_run: LastRun | None
    refreshed_at: datetime | None = Field(description="when it was counted last")


class WorkspaceSummary(_Summary):
    """What is known of a workspace."""

    targets: int
    runs_open: int = Field(description="runs that are not closed")
    today: dict[str, int] = Field(description="what became of jobs since midnight in UTC, by metric")


class Rebuilt(Answer):
    """What is made anew."""

    marked: int = Field(description="summaries that are counted anew soon")
