"""What operators are told of runs and jobs, as JSON."""

from datetime import datetime
from typing import Annotated, Final, Generic
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, Field

from api.schemas import Answer, ItemT
from runlane.jobs import JobStatus, Outcome, Priority, RunStatus, StepStatus
from runlane.waiting import Reason

_YEARS: Final = range(1970, 9000)


def _storable(moment: datetime) -> datetime:
    if moment.year not in _YEARS:
        raise ValueError("a moment of our time is required")
    return moment


Moment = Annotated[AwareDatetime, AfterValidator(_storable)]
"""A moment with its zone, that a database can compare."""


class WaitCheck(Answer):
    """One thing that was looked at."""

    reason: Reason
    is_holding: bool
    text: str


class Why(Answer):
    """The one reason for which jobs are pending, and every check in order."""

    reason: Reason
    text: str
    checks: list[WaitCheck]


class JobWhy(Answer):
    """Why a job is where it is."""

    job_id: UUID
    run_id: UUID
    step_id: str
    status: JobStatus
    as_of: datetime | None
    text: str = Field(description="in one sentence, also of a job that does not wait")
    explanation: Why | None = Field(description="of a pending job")


class WaitGroup(Answer):
    """Pending jobs that wait for the same thing."""

    jobs: int
    explanation: Why


class StepWhy(Answer):
    """Why jobs of an open step wait, the largest group first."""

    step_id: str
    status: StepStatus
    groups: list[WaitGroup]


class RunWhy(Answer):
    """Why jobs of a run wait, for each of its open steps."""

    run_id: UUID
    status: RunStatus
    steps: list[StepWhy]


class WaitingHead(Answer):
    """The job of a tool set and a priority that has waited longest."""

    toolset: str
    priority: Priority
    job_id: UUID
    run_id: UUID
    step_id: str
    since: datetime = Field(description="when it was written")
    waited_s: float


class Items(Answer, Generic[ItemT]):
    """A list that is short enough to be given whole."""

    items: list[ItemT]


class AttemptDetail(Answer):
    """One claim of a job: who ran what, and how it ended."""

    attempt: int
    worker_id: UUID
    worker: str | None = Field(description="its name; null of a shared worker")
    incarnation: UUID = Field(description="life of the worker that claimed the job")
    dispatch_id: UUID
    claimed_at: datetime
    staged_at: datetime | None
    ended_at: datetime | None
    outcome: Outcome | None
    charged: bool = Field(description="whether it counts against the retry budget")
    staged_outcome: Outcome | None = Field(description="what its worker said")
    staged_error: str | None
    is_complete: bool | None
    coverage: dict[str, object] | None
    summary: dict[str, object] | None
    argv: list[str] | None = Field(description="what was run, without credentials")
    tool_version: str | None
    result_bytes: int | None = Field(description="of the delivery that holds its result, while it is kept")


class JobErrorDetail(Answer):
    """An error of a job; the same one again counts up."""

    attempt: int
    outcome: str
    message: str
    partial: str | None = Field(description="what the tool had found until then, shortened")
    times: int
    created_at: datetime
    last_at: datetime


class Estimate(Answer):
    """How long something takes yet: `left_s`, or why nobody can tell."""

    left_s: float | None = Field(description="seconds")
    per_minute: float | None = Field(description="jobs that end in a minute")
    unknown: str | None


class StepProgress(Answer):
    """How far a step is."""

    step_id: str
    status: StepStatus
    is_admitted: bool = Field(description="false while more jobs of it may still be written")
    total: int
    ended: int
    jobs: dict[JobStatus, int]
    estimate: Estimate


class RunProgress(Answer):
    """How far a run is."""

    run_id: UUID
    status: RunStatus
    as_of: datetime
    total: int
    ended: int
    steps: list[StepProgress]
    estimate: Estimate


class RoutePlan(Answer):
    """Jobs of a step that would go to the same queue."""

    task_queue: str
    network: str | None = Field(description="internal network of the targets")
    jobs: int
    slots: int = Field(description="of live workers that serve the queue")


class StepPlan(Answer):
    """What a step would do, as far as that is known now."""

    step_id: str
    name: str
    tool_id: str
    toolset: str
    needs: list[str]
    config: dict[str, object] = Field(description="options, those of its profile included")
    jobs: int
    is_exact: bool = Field(description="false if earlier steps may find more, or there are more than counted")
    skipped: dict[str, int] = Field(description="jobs that would be skipped at once, by reason")
    routes: list[RoutePlan]
    missing: list[str] = Field(description="what no live worker serves")


class RunPlan(Answer):
    """What a request would start. Nothing was written."""

    name: str
    jobs: int
    steps: list[StepPlan]
    missing: list[str]
