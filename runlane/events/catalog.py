"""Every event that there is: a closed tree whose path is the name, `EVENT_CATALOG.job.created`.

Names are `<domain>.<action>` or `<domain>.<part>.<action>`, lower case, past tense. A misspelt leaf is a type
error; a leaf cannot be declared without payload, policy and producer. A leaf whose producer is `RESERVED` has
its name and shape settled, but nothing may publish it yet. Source: Event bridge, The contract.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from runlane.errors import UnknownEvent
from runlane.events import payloads as p
from runlane.events.policy import Policy, Severity

PayloadT = TypeVar("PayloadT", bound=p.Payload)

RESERVED: Final = ""
"""Producer of a leaf that nothing publishes yet."""

NAME: Final = re.compile(r"[a-z_]+(?:\.[a-z_]+){1,2}")
"""Grammar of event names (full match)."""


@dataclass(frozen=True, slots=True)
class Leaf(Generic[PayloadT]):
    """One kind of event. `producer` is the module that publishes it."""

    name: str
    payload: type[PayloadT]
    policy: Policy
    producer: str

    @property
    def is_reserved(self) -> bool:
        """Whether publishing it is refused for now."""
        return self.producer == RESERVED


def _audited(severity: Severity) -> Policy:
    return Policy(persist=True, severity=severity)


def _transient(severity: Severity) -> Policy:
    return Policy(persist=False, severity=severity)


class _Workspace:
    __slots__ = ()
    created: Final = Leaf(
        "workspace.created", p.WorkspaceCreated, _audited(Severity.NONE), "runlane.db.workspaces"
    )


class _ApiKey:
    __slots__ = ()
    created: Final = Leaf("api_key.created", p.ApiKeyCreated, _audited(Severity.LOW), "runlane.db.keys")
    rotated: Final = Leaf("api_key.rotated", p.ApiKeyRotated, _audited(Severity.LOW), "runlane.db.keys")
    revoked: Final = Leaf("api_key.revoked", p.ApiKeyRevoked, _audited(Severity.LOW), "runlane.db.keys")


class _Target:
    __slots__ = ()
    created: Final = Leaf("target.created", p.TargetCreated, _audited(Severity.INFO), "runlane.db.targets")


class _ScanSchedule:
    __slots__ = ()
    created: Final = Leaf(
        "scan.schedule.created", p.ScheduleCreated, _audited(Severity.NONE), "runlane.db.schedules"
    )
    updated: Final = Leaf(
        "scan.schedule.updated", p.ScheduleUpdated, _audited(Severity.NONE), "runlane.db.schedules"
    )
    deleted: Final = Leaf(
        "scan.schedule.deleted", p.ScheduleDeleted, _audited(Severity.LOW), "runlane.db.schedules"
    )
    fired: Final = Leaf("scan.schedule.fired", p.ScheduleFired, _transient(Severity.NONE), "runlane.db.fires")
    skipped: Final = Leaf(
        "scan.schedule.skipped", p.ScheduleSkipped, _transient(Severity.LOW), "runlane.db.fires"
    )
    missed: Final = Leaf(
        "scan.schedule.missed", p.ScheduleMissed, _transient(Severity.MEDIUM), "runlane.db.fires"
    )


class _Scan:
    __slots__ = ()
    schedule: Final = _ScanSchedule()


class _Operator:
    __slots__ = ()
    acted: Final = Leaf("operator.acted", p.OperatorActed, _audited(Severity.INFO), "runlane.db.acts")


class _JobResult:
    __slots__ = ()
    cleaned: Final = Leaf(
        "job.result.cleaned", p.JobResultCleaned, _transient(Severity.NONE), "runlane.db.sweeps.staged"
    )


class _Job:
    __slots__ = ()
    created: Final = Leaf("job.created", p.JobCreated, _transient(Severity.NONE), "runlane.db.admit")
    started: Final = Leaf("job.started", p.JobStarted, _transient(Severity.NONE), "runlane.db.claims")
    completed: Final = Leaf("job.completed", p.JobCompleted, _transient(Severity.NONE), "activities.verdicts")
    failed: Final = Leaf("job.failed", p.JobFailed, _transient(Severity.MEDIUM), "activities.verdicts")
    skipped: Final = Leaf("job.skipped", p.JobSkipped, _transient(Severity.NONE), "runlane.db.skips")
    cancelled: Final = Leaf("job.cancelled", p.JobCancelled, _audited(Severity.INFO), "runlane.db.cancel")
    retried: Final = Leaf("job.retried", p.JobRetried, _transient(Severity.NONE), "activities.verdicts")
    released: Final = Leaf("job.released", p.JobReleased, _transient(Severity.NONE), "activities.verdicts")
    reset_stuck: Final = Leaf(
        "job.reset_stuck", p.JobResetStuck, _transient(Severity.LOW), "runlane.db.sweeps.failed_merges"
    )
    result: Final = _JobResult()


class _WorkflowRun:
    __slots__ = ()
    started: Final = Leaf("workflow.run.started", p.RunPayload, _transient(Severity.NONE), "runlane.db.runs")
    completed: Final = Leaf(
        "workflow.run.completed", p.RunPayload, _transient(Severity.INFO), "runlane.db.runs"
    )
    failed: Final = Leaf("workflow.run.failed", p.RunPayload, _transient(Severity.MEDIUM), "runlane.db.runs")
    cancelled: Final = Leaf(
        "workflow.run.cancelled", p.RunPayload, _transient(Severity.INFO), "runlane.db.cancel"
    )


class _WorkflowStep:
    __slots__ = ()
    completed: Final = Leaf(
        "workflow.step.completed", p.StepPayload, _transient(Severity.NONE), "runlane.db.runs"
    )
    failed: Final = Leaf("workflow.step.failed", p.StepPayload, _transient(Severity.LOW), "runlane.db.runs")
    cancelled: Final = Leaf(
        "workflow.step.cancelled", p.StepPayload, _transient(Severity.INFO), "runlane.db.cancel"
    )


class _WorkflowTrigger:
    __slots__ = ()
    stopped: Final = Leaf(
        "workflow.trigger.stopped", p.TriggerStopped, _transient(Severity.LOW), "runlane.db.triggers"
    )


class _Workflow:
    __slots__ = ()
    run: Final = _WorkflowRun()
    step: Final = _WorkflowStep()
    trigger: Final = _WorkflowTrigger()


_MERGE: Final = "runlane.db.inventory.announcements"


class _AssetService:
    __slots__ = ()
    discovered: Final = Leaf(
        "asset.service.discovered", p.AssetServiceDiscovered, _transient(Severity.INFO), _MERGE
    )


class _AssetPort:
    __slots__ = ()
    opened: Final = Leaf("asset.port.opened", p.AssetPortOpened, _transient(Severity.LOW), _MERGE)


class _AssetUrl:
    __slots__ = ()
    discovered: Final = Leaf("asset.url.discovered", p.AssetUrlDiscovered, _transient(Severity.NONE), _MERGE)


class _AssetTechnology:
    __slots__ = ()
    detected: Final = Leaf(
        "asset.technology.detected", p.AssetTechnologyDetected, _transient(Severity.NONE), _MERGE
    )


class _Asset:
    __slots__ = ()
    discovered: Final = Leaf("asset.discovered", p.AssetDiscovered, _transient(Severity.INFO), _MERGE)
    service: Final = _AssetService()
    port: Final = _AssetPort()
    url: Final = _AssetUrl()
    technology: Final = _AssetTechnology()


class _Vulnerability:
    __slots__ = ()
    detected: Final = Leaf(
        "vulnerability.detected", p.VulnerabilityDetected, _transient(Severity.HIGH), _MERGE
    )


class _WorkerNetwork:
    __slots__ = ()
    connected: Final = Leaf(
        "worker.network.connected",
        p.WorkerNetworkConnected,
        _transient(Severity.INFO),
        "runlane.db.workers",
    )


class _Worker:
    __slots__ = ()
    joined: Final = Leaf("worker.joined", p.WorkerJoined, _transient(Severity.INFO), "runlane.db.workers")
    left: Final = Leaf("worker.left", p.WorkerLeft, _transient(Severity.INFO), "runlane.db.workers")
    timed_out: Final = Leaf(
        "worker.timed_out", p.WorkerTimedOut, _transient(Severity.HIGH), "runlane.db.workers"
    )
    rejected: Final = Leaf(
        "worker.rejected", p.WorkerRejected, _transient(Severity.HIGH), "runlane.db.workers"
    )
    credential_rotated: Final = Leaf(
        "worker.credential_rotated",
        p.WorkerCredentialRotated,
        _audited(Severity.LOW),
        "runlane.db.credentials",
    )
    network: Final = _WorkerNetwork()


class _Catalog:
    __slots__ = ()
    workspace: Final = _Workspace()
    api_key: Final = _ApiKey()
    target: Final = _Target()
    scan: Final = _Scan()
    operator: Final = _Operator()
    job: Final = _Job()
    workflow: Final = _Workflow()
    asset: Final = _Asset()
    vulnerability: Final = _Vulnerability()
    worker: Final = _Worker()


EVENT_CATALOG: Final = _Catalog()
"""The tree. Producers name its leaves, never strings."""


def _walk(node: object, path: tuple[str, ...]) -> Iterator[tuple[str, Leaf[p.Payload]]]:
    for word, child in vars(type(node)).items():
        if isinstance(child, Leaf):
            yield ".".join((*path, word)), child
        elif not word.startswith("__"):
            yield from _walk(child, (*path, word))


def _leaves() -> Mapping[str, Leaf[p.Payload]]:
    found: dict[str, Leaf[p.Payload]] = {}
    for path, leaf in _walk(EVENT_CATALOG, ()):
        if leaf.name != path or not NAME.fullmatch(path):
            raise UnknownEvent(f"the leaf at {path} calls itself {leaf.name}")
        found[path] = leaf
    return MappingProxyType(found)


LEAVES: Final = _leaves()
"""All leaves by name; the import fails when a name is not its path."""

EVENT_POLICY: Final[Mapping[str, Policy]] = MappingProxyType(
    {name: leaf.policy for name, leaf in LEAVES.items()}
)
"""Policy by name, complete by construction."""


def find_leaf(name: str) -> Leaf[p.Payload] | None:
    """The leaf of that name, None if the catalog has none (any more)."""
    return LEAVES.get(name)


def require_publishable(name: str) -> None:
    """Checks that a producer may publish this event.

    Raises:
        UnknownEvent: the catalog does not declare it, or it is reserved.
    """
    leaf = LEAVES.get(name)
    if leaf is None:
        raise UnknownEvent(f"no event {name!r} in the catalog")
    if leaf.is_reserved:
        raise UnknownEvent(f"event {name!r} is reserved: nothing may publish it yet")
