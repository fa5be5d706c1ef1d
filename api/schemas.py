"""What the API takes and gives, as JSON. Times are UTC, ids are UUIDs, a `null` field does not apply."""

import math
from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from runlane.jobs import JobStatus, Outcome, Priority, RunStatus, StepStatus
from runlane.tools.target_files import FileFormat

_MAX_DEPTH = 16
_MAX_INTEGER = 2**63

ItemT = TypeVar("ItemT")


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("a text without control characters is required")
    return value


def _storable(value: object, depth: int = 0) -> object:
    """Refuses what JSON can say and PostgreSQL cannot keep."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH}")
    match value:
        case str():
            if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
                raise ValueError("a text holds a NUL or half a surrogate pair")
        case dict():
            for key, each in value.items():
                _storable(key, depth + 1)
                _storable(each, depth + 1)
        case list():
            for each in value:
                _storable(each, depth + 1)
        case float() if not math.isfinite(value):
            raise ValueError("a number is not finite")
        case int() if abs(value) >= _MAX_INTEGER:
            raise ValueError("a number needs more than 64 bits")
    return value


Printable = Annotated[str, AfterValidator(_printable)]
Name = Annotated[Printable, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
JsonObject = Annotated[dict[str, object], AfterValidator(_storable)]


class Request(BaseModel):
    """Base of every body that is taken."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """Base of everything that is answered."""

    model_config = ConfigDict(frozen=True)


NetworkRef = Annotated[
    Annotated[Printable, StringConstraints(min_length=1, max_length=100)] | None,
    Field(description="name or id of the internal network that it is in; null: in none"),
]


class NewTarget(Request):
    """What to scan from now on."""

    value: str = Field(
        max_length=1000, description="a domain, an address or a network", examples=["example.com"]
    )
    network: NetworkRef = None


class TargetImport(Request):
    """A file of targets."""

    format: FileFormat = FileFormat.NDJSON
    network: NetworkRef = None
    text: str = Field(
        description="the file: CSV lines of a target and its tags, or NDJSON of `value` and `tags`",
        examples=['{"value": "example.com", "tags": ["shop"]}'],
    )


DefinitionSource = Annotated[
    Annotated[str, StringConstraints(max_length=65_536)] | JsonObject,
    Field(
        description="name of a saved or built-in definition, or a definition `{name, jobs: {…}}`",
        examples=["domain_discovery"],
    ),
]
TargetIds = Annotated[list[UUID], Field(max_length=1000, description="ids of targets; they must be there")]
GroupRef = Annotated[Printable, StringConstraints(max_length=100)]
TagName = Annotated[Printable, StringConstraints(max_length=64)]
GroupNames = Annotated[
    list[GroupRef], Field(max_length=100, description="names or ids: all targets of any of these groups")
]
TagNames = Annotated[list[TagName], Field(max_length=20, description="all targets with any of these tags")]
StepOptions = Annotated[
    dict[str, dict[str, object]],
    AfterValidator(_storable),
    Field(description="options by step id, laid over the definition's; `*`: every step"),
]


class NewRun(Request):
    """What to run on which targets: those that `targets`, `groups` or `tags` name when the run starts."""

    definition: DefinitionSource
    targets: TargetIds = Field(default_factory=list)
    groups: GroupNames = Field(default_factory=list)
    tags: TagNames = Field(default_factory=list)
    name: Name | None = Field(None, description="for people; default: the definition's name")
    priority: Priority = Priority.NORMAL
    config: StepOptions = Field(default_factory=dict)


class PageOf(Answer, Generic[ItemT]):
    """One page of a list."""

    items: list[ItemT]
    next: str | None = Field(description="give it as `after` to get the next page; null at the end")


class Target(Answer):
    """A target."""

    id: UUID
    kind: str
    value: str
    network_id: UUID | None = Field(description="internal network that it is in")
    tags: list[str]
    created_at: datetime


class LineFault(Answer):
    """What is wrong with a line of a file; the first line is 1."""

    line: int
    code: str
    detail: str


class TargetsImported(Answer):
    """What an import did: nothing, if it has faults."""

    added: int
    known: int = Field(description="were targets already")
    tagged: int = Field(description="known targets that got more tags")
    faults: list[LineFault]


class RunRef(Answer):
    """A run that was accepted, or whose state was changed."""

    run_id: UUID
    status: RunStatus


class RunCancelled(RunRef):
    """What a cancel did."""

    jobs: int = Field(description="jobs that were cancelled; 0 when the run had been cancelled before")


class Run(Answer):
    """A run in a list."""

    id: UUID
    name: str
    kind: str
    status: RunStatus
    trigger: str
    priority: int
    rerun_of: UUID | None
    definition_id: UUID | None = Field(description="the saved definition that it was started from")
    definition_version: int | None
    project_id: UUID | None = Field(description="the project that it is for")
    created_by: str | None
    blocked_reason: str | None = Field(description="what only a person can give and the run waits for")
    created_at: datetime
    started_at: datetime | None
    closed_at: datetime | None


class Step(Answer):
    """A step of a run."""

    step_id: str
    name: str
    tool_id: str
    status: StepStatus
    needs: list[str]
    jobs: dict[JobStatus, int]
    opened_at: datetime | None
    closed_at: datetime | None


class RunDetail(Run):
    """A run with its steps, and its jobs counted by status."""

    targets: list[UUID] = Field(description="the first 1,000")
    targets_total: int
    jobs: dict[JobStatus, int]
    steps: list[Step]


class Job(Answer):
    """A job in a list."""

    id: UUID
    run_id: UUID
    step_id: str
    tool_id: str
    category: str
    status: JobStatus
    priority: int
    target_id: UUID | None
    asset_id: UUID | None
    service_id: UUID | None
    attempt: int
    failures: int = Field(description="attempts charged to its retry budget")
    free_attempts: int = Field(description="attempts that nobody is to blame for")
    reason: str | None
    retry_of: UUID | None
    worker_id: UUID | None
    created_at: datetime
    due_at: datetime
    picked_at: datetime | None
    completed_at: datetime | None


class Attempt(Answer):
    """One claim of a job and how it ended."""

    attempt: int
    worker_id: UUID
    claimed_at: datetime
    staged_at: datetime | None
    ended_at: datetime | None
    outcome: Outcome | None
    charged: bool
    summary: dict[str, object] | None
    argv: list[str] | None
    tool_version: str | None


class JobError(Answer):
    """An error of a job; the same one again counts up."""

    attempt: int
    outcome: str
    message: str
    partial: str | None
    times: int
    created_at: datetime
    last_at: datetime


class JobDetail(Job):
    """A job with its input, attempts and errors."""

    spec: dict[str, object]
    attempts: list[Attempt]
    errors: list[JobError]


class Worker(Answer):
    """A scan worker."""

    id: UUID
    name: str
    status: str
    network_id: UUID | None = Field(description="internal network that it is bound to")
    drained_at: datetime | None = Field(description="a person has it take nothing new since then")
    toolsets: list[str]
    slots: dict[str, int]
    tools: dict[str, str] = Field(description="versions of the tools that are foreign programs")
    version: str | None
    protocol: int | None = Field(description="version of what it and the API say to each other")
    token_issued_at: datetime = Field(description="age of its credential")
    rotation_asked_at: datetime | None = Field(description="it is to get a new credential since then")
    beat_at: datetime | None
    stream_seen_at: datetime | None
    joined_at: datetime
    left_at: datetime | None
    not_polling: list[str] = Field(description="tool sets for which it takes no work though some waits")
    not_polling_since: datetime | None


class WorkerDetail(Worker):
    """A scan worker with what it does now."""

    jobs: int = Field(description="jobs that it has in progress")
    deleted_at: datetime | None = Field(description="it is kept because attempts refer to it")


class WorkerActed(Answer):
    """What an act did to a worker; `changed`: it was not so before."""

    worker_id: UUID
    changed: bool


class WorkerRotation(Answer):
    """A worker that is to get a new credential."""

    worker_id: UUID
    rotation_asked_at: datetime


class Health(Answer):
    """Whether the process lives, or may be given requests."""

    status: Literal["ok", "unavailable"]
