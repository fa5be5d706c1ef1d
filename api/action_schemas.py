"""What people do to runs and jobs: bodies of the requests, and what is answered."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, StringConstraints

from api.schemas import Answer, Printable, Request
from runlane.jobs import JobStatus, Priority
from runlane.waiting import PauseScope

StepName = Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9_-]+$")]
ToolId = Annotated[str, Field(max_length=80, pattern=r"^[a-z0-9_-]+$")]
Reason = Annotated[Printable, StringConstraints(max_length=1000)]


class Why(Request):
    """Why it is done, for those who ask later."""

    reason: Reason | None = None


class CancelJobs(Why):
    """Which jobs that have not ended are cancelled; at least one condition."""

    run: UUID | None = Field(default=None, description="id of a run")
    step: StepName | None = Field(default=None, description="id of a step")
    tool: ToolId | None = Field(default=None, description="id of a tool")
    target: UUID | None = Field(default=None, description="id of a target")
    status: Literal[JobStatus.PENDING, JobStatus.IN_PROGRESS] | None = None


class NewPriority(Why):
    """The priority from now on."""

    priority: Priority


class RerunJob(Why):
    """How a job is done once more."""

    follow: bool = Field(
        default=False, description="with the steps that need its step, if a new run is made for it"
    )


class RerunRun(Why):
    """From where a run is done once more."""

    from_step: StepName | None = Field(
        default=None, description="this step and all that needs it; null: the whole run"
    )


class PauseToolset(Why):
    """What of a workspace is paused."""

    toolset: StepName | None = Field(
        default=None, description="only the tools of this set; null: the whole workspace"
    )


class JobCancelled(Answer):
    """What the cancel of a job did."""

    job_id: UUID
    status: JobStatus
    changed: bool = Field(description="false: it had been cancelled before")


class StepCancelled(Answer):
    """What the cancel of a step did."""

    run_id: UUID
    step_id: str
    jobs: int = Field(description="jobs that were cancelled; 0 when the step had been cancelled before")


class Prioritised(Answer):
    """What a change of priority did."""

    run_id: UUID
    priority: Priority
    jobs: int = Field(description="jobs that had another priority before")
    moved: int = Field(description="those of them that wait, and are dispatched anew in their new place")


class Rerun(Answer):
    """What does it once more."""

    run_id: UUID = Field(description="the run that does it: a new one, or the same if the step is open")
    job_id: UUID | None = Field(description="the new job; null when a whole step or run is done once more")
    changed: bool = Field(
        description="false: the re-run that was wanted before has not ended, and this is it"
    )


class Pause(Answer):
    """A pause."""

    id: UUID
    scope: PauseScope
    run_id: UUID | None
    toolset: str | None
    reason: str | None
    created_by: str | None
    created_at: datetime
    lifted_at: datetime | None
    lifted_by: str | None


class Pauses(Answer):
    """The pauses that are in force."""

    items: list[Pause]


class Operation(Answer):
    """One act on many jobs, and how far it has come."""

    id: UUID
    action: str
    filter: dict[str, str]
    reason: str | None
    created_by: str | None
    as_of: datetime = Field(description="jobs written later are not touched")
    matched: int = Field(description="jobs that fitted, so far")
    changed: int = Field(description="those of them that had not ended meanwhile, and were changed")
    is_aborted: bool
    finished_at: datetime | None
