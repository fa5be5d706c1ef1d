"""Bodies of the calls of scan workers. Unknown fields are refused: a worker is never ahead of the API.

A field that comes with a protocol version has a default until the version before is not spoken any more.
"""

from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from runlane.db import staging, workers
from runlane.events import scrub_text
from runlane.jobs import CLAIM_CAP, Outcome
from runlane.storage import MAX_OBJECT_BYTES
from runlane.tools import Category, Toolset
from runlane.tools.clean import clean, clean_text

MAX_TAIL_LINE = 2_000
MAX_TAIL_LINES = 200
"""Lines that a worker may send of one job at once."""

Slots = Annotated[int, Field(ge=1, le=1000)]
Attempt = Annotated[int, Field(ge=1, lt=2**31)]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[\x20-\x7e]+$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class JoinHead(BaseModel):
    """What every version of a join says. It is read first: a newer one may say what is not known here."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    protocol: int
    incarnation: UUID


class JoinBody(_Body):
    """Who joins."""

    name: ShortText
    toolsets: list[Toolset] = Field(min_length=1, max_length=20)
    slots: dict[Toolset, Slots]
    version: ShortText
    protocol: int
    incarnation: UUID
    tools: dict[ShortText, ShortText] = Field({}, max_length=100)

    @model_validator(mode="after")
    def _has_slots_for_all(self) -> Self:
        if set(self.slots) != set(self.toolsets):
            raise ValueError("slots must name exactly the tool sets")
        return self

    @property
    def life(self) -> workers.Life:
        """As the database functions know it."""
        slots = {toolset.value: count for toolset, count in self.slots.items()}
        return workers.Life(
            self.name, sorted(slots), slots, self.version, self.protocol, self.incarnation, self.tools
        )


class RunningJob(_Body):
    """A job in the worker's hand."""

    job_id: UUID
    attempt: Attempt


class HeartbeatBody(_Body):
    """What runs on the worker now."""

    slots_free: int = Field(ge=0, description="batches that it could take")
    draining: bool
    running: list[RunningJob] = Field(max_length=20_000)


class ClaimBody(_Body):
    """Which dispatch, by which activity task, with how much room."""

    dispatch_id: UUID
    claim_key: Annotated[str, StringConstraints(max_length=300, pattern=r"^[\x21-\x7e]+$")]
    slots: int = Field(ge=1, le=CLAIM_CAP)


class UploadBody(_Body):
    """A result that is too large for the call."""

    dispatch_id: UUID
    size: int = Field(ge=1, le=MAX_OBJECT_BYTES)
    sha256: Sha256


class ObjectBody(_Body):
    """A result that was uploaded."""

    key: Annotated[str, StringConstraints(max_length=300)]
    size: int = Field(ge=1, le=MAX_OBJECT_BYTES)
    sha256: Sha256


class MemberBody(_Body):
    """How one job ended."""

    job_id: UUID
    attempt: Attempt
    outcome: Literal["completed", "tool_failed", "timed_out", "fatal", "rejected"]
    error: str | None
    complete: bool
    reachable: bool
    coverage: dict[str, object]
    argv: list[str] | None
    tool_version: ShortText | None

    @property
    def staged(self) -> staging.StagedMember:
        """As the database function knows it, with everything of outside origin cleaned."""
        coverage = clean(self.coverage)
        return staging.StagedMember(
            job_id=self.job_id,
            attempt=self.attempt,
            outcome=Outcome(self.outcome),
            error=clean_text(self.error) if self.error else None,
            complete=self.complete,
            reachable=self.reachable,
            coverage=coverage if isinstance(coverage, dict) else {},
            argv=[clean_text(text) for text in self.argv] if self.argv else None,
            tool_version=self.tool_version,
        )


class TailBody(_Body):
    """Lines that a running job has written; the first of them has this number."""

    job_id: UUID
    attempt: Attempt
    first: int = Field(ge=0, lt=2**53)
    lines: list[Annotated[str, StringConstraints(max_length=MAX_TAIL_LINE)]] = Field(
        min_length=1, max_length=MAX_TAIL_LINES
    )

    @property
    def shown(self) -> list[str]:
        """The lines as anybody may see them."""
        return [scrub_text(clean_text(line)) for line in self.lines]


class ResultsBody(_Body):
    """Outcomes of jobs of one dispatch, and what they found: inline, uploaded, or nothing."""

    dispatch_id: UUID
    incarnation: UUID = Field(description="the life that claimed the jobs: a later one may deliver for it")
    category: Category
    members: list[MemberBody] = Field(min_length=1, max_length=CLAIM_CAP)
    body: str | None = None
    object: ObjectBody | None = None

    @model_validator(mode="after")
    def _has_one_body(self) -> Self:
        if self.body is not None and self.object is not None:
            raise ValueError("a result is either inline or uploaded")
        return self
