"""Acts of operators: who did what to runs and jobs, and why, as an audited event in the same transaction."""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from runlane import names
from runlane.events import EVENT_CATALOG, Actor, Envelope, envelope, scrub_text
from runlane.events.payloads import OperatorActed


class Action(StrEnum):
    """What a person may do, as `operator.acted` names it."""

    RUN_CANCEL = "run.cancel"
    RUN_PRIORITY = "run.priority"
    RUN_RERUN = "run.rerun"
    RUN_RESUME = "run.resume"
    STEP_CANCEL = "step.cancel"
    STEP_PRIORITY = "step.priority"
    CONNECTOR = "connector.add"
    CONNECTOR_DISABLE = "connector.disable"
    CONNECTOR_ENABLE = "connector.enable"
    DEFINITION = "definition.save"
    DEFINITION_DELETE = "definition.delete"
    CONFIG_PROFILE = "config_profile.save"
    CONFIG_PROFILE_DELETE = "config_profile.delete"
    GROUP = "group.save"
    GROUP_DELETE = "group.delete"
    GROUP_MEMBERS = "group.members"
    JOB_CANCEL = "job.cancel"
    JOB_PRIORITY = "job.priority"
    JOB_RERUN = "job.rerun"
    JOB_REMERGE = "job.remerge"
    JOBS_CANCEL = "jobs.cancel"
    JOBS_CANCEL_ABORT = "jobs.cancel.abort"
    BLACKOUT = "blackout.set"
    BLACKOUT_REMOVE = "blackout.remove"
    EXCLUSION = "exclusion.set"
    EXCLUSION_REMOVE = "exclusion.remove"
    LIMIT = "limit.set"
    LIMIT_REMOVE = "limit.remove"
    NETWORK = "network.save"
    NETWORK_DELETE = "network.delete"
    PAUSE = "pause.set"
    PAUSE_LIFT = "pause.lift"
    RATE = "rate.set"
    RATE_REMOVE = "rate.remove"
    SECRET = "secret.set"  # noqa: S105  # what is done, not to what
    SECRET_REMOVE = "secret.remove"  # noqa: S105  # likewise
    SCHEDULE_RUN = "schedule.run"
    TARGET_NETWORK = "target.network"
    TARGETS_TAG = "targets.tag"
    WORKER_DELETE = "worker.delete"
    WORKER_DRAIN = "worker.drain"
    WORKER_UNDRAIN = "worker.undrain"
    WORKER_REVOKE = "worker.revoke"
    WORKER_ROTATE = "worker.rotate"


@dataclass(frozen=True, slots=True)
class Act:
    """Who acts, and why. `name` is what people call the actor."""

    actor: Actor | None = None
    name: str | None = None
    reason: str | None = None

    @property
    def clean_reason(self) -> str | None:
        """The reason with what looks like a credential masked: it is stored and published."""
        return scrub_text(self.reason) if self.reason else None


@dataclass(frozen=True, slots=True)
class StepOfRun:
    """A step that somebody acts on."""

    workspace_id: UUID
    run_id: UUID
    step_id: str

    @property
    def subject(self) -> str:
        """CloudEvents subject of the step."""
        return names.step_subject(self.run_id, self.step_id)


@dataclass(frozen=True, slots=True)
class Deed:
    """What was done to what. `ordinal` tells deeds of one action on one subject apart."""

    action: Action
    workspace_id: UUID
    subject: str
    ordinal: str = ""
    run_id: UUID | None = None
    step_id: str | None = None
    job_id: UUID | None = None
    value: str | None = None
    jobs: int | None = None


def acted(act: Act, deed: Deed) -> Envelope:
    """The event of a deed; the same deed has the same id."""
    payload = OperatorActed(
        action=deed.action,
        run_id=deed.run_id,
        step_id=deed.step_id,
        job_id=deed.job_id,
        value=deed.value,
        jobs=deed.jobs,
        reason=act.clean_reason,
    )
    return envelope(
        EVENT_CATALOG.operator.acted,
        payload,
        workspace_id=deed.workspace_id,
        subject=deed.subject,
        ordinal=f"{deed.action}/{deed.ordinal}",
        actor=act.actor,
    )
