"""What operators are told of runs and jobs, as JSON."""

from datetime import datetime
from uuid import UUID

from pydantic import Field

from api.schemas import Answer
from runlane.jobs import JobStatus, RunStatus, StepStatus
from runlane.waiting import Reason


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
