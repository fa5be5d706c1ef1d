"""The `data` of each event, one frozen model per shape.

Ids and facts only: what a consumer needs to decide whether to read the row. A field is required even when
it may be null, so that a producer cannot forget it. Removing or retyping a field is a breaking change
(`EVENT_SCHEMA_VERSION`); a new optional field is not.
"""

import re
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from runlane.events.scrub import scrub_text

EVENT_SCHEMA_VERSION: Final = 1
"""Version of all payloads, for breaking changes only. Source: Event bridge, The contract."""

MAX_TEXT: Final = 4096
"""Characters of a text in a payload; the rest is cut."""

MAX_ERROR: Final = 2000
"""Characters of an error in a payload; the rest is cut."""

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def _storable(text: str, limit: int) -> str:
    cut = text[:limit]
    return cut if cut.isascii() and "\x00" not in cut else _UNSTORABLE.sub("\ufffd", cut)


def _text(value: object) -> object:
    return _storable(value, MAX_TEXT) if isinstance(value, str) else value


def _error(value: object) -> object:
    # masked before it is cut: half a token may look like none
    return _storable(scrub_text(value), MAX_ERROR) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_text)]
"""Text of outside origin: unstorable characters replaced, cut to `MAX_TEXT`. Never refused."""

ErrorText = Annotated[str, BeforeValidator(_error)]
"""As `Text`, with token-looking words masked, cut to `MAX_ERROR`."""

Count = Annotated[int, Field(ge=0)]
FindingSeverity = Literal["info", "low", "medium", "high", "critical"]


class Payload(BaseModel):
    """Base of all payloads."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class WorkspaceCreated(Payload):
    """A tenant exists."""

    workspace_id: UUID
    name: Text


class ApiKeyCreated(Payload):
    """An API key was made; the key itself is told once, to its maker."""

    key_id: UUID
    name: Text
    scopes: tuple[Text, ...]


class ApiKeyRevoked(Payload):
    """An API key is good for nothing any more."""

    key_id: UUID
    name: Text


class ApiKeyRotated(Payload):
    """An API key was replaced by another one and expires."""

    key_id: UUID
    name: Text
    replaced_by: UUID
    expires_at: Text


class TargetCreated(Payload):
    """Something may be scanned now. `kind`: domain, ip …; `network_id`: of its internal network."""

    target_id: UUID
    kind: Text
    value: Text
    network_id: UUID | None


class SchedulePayload(Payload):
    """What every event of a schedule says."""

    schedule_id: UUID
    name: Text


class ScheduleCreated(SchedulePayload):
    """A workspace has a new schedule."""


class ScheduleUpdated(SchedulePayload):
    """A person changed a schedule. `change`: edited, paused, resumed."""

    change: Text
    reason: Text | None


class ScheduleDeleted(SchedulePayload):
    """A schedule fires no more; its runs go on."""

    reason: Text | None


class ScheduleFired(SchedulePayload):
    """A fire started a run. `due_at`: its nominal time (RFC 3339)."""

    due_at: Text
    run_id: UUID


class ScheduleSkipped(SchedulePayload):
    """A fire starts no run, and why."""

    due_at: Text
    reason: Text


class ScheduleMissed(SchedulePayload):
    """Fires did not happen in time: so many, from the first to the last of their nominal times."""

    fires: Count
    first_due_at: Text
    last_due_at: Text


class JobPayload(Payload):
    """What every event of a job says. `attempt` is the fence of the claim in force, 0 before the first."""

    job_id: UUID
    run_id: UUID
    step_id: Text
    tool_id: Text
    attempt: Count


class JobCreated(JobPayload):
    """A job was admitted and is pending."""

    category: Text
    target_id: UUID | None
    asset_id: UUID | None


class JobStarted(JobPayload):
    """A worker claimed the job."""

    worker_id: UUID


class JobCompleted(JobPayload):
    """The result is merged. `new`: rows that the inventory did not have before."""

    records: Count
    quarantined: Count
    new: Count


class JobFailed(JobPayload):
    """Terminal. `reason`: fatal, budget, infrastructure, merge …; `failures`: charged attempts."""

    reason: Text
    error: ErrorText | None
    failures: Count


class JobRetried(JobPayload):
    """A charged attempt failed, or a person wants a final job once more; pending at `due_at` (RFC 3339).

    `retry_job_id`: the new job that is a re-run of this final one; null after a failed attempt.
    """

    failures: Count
    due_at: Text
    error: ErrorText | None
    retry_job_id: UUID | None


class OperatorActed(Payload):
    """A person acted on runs or jobs. `action`: run.cancel, job.rerun …; `value`: what was set or made."""

    action: Text
    run_id: UUID | None
    step_id: Text | None
    job_id: UUID | None
    value: Text | None
    jobs: Count | None
    reason: Text | None


class JobReleased(JobPayload):
    """Nobody's fault: the job is pending again. `free_attempts`: how often that happened so far."""

    outcome: Text
    free_attempts: Count


class JobSkipped(JobPayload):
    """It never ran. `reason`: `upstream_failed` (a step that it needs), `out_of_scope` (an exclusion)."""

    reason: Text


class JobCancelled(JobPayload):
    """A person or the end of the run stopped it; a late result is discarded."""

    reason: Text | None


class JobResetStuck(JobPayload):
    """The stuck sweep re-ran a job whose merge had failed. `retry_job_id`: the job that replaces it."""

    retry_job_id: UUID


class JobResultCleaned(Payload):
    """A staged result that nobody needed was removed. `run_id` is null of an object that no row knew."""

    result_ref: Text
    run_id: UUID | None


class RunPayload(Payload):
    """What every event of a run says. `kind`: what started it; `reason`: why it failed or was cancelled."""

    run_id: UUID
    name: Text
    kind: Text
    reason: Text | None


class StepPayload(Payload):
    """A step closed."""

    run_id: UUID
    step_id: Text
    tool_id: Text
    jobs_total: Count
    jobs_failed: Count


class TriggerStopped(Payload):
    """Events do not start a run of a definition, and why: `hop_limit`, or the code of the refusal.

    `cause`: an event of those that were gathered; `run_id`: a run that brought one about.
    """

    definition_id: UUID
    name: Text
    cause: Text
    reason: Text
    targets: Count
    run_id: UUID | None


class AssetDiscovered(Payload):
    """The inventory has a new asset."""

    asset_id: UUID
    target_id: UUID
    value: Text
    run_id: UUID


class AssetServiceDiscovered(Payload):
    """Something answers on a port of an asset."""

    service_id: UUID
    asset_id: UUID
    value: Text
    port: Annotated[int, Field(ge=1, le=65535)]
    protocol: Text


class AssetPortOpened(Payload):
    """A port that was closed or unknown is open."""

    asset_id: UUID
    address: Text
    port: Annotated[int, Field(ge=1, le=65535)]
    protocol: Text


class AssetUrlDiscovered(Payload):
    """A URL of an asset was seen for the first time."""

    url_id: UUID
    asset_id: UUID
    url: Text


class AssetTechnologyDetected(Payload):
    """A service runs a technology, or another version of it."""

    service_id: UUID
    name: Text
    version: Text | None


class VulnerabilityDetected(Payload):
    """A new finding. Its severity goes before that of the policy."""

    vulnerability_id: UUID
    asset_id: UUID
    check_id: Text
    severity: FindingSeverity
    url: Text | None


class WorkerPayload(Payload):
    """What every event of a worker of a workspace says."""

    worker_id: UUID
    name: Text


class WorkerJoined(WorkerPayload):
    """A scan worker is enrolled and connected."""

    toolsets: tuple[Text, ...]


class WorkerLeft(WorkerPayload):
    """A scan worker drained and went."""


class WorkerNetworkConnected(WorkerPayload):
    """A scan worker that is bound to an internal network is there for the first time."""

    network_id: UUID
    network: Text


class WorkerTimedOut(WorkerPayload):
    """A scan worker was lost; its jobs were released.

    Its stream broke, nobody heard of it, or it took no work though some waited for it.
    """

    reason: Literal["disconnected", "silent", "not_polling"]


class WorkerCredentialRotated(WorkerPayload):
    """A scan worker uses a new credential; the old one is good for nothing in a moment."""

    cause: Literal["asked", "age"]


class WorkerRejected(Payload):
    """A host was refused. `worker_id` is null when it gave no known one."""

    worker_id: UUID | None
    reason: Text


class DeadLetterCreated(Payload):
    """A lane has given an event up."""

    letter_id: UUID
    lane: str
    event_id: UUID
    event_type: str
    sequence: Count
    attempts: Count
    error: ErrorText


class DeadLetterRedriven(Payload):
    """The lane of a dead letter has handled it once more, or failed to."""

    letter_id: UUID
    lane: str
    event_id: UUID
    event_type: str
    sequence: Count
    has_succeeded: bool
    error: ErrorText | None
