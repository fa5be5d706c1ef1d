"""What a scan worker and the API say to each other, as the worker sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runlane.errors import Defect
from runlane.jobs import Outcome


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """Who joins: sent at each start with a fresh incarnation."""

    name: str
    toolsets: tuple[str, ...]
    slots: Mapping[str, int]
    """Batches at once, by tool set."""
    version: str
    protocol: int
    incarnation: str
    tools: Mapping[str, str] = field(default_factory=dict)
    """Versions of the tools that are foreign programs."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A Temporal task queue that this worker may poll, and with how many batches at once."""

    toolset: str
    task_queue: str
    slots: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The API's answer to a join."""

    worker_id: str
    token: str | None = field(repr=False)
    """Only at the enrolment; never shown again."""
    heartbeat_s: float
    queues: tuple[Queue, ...]
    temporal_address: str
    temporal_namespace: str
    inline_bytes: int
    """Results up to this size travel in the call; larger ones through the bucket."""
    api_protocol: int = 0
    """Version of the protocol that the API speaks besides this worker's; 0 if it does not say so."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a worker says of itself every few seconds."""

    slots_free: int
    """Batches that it could take."""
    is_draining: bool
    running: Sequence[tuple[str, int]]
    """Jobs in hand with their attempts."""


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """What the API says to a heartbeat."""

    cancels: tuple[tuple[str, int], ...]
    """Jobs, with attempts, that are no longer this worker's."""
    must_rotate: bool
    """The worker is to ask for a new credential."""


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """One job that is now this worker's, at this attempt."""

    job_id: str
    attempt: int
    target: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Claimed:
    """Answer to a claim."""

    tool_id: str = ""
    category: str = ""
    run_id: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    """The same for every job of a batch."""
    jobs: tuple[ClaimedJob, ...] = ()
    """None if the batch has nothing left to do; then the rest is empty too."""
    connector: Mapping[str, object] | None = None
    """Manifest of the tool if it is a connector, as somebody has written it."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values that options refer to by name; never written down, and masked in all that a tool says."""


@dataclass(frozen=True, slots=True)
class Member:
    """How one job of a batch ended, with what it found."""

    job_id: str
    attempt: int
    outcome: Outcome
    error: str | None = None
    complete: bool = False
    reachable: bool = False
    coverage: Mapping[str, object] = field(default_factory=dict)
    records: tuple[bytes, ...] = ()
    """Records as JSON texts, in order of appearance."""
    argv: tuple[str, ...] = ()
    """What was run; empty if nothing was."""


@dataclass(frozen=True, slots=True)
class StagedObject:
    """A result that was uploaded: where it is and what it must be."""

    key: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """Which jobs the API took, and which had gone on without us."""

    accepted: tuple[str, ...]
    stale: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UploadSlot:
    """Where one result may be uploaded, for a quarter of an hour."""

    url: str = field(repr=False)
    key: str


def read_joined(raw: Mapping[str, object]) -> Joined:
    """Reads the answer to a join."""
    temporal = _mapping(raw, "temporal")
    queues = tuple(
        Queue(_text(queue, "toolset"), _text(queue, "task_queue"), _integer(queue, "slots"))
        for queue in _mappings(raw, "queues")
    )
    return Joined(
        worker_id=_text(raw, "worker_id"),
        token=_optional_text(raw, "token"),
        heartbeat_s=_number(raw, "heartbeat_s"),
        queues=queues,
        temporal_address=_text(temporal, "address"),
        temporal_namespace=_text(temporal, "namespace"),
        inline_bytes=_integer(raw, "inline_bytes"),
        api_protocol=_integer({"protocol": 0, **raw}, "protocol"),
    )


def read_claimed(raw: Mapping[str, object]) -> Claimed:
    """Reads the answer to a claim."""
    jobs = tuple(
        ClaimedJob(_text(job, "job_id"), _integer(job, "attempt"), _mapping(job, "spec"))
        for job in _mappings(raw, "jobs")
    )
    if not jobs:
        return Claimed()
    return Claimed(
        tool_id=_text(raw, "tool_id"),
        category=_text(raw, "category"),
        run_id=_text(raw, "run_id"),
        options=_mapping(raw, "options"),
        jobs=jobs,
        connector=_mapping(raw, "connector") if raw.get("connector") is not None else None,
        secrets={name: str(value) for name, value in _mapping({"secrets": {}, **raw}, "secrets").items()},
    )


def read_stage_answer(raw: Mapping[str, object]) -> StageAnswer:
    """Reads the answer to a delivery of results."""
    return StageAnswer(tuple(_texts(raw, "accepted")), tuple(_texts(raw, "stale")))


def read_upload_slot(raw: Mapping[str, object]) -> UploadSlot:
    """Reads the answer to a request for an upload."""
    return UploadSlot(_text(raw, "url"), _text(raw, "key"))


def read_beat_answer(raw: Mapping[str, object]) -> BeatAnswer:
    """Reads the answer to a heartbeat."""
    pairs = ((_text(pair, "job_id"), _integer(pair, "attempt")) for pair in _mappings(raw, "cancel"))
    return BeatAnswer(tuple(pairs), raw.get("rotate") is True)


def read_credential(raw: Mapping[str, object]) -> str:
    """Reads the answer to a request for a new token."""
    return _text(raw, "token")


def _value(raw: Mapping[str, object], name: str) -> object:
    if name not in raw:
        raise Defect(f"the API's answer lacks {name}")
    return raw[name]


def _text(raw: Mapping[str, object], name: str) -> str:
    value = _value(raw, name)
    if not isinstance(value, str):
        raise Defect(f"the API's answer: {name} is no text")
    return value


def _optional_text(raw: Mapping[str, object], name: str) -> str | None:
    return None if raw.get(name) is None else _text(raw, name)


def _integer(raw: Mapping[str, object], name: str) -> int:
    value = _value(raw, name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Defect(f"the API's answer: {name} is no whole number")
    return value


def _number(raw: Mapping[str, object], name: str) -> float:
    value = _value(raw, name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Defect(f"the API's answer: {name} is no number")
    return float(value)


def _mapping(raw: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = _value(raw, name)
    if not isinstance(value, dict):
        raise Defect(f"the API's answer: {name} is no object")
    return value


def _mappings(raw: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    value = _value(raw, name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Defect(f"the API's answer: {name} is no list of objects")
    return value


def _texts(raw: Mapping[str, object], name: str) -> list[str]:
    value = _value(raw, name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Defect(f"the API's answer: {name} is no list of texts")
    return value
