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

AUDITED: Final = True
TRANSIENT: Final = False


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


def _leaf(
    name: str, payload: type[PayloadT], producer: str, persist: bool, severity: Severity
) -> Leaf[PayloadT]:
    return Leaf(name, payload, Policy(persist, severity), producer)


class _Workspace:
    __slots__ = ()
    created: Final = _leaf(
        "workspace.created", p.WorkspaceCreated, "runlane.db.workspaces", AUDITED, Severity.NONE
    )


class _ApiKey:
    __slots__ = ()
    created: Final = _leaf("api_key.created", p.ApiKeyCreated, "runlane.db.keys", AUDITED, Severity.LOW)
    revoked: Final = _leaf("api_key.revoked", p.ApiKeyRevoked, "runlane.db.keys", AUDITED, Severity.LOW)


class _Target:
    __slots__ = ()
    created: Final = _leaf("target.created", p.TargetCreated, "runlane.db.targets", AUDITED, Severity.INFO)


class _JobResult:
    __slots__ = ()
    cleaned: Final = _leaf("job.result.cleaned", p.JobResultCleaned, RESERVED, TRANSIENT, Severity.NONE)


class _Job:
    __slots__ = ()
    created: Final = _leaf("job.created", p.JobCreated, "runlane.db.admit", TRANSIENT, Severity.NONE)
    started: Final = _leaf("job.started", p.JobStarted, "runlane.db.claims", TRANSIENT, Severity.NONE)
    completed: Final = _leaf("job.completed", p.JobCompleted, "activities.verdicts", TRANSIENT, Severity.NONE)
    failed: Final = _leaf("job.failed", p.JobFailed, "activities.verdicts", TRANSIENT, Severity.MEDIUM)
    skipped: Final = _leaf("job.skipped", p.JobSkipped, "runlane.db.runs", TRANSIENT, Severity.NONE)
    cancelled: Final = _leaf("job.cancelled", p.JobCancelled, "runlane.db.cancel", AUDITED, Severity.INFO)
    retried: Final = _leaf("job.retried", p.JobRetried, "activities.verdicts", TRANSIENT, Severity.NONE)
    released: Final = _leaf("job.released", p.JobReleased, "activities.verdicts", TRANSIENT, Severity.NONE)
    reset_stuck: Final = _leaf("job.reset_stuck", p.JobResetStuck, RESERVED, TRANSIENT, Severity.LOW)
    result: Final = _JobResult()


class _WorkflowRun:
    __slots__ = ()
    started: Final = _leaf("workflow.run.started", p.RunPayload, "runlane.db.runs", TRANSIENT, Severity.NONE)
    completed: Final = _leaf(
        "workflow.run.completed", p.RunPayload, "runlane.db.runs", TRANSIENT, Severity.INFO
    )
    failed: Final = _leaf("workflow.run.failed", p.RunPayload, "runlane.db.runs", TRANSIENT, Severity.MEDIUM)
    cancelled: Final = _leaf(
        "workflow.run.cancelled", p.RunPayload, "runlane.db.cancel", TRANSIENT, Severity.INFO
    )


class _WorkflowStep:
    __slots__ = ()
    completed: Final = _leaf(
        "workflow.step.completed", p.StepPayload, "runlane.db.runs", TRANSIENT, Severity.NONE
    )
    failed: Final = _leaf("workflow.step.failed", p.StepPayload, "runlane.db.runs", TRANSIENT, Severity.LOW)


class _Workflow:
    __slots__ = ()
    run: Final = _WorkflowRun()
    step: Final = _WorkflowStep()


_MERGE: Final = "runlane.db.inventory.announcements"


class _AssetService:
    __slots__ = ()
    discovered: Final = _leaf(
        "asset.service.discovered", p.AssetServiceDiscovered, _MERGE, TRANSIENT, Severity.INFO
    )


class _AssetPort:
    __slots__ = ()
    opened: Final = _leaf("asset.port.opened", p.AssetPortOpened, _MERGE, TRANSIENT, Severity.LOW)


class _AssetUrl:
    __slots__ = ()
    discovered: Final = _leaf("asset.url.discovered", p.AssetUrlDiscovered, _MERGE, TRANSIENT, Severity.NONE)


class _AssetTechnology:
    __slots__ = ()
    detected: Final = _leaf(
        "asset.technology.detected", p.AssetTechnologyDetected, _MERGE, TRANSIENT, Severity.NONE
    )


class _Asset:
    __slots__ = ()
    discovered: Final = _leaf("asset.discovered", p.AssetDiscovered, _MERGE, TRANSIENT, Severity.INFO)
    service: Final = _AssetService()
    port: Final = _AssetPort()
    url: Final = _AssetUrl()
    technology: Final = _AssetTechnology()


class _Vulnerability:
    __slots__ = ()
    detected: Final = _leaf(
        "vulnerability.detected", p.VulnerabilityDetected, _MERGE, TRANSIENT, Severity.HIGH
    )


class _Worker:
    __slots__ = ()
    joined: Final = _leaf("worker.joined", p.WorkerJoined, "runlane.db.workers", TRANSIENT, Severity.INFO)
    left: Final = _leaf("worker.left", p.WorkerLeft, "runlane.db.workers", TRANSIENT, Severity.INFO)
    timed_out: Final = _leaf(
        "worker.timed_out", p.WorkerTimedOut, "runlane.db.workers", TRANSIENT, Severity.HIGH
    )
    rejected: Final = _leaf(
        "worker.rejected", p.WorkerRejected, "runlane.db.workers", TRANSIENT, Severity.HIGH
    )


class _Catalog:
    __slots__ = ()
    workspace: Final = _Workspace()
    api_key: Final = _ApiKey()
    target: Final = _Target()
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
