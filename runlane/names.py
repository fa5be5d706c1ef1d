"""Every name that leaves the process: ids, task queues, workflow ids, keys, headers.

Nothing else in the repository spells one of these out, so a rename is one line and a reader can
find both ends of a name.
"""

from typing import Final
from uuid import UUID, uuid5

TEMPORAL_NAMESPACE: Final = "default"

# Temporal task queues
CORE_QUEUE: Final = "core"
RESULT_QUEUE: Final = "job-result"
"""Queue of the merge. Source: Job registry, Results."""
SWEEP_QUEUE: Final = "sweeps"
"""Queue of the parts of sweeps; served by the process of the merge, which has the bucket."""
DELIVERY_QUEUE: Final = "deliveries"
"""Queue of what is sent to endpoints outside of the platform."""

# Workflow and activity types, by name where the other side must not import us
RUN_WORKFLOW: Final = "RunWorkflow"
STEP_SHARD_WORKFLOW: Final = "StepShard"
SWEEP_WORKFLOW: Final = "Sweep"
SCHEDULE_FIRE_WORKFLOW: Final = "ScheduleFire"
DELIVER_WORKFLOW: Final = "Deliver"
RUN_BATCH_ACTIVITY: Final = "run_batch"
NUDGE_SIGNAL: Final = "nudge"

# Redis
EVENT_STREAM: Final = "oasm:events"
"""The bus. Source: Event bridge."""
DLQ_PREFIX: Final = "oasm:events:dlq:"
DLQ_INDEX_PREFIX: Final = "oasm:events:dlqindex:"
"""Which events have their copy on a dead-letter stream, and since when."""
EVENT_SOURCE: Final = "oasm://core-api"

# PostgreSQL
CONTROL_CHANNEL: Final = "runlane_control"
"""NOTIFY channel that carries control messages to the API replica holding a worker's stream."""
OUTBOX_CHANNEL: Final = "runlane_outbox"
"""NOTIFY channel that wakes the outbox relay."""
TAILS_CHANNEL: Final = "runlane_tails"
"""NOTIFY channel that carries lines of running jobs to the API replicas where somebody looks at them."""
COMMANDS_CHANNEL: Final = "runlane_commands"
"""NOTIFY channel that wakes the command relay."""
OPERATIONS_CHANNEL: Final = "runlane_operations"
"""NOTIFY channel that wakes whoever carries on operations on many jobs."""
WORKERS_CHANNEL: Final = "runlane_workers"
"""NOTIFY channel that tells gateways whose row to look at: the id of a worker."""

# S3
RESULTS_BUCKET: Final = "job-results"
"""Bucket of staged results. Source: Job registry, Results."""
AUDIT_BUCKET: Final = "audit-archive"
"""Bucket of audit events that have left the database."""
PICTURES_BUCKET: Final = "screenshots"
"""Bucket of the pictures that runs have taken; they stay as long as their rows."""

# Labels of containers
CONTAINER_HOME: Final = "runlane.home"
"""State folder of the worker. Whoever holds the folder knows: all that carry it are its own, or orphans."""
CONTAINER_INCARNATION: Final = "runlane.incarnation"
CONTAINER_WORKER: Final = "runlane.worker"
CONTAINER_RUN: Final = "runlane.run"
CONTAINER_JOB: Final = "runlane.job"
CONTAINER_ATTEMPT: Final = "runlane.attempt"

# Search attributes
SA_WORKSPACE: Final = "WorkspaceId"
SA_PROJECT: Final = "ProjectId"
SA_RUN_KIND: Final = "RunKind"
SA_RUN_STATUS: Final = "RunStatus"
SA_TOOLS: Final = "Tools"

# HTTP
WORKER_INCARNATION_HEADER: Final = "X-Runlane-Incarnation"
GATEWAY_INCARNATION_KEY: Final = "runlane-incarnation"
"""The same in a call to the gateway, as metadata of gRPC."""
REQUEST_ID_HEADER: Final = "X-Request-Id"
WORKER_PROTOCOL: Final = 1
"""Version of what a scan host and the API say to each other. A host with another one is refused."""

# Codes of problems that our own clients act on
IN_FLIGHT_CODE: Final = "idempotency.in_flight"
WORKER_TOKEN_CODE: Final = "worker.token"  # noqa: S105  # a code, not a token
ROTATION_NOT_DUE_CODE: Final = "worker.rotation_not_due"
IDENTITY_CONFLICT_CODE: Final = "worker.identity_conflict"

SCAN_QUEUE_PREFIX: Final = "scan."
NETWORK_PART: Final = ".net-"
"""Parts of the task queues of scan workers; statements build the rest from rows."""
SHARED_QUEUE_PREFIX: Final = "scan.shared."
"""Start of the task queues of shared scan workers."""

RUN_PREFIX: Final = "run/"
"""Start of a run's workflow id and subject; statements build the rest from its row."""
JOB_PREFIX: Final = "job/"
"""Start of a job's subject, likewise."""

TRIGGER_PREFIX: Final = "trigger/"
"""Start of the id of what gathers the events that start runs of a definition."""

SCHEDULE_PREFIX: Final = "schedule/"
"""Start of the id and subject of a workspace's schedule, and of the workflow ids of its fires."""

DELIVER_PREFIX: Final = "deliver/"
"""Start of the id of the workflow that delivers to an endpoint."""

_EVENT_NAMESPACE: Final = UUID("6f0c6a1e-5d0b-5c56-9d42-3f2a55b0a9d1")


def run_workflow_id(run_id: UUID) -> str:
    """Workflow id of a run: the same for start, restart and resume, so that Temporal refuses twins."""
    return f"{RUN_PREFIX}{run_id}"


def shard_workflow_id(run_id: UUID, step_id: str, number: int) -> str:
    """Workflow id of one shard of a step."""
    return f"{RUN_PREFIX}{run_id}/{step_id}/{number}"


def sweep_schedule_id(sweep: str) -> str:
    """Id of the schedule of a sweep; the ids of its workflows begin with it."""
    return f"sweep/{sweep}"


def schedule_id(schedule_id: UUID) -> str:
    """Id in Temporal of a workspace's schedule."""
    return f"{SCHEDULE_PREFIX}{schedule_id}"


def schedule_of(temporal_id: str) -> UUID:
    """The schedule that has this id in Temporal."""
    return UUID(temporal_id.removeprefix(SCHEDULE_PREFIX))


def fire_workflow_id(schedule_id: UUID) -> str:
    """Start of the workflow ids of a schedule's fires; Temporal appends the nominal time."""
    return f"{SCHEDULE_PREFIX}{schedule_id}/fire"


def scan_queue(workspace_id: UUID, toolset: str, network_id: UUID | None = None) -> str:
    """Task queue of a workspace's own scan workers: an eligibility class."""
    network = f"{NETWORK_PART}{network_id}" if network_id else ""
    return f"{SCAN_QUEUE_PREFIX}{workspace_id}{network}.{toolset}"


def shared_scan_queue(toolset: str) -> str:
    """Task queue of the scan workers that all willing workspaces share."""
    return f"{SHARED_QUEUE_PREFIX}{toolset}"


def job_subject(job_id: UUID) -> str:
    """CloudEvents subject of a job."""
    return f"{JOB_PREFIX}{job_id}"


def result_subject(result_ref: str) -> str:
    """CloudEvents subject of a staged result: by its id, or by the key of an object without a row."""
    return f"result/{result_ref}"


def run_subject(run_id: UUID) -> str:
    """CloudEvents subject of a run."""
    return f"{RUN_PREFIX}{run_id}"


def step_subject(run_id: UUID, step_id: str) -> str:
    """CloudEvents subject of a step."""
    return f"{RUN_PREFIX}{run_id}/{step_id}"


def definition_subject(definition_id: UUID) -> str:
    """CloudEvents subject of a saved definition."""
    return f"definition/{definition_id}"


def config_profile_subject(profile_id: UUID) -> str:
    """CloudEvents subject of a profile of options."""
    return f"config-profile/{profile_id}"


def secret_subject(secret_id: UUID) -> str:
    """CloudEvents subject of a secret."""
    return f"secret/{secret_id}"


def rate_subject(rate_id: UUID) -> str:
    """CloudEvents subject of a rate."""
    return f"rate/{rate_id}"


def schedule_subject(schedule_id: UUID) -> str:
    """CloudEvents subject of a schedule."""
    return f"{SCHEDULE_PREFIX}{schedule_id}"


def target_subject(target_id: UUID) -> str:
    """CloudEvents subject of a target."""
    return f"target/{target_id}"


def asset_subject(asset_id: UUID) -> str:
    """CloudEvents subject of an asset."""
    return f"asset/{asset_id}"


def service_subject(service_id: UUID) -> str:
    """CloudEvents subject of a service of an asset."""
    return f"service/{service_id}"


def url_subject(url_id: UUID) -> str:
    """CloudEvents subject of a URL that was found."""
    return f"url/{url_id}"


def vulnerability_subject(vulnerability_id: UUID) -> str:
    """CloudEvents subject of a finding."""
    return f"vulnerability/{vulnerability_id}"


def worker_subject(worker_id: UUID) -> str:
    """CloudEvents subject of a scan worker."""
    return f"worker/{worker_id}"


def workspace_subject(workspace_id: UUID) -> str:
    """CloudEvents subject of a workspace."""
    return f"workspace/{workspace_id}"


def pause_subject(pause_id: UUID) -> str:
    """CloudEvents subject of a pause."""
    return f"pause/{pause_id}"


def limit_subject(limit_id: UUID) -> str:
    """CloudEvents subject of a limit."""
    return f"limit/{limit_id}"


def blackout_subject(window_id: UUID) -> str:
    """CloudEvents subject of a blackout window."""
    return f"blackout/{window_id}"


def connector_subject(connector_id: UUID) -> str:
    """CloudEvents subject of a connector."""
    return f"connector/{connector_id}"


def network_subject(network_id: UUID) -> str:
    """CloudEvents subject of an internal network."""
    return f"network/{network_id}"


def group_subject(group_id: UUID) -> str:
    """CloudEvents subject of a group of targets."""
    return f"group/{group_id}"


def exclusion_subject(exclusion_id: UUID) -> str:
    """CloudEvents subject of an exclusion."""
    return f"exclusion/{exclusion_id}"


def dead_letter_subject(letter_id: UUID) -> str:
    """CloudEvents subject of a dead letter."""
    return f"dead-letter/{letter_id}"


def notification_subject(notification_id: UUID) -> str:
    """CloudEvents subject of a notification."""
    return f"notification/{notification_id}"


def notification_rule_subject(rule_id: UUID) -> str:
    """CloudEvents subject of a rule, or of a mute, of notifications."""
    return f"notification-rule/{rule_id}"


def operation_subject(operation_id: UUID) -> str:
    """CloudEvents subject of an operation on many jobs."""
    return f"operation/{operation_id}"


def api_key_subject(key_id: UUID) -> str:
    """CloudEvents subject of an API key."""
    return f"api_key/{key_id}"


def id_in(subject: str) -> UUID:
    """The id of what a subject of the form `kind/id` is about."""
    return UUID(subject.rpartition("/")[2])


def project_subject(project_id: UUID) -> str:
    """CloudEvents subject of a project."""
    return f"project/{project_id}"


def integration_subject(integration_id: UUID) -> str:
    """CloudEvents subject of an endpoint outside of the platform."""
    return f"integration/{integration_id}"


def integration_of(workflow_id: str) -> UUID:
    """The endpoint that a workflow of this id delivers to."""
    return UUID(workflow_id.removeprefix(DELIVER_PREFIX))


def picture_key(workspace_id: UUID, run_id: UUID, job_id: UUID, attempt: int) -> str:
    """Key of the picture that one attempt has taken."""
    return f"{workspace_id}/{run_id}/{job_id}-{attempt}.png"


def event_id(event_type: str, subject: str, ordinal: int | str = 0) -> UUID:
    """Deterministic event id: a repeated transaction yields the same id, so sinks can drop the twin.

    `ordinal` tells occurrences on one subject apart (the attempt of a job, for example).
    """
    return uuid5(_EVENT_NAMESPACE, f"{event_type}/{subject}/{ordinal}")
