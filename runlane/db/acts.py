"""Acts of people: who did what to what, and why, as an audited event in the same transaction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar
from uuid import UUID

from runlane import names
from runlane.events import EVENT_CATALOG, Actor, Envelope, Leaf, envelope, scrub_text
from runlane.events.leaf import PayloadT
from runlane.events.payloads import OperatorActed
from runlane.events.trail_payloads import ActPayload

ActT = TypeVar("ActT", bound=ActPayload)


class Action(StrEnum):
    """What a person may do, as the event of it names it."""

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
    DEFINITION_CREATE = "definition.create"
    DEFINITION_DELETE = "definition.delete"
    CONFIG_PROFILE = "config_profile.save"
    CONFIG_PROFILE_DELETE = "config_profile.delete"
    DELIVERY_REPLAY = "delivery.replay"
    DELIVERIES_REPLAY = "deliveries.replay"
    DEAD_LETTERS_PURGE = "dead_letters.purge"
    DEAD_LETTERS_REDRIVE = "dead_letters.redrive"
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
    NETWORK_CREATE = "network.create"
    NETWORK_DELETE = "network.delete"
    NOTIFICATION_RULE = "notification.rule.save"
    NOTIFICATION_RULE_REMOVE = "notification.rule.remove"
    NOTIFICATION_MUTE = "notification.mute"
    NOTIFICATION_UNMUTE = "notification.unmute"
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
    """The event of a deed; the same deed has the same id. What is done to a run is `operator.acted`."""
    made = _operator_acted if deed.run_id else _EVENTS.get(deed.action, _operator_acted)
    return made(act, deed)


def _operator_acted(act: Act, deed: Deed) -> Envelope:
    payload = OperatorActed(
        action=deed.action,
        run_id=deed.run_id,
        step_id=deed.step_id,
        job_id=deed.job_id,
        value=deed.value,
        jobs=deed.jobs,
        reason=act.clean_reason,
    )
    return _event(EVENT_CATALOG.operator.acted, payload, act, deed)


def _as(leaf: Leaf[ActT]) -> Callable[[Act, Deed], Envelope]:
    """Makes events of one leaf."""

    def event(act: Act, deed: Deed) -> Envelope:
        payload = leaf.payload(
            action=deed.action,
            resource_id=names.id_in(deed.subject),
            value=deed.value,
            jobs=deed.jobs,
            reason=act.clean_reason,
        )
        return _event(leaf, payload, act, deed)

    return event


def _event(leaf: Leaf[PayloadT], payload: PayloadT, act: Act, deed: Deed) -> Envelope:
    return envelope(
        leaf,
        payload,
        workspace_id=deed.workspace_id,
        subject=deed.subject,
        ordinal=f"{deed.action}/{deed.ordinal}",
        actor=act.actor,
    )


_CONFIG: Final = _as(EVENT_CATALOG.workspace.config.updated)
_COMMAND: Final = _as(EVENT_CATALOG.worker.command.executed)
_TARGET: Final = _as(EVENT_CATALOG.target.updated)
_INSTALLED: Final = _as(EVENT_CATALOG.tool.installed)

_EVENTS: Final[Mapping[Action, Callable[[Act, Deed], Envelope]]] = {
    Action.CONNECTOR: _INSTALLED,
    Action.CONNECTOR_ENABLE: _INSTALLED,
    Action.CONNECTOR_DISABLE: _as(EVENT_CATALOG.tool.uninstalled),
    Action.DEFINITION_CREATE: _as(EVENT_CATALOG.workflow.created),
    Action.DEFINITION: _as(EVENT_CATALOG.workflow.updated),
    Action.DEFINITION_DELETE: _as(EVENT_CATALOG.workflow.deleted),
    Action.NETWORK_CREATE: _as(EVENT_CATALOG.network.created),
    Action.NETWORK_DELETE: _as(EVENT_CATALOG.network.deleted),
    Action.TARGET_NETWORK: _TARGET,
    Action.TARGETS_TAG: _TARGET,
    **dict.fromkeys(
        (
            Action.BLACKOUT,
            Action.BLACKOUT_REMOVE,
            Action.CONFIG_PROFILE,
            Action.CONFIG_PROFILE_DELETE,
            Action.EXCLUSION,
            Action.EXCLUSION_REMOVE,
            Action.LIMIT,
            Action.LIMIT_REMOVE,
            Action.NETWORK,
            Action.NOTIFICATION_MUTE,
            Action.NOTIFICATION_RULE,
            Action.NOTIFICATION_RULE_REMOVE,
            Action.NOTIFICATION_UNMUTE,
            Action.PAUSE,
            Action.PAUSE_LIFT,
            Action.RATE,
            Action.RATE_REMOVE,
            Action.SECRET,
            Action.SECRET_REMOVE,
        ),
        _CONFIG,
    ),
    **dict.fromkeys(
        (
            Action.WORKER_DELETE,
            Action.WORKER_DRAIN,
            Action.WORKER_UNDRAIN,
            Action.WORKER_REVOKE,
            Action.WORKER_ROTATE,
        ),
        _COMMAND,
    ),
}
"""What has a name of its own in the trail; the rest, to runs, steps and jobs, is `operator.acted`."""
