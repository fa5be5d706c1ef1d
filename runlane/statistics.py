"""Statistics by day: which metrics there are, and what each event adds to them. Pure.

A counter is a sum over events, so neither their order nor their portions change it. A gauge is what was there
when the snapshot of a day was taken. Days are those of UTC, and of the event, not of its arrival.
Source: Event bridge, Lanes; Job registry, the events of a run.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from runlane.errors import Invalid
from runlane.events import BusEvent, Envelope
from runlane.tools.vulnerabilities import Severity

MAX_DAYS: Final = 400
"""Days of one answer."""

COUNTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "target.created": "targets.created",
        "asset.discovered": "assets.discovered",
        "asset.disappeared": "assets.disappeared",
        "asset.port.opened": "ports.opened",
        "asset.port.closed": "ports.closed",
        "asset.service.discovered": "services.discovered",
        "asset.service.closed": "services.closed",
        "asset.url.discovered": "urls.discovered",
        "asset.technology.detected": "technologies.detected",
        "job.created": "jobs.created",
        "job.completed": "jobs.completed",
        "job.failed": "jobs.failed",
        "job.skipped": "jobs.skipped",
        "job.cancelled": "jobs.cancelled",
        "job.retried": "jobs.retried",
        "job.released": "jobs.released",
        "scan.schedule.fired": "schedules.fired",
        "scan.schedule.missed": "schedules.missed",
        "workflow.run.started": "runs.started",
        "workflow.run.completed": "runs.completed",
        "workflow.run.failed": "runs.failed",
        "workflow.run.cancelled": "runs.cancelled",
        "vulnerability.detected": "findings.detected",
        "vulnerability.reopened": "findings.reopened",
        "vulnerability.resolved": "findings.resolved",
    }
)
"""The counter that each event adds one to; that of a finding has its severity behind it."""

SUMMED: Final = ("assets", "ports", "services")
"""What a summary counts, but for open findings by severity."""

_TARGET: Final = frozenset(
    {"target.created", "asset.discovered", "asset.updated", "asset.disappeared", "asset.deleted"}
)
_ASSET: Final = frozenset(
    {"asset.port.opened", "asset.port.closed", "asset.service.discovered", "asset.service.closed"}
    | {"vulnerability.detected", "vulnerability.reopened", "vulnerability.resolved"}
    | {"vulnerability.status.updated"}
)
_RUN: Final = frozenset(f"workflow.run.{what}" for what in ("started", "completed", "failed", "cancelled"))

READ: Final = frozenset(COUNTED) | _TARGET | _ASSET | _RUN
"""Types of events that change a statistic or a summary."""


class Kind(StrEnum):
    """How the days of a metric make a week or a month: counts are added, of gauges the last one stays."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Granularity(StrEnum):
    """How much time a point of a statistic stands for."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def _metrics() -> dict[str, Kind]:
    counters = [each for each in COUNTED.values() if not each.startswith("findings.")]
    counters += [
        f"{each}.{severity}"
        for each in COUNTED.values()
        if each.startswith("findings.")
        for severity in Severity
    ]
    gauges = [f"live.{each}" for each in SUMMED] + [f"live.findings.{severity}" for severity in Severity]
    return dict.fromkeys(counters, Kind.COUNTER) | dict.fromkeys(["live.targets", *gauges], Kind.GAUGE)


METRICS: Final[Mapping[str, Kind]] = MappingProxyType(_metrics())
"""Every metric there is."""


def choose(words: Iterable[str]) -> list[str]:
    """Metrics that are called so, or begin with a word and a dot (`findings`); all of them for no words.

    Raises:
        Invalid: `statistic.unknown`.
    """
    chosen: set[str] = set()
    for word in words:
        found = {metric for metric in METRICS if metric == word or metric.startswith(f"{word}.")}
        if not found:
            raise Invalid(f"no metric is called {word[:64]}, or begins so", code="statistic.unknown")
        chosen |= found
    return sorted(chosen or METRICS)


class Cell(NamedTuple):
    """A counter of a workspace on a day."""

    workspace_id: UUID
    day: date
    metric: str


class Touched(NamedTuple):
    """Whose summaries may have changed: pairs of a workspace and a target, an asset, a run."""

    targets: set[tuple[UUID, UUID]]
    assets: set[tuple[UUID, UUID]]
    runs: set[tuple[UUID, UUID]]


def count(events: Iterable[BusEvent]) -> Counter[Cell]:
    """What events add to the counters.

    Raises:
        Invalid: the severity of a finding is none.
    """
    counted: Counter[Cell] = Counter()
    for event in events:
        sent = event.envelope
        if sent.type in COUNTED:
            counted[Cell(sent.workspace_id, event.time.astimezone(UTC).date(), _metric(sent))] += 1
    return counted


def touched(events: Iterable[BusEvent]) -> Touched:
    """Whose summaries events may have changed.

    Raises:
        Invalid: an event lacks the id of what it is about.
    """
    found = Touched(set(), set(), set())
    for sent in (event.envelope for event in events):
        if sent.type in _TARGET:
            found.targets.add((sent.workspace_id, _id(sent, "target_id")))
        elif sent.type in _ASSET:
            found.assets.add((sent.workspace_id, _id(sent, "asset_id")))
        elif sent.type in _RUN:
            found.runs.add((sent.workspace_id, _id(sent, "run_id")))
    return found


def _metric(sent: Envelope) -> str:
    metric = COUNTED[sent.type]
    if not metric.startswith("findings."):
        return metric
    try:
        return f"{metric}.{Severity(str(sent.data.get('severity')))}"
    except ValueError as error:
        raise Invalid("a finding without a severity", code="event.malformed") from error


def _id(sent: Envelope, name: str) -> UUID:
    try:
        return UUID(str(sent.data.get(name)))
    except ValueError as error:
        raise Invalid(f"{sent.type} without {name}", code="event.malformed") from error
