"""The sweeps of the system: what runs how often, and what a turn of one says. Pure.

A sweep is a list of parts, done one after another; each goes on turn by turn until it is done.
Sources: Job registry, When something goes wrong and Retention.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Part(StrEnum):
    """One thing that is looked for."""

    SILENT_WORKERS = "silent_workers"
    MISSING_POLLS = "missing_polls"
    LATE_NUDGES = "late_nudges"
    LOST_WORKFLOWS = "lost_workflows"
    ORPHANED_JOBS = "orphaned_jobs"
    SLOW_BATCHES = "slow_batches"
    FAILED_MERGES = "failed_merges"
    STALLED_RUNS = "stalled_runs"
    LATE_DELIVERIES = "late_deliveries"
    MISSED_FIRES = "missed_fires"
    OLD_JOBS = "old_jobs"
    STAGED_RESULTS = "staged_results"
    STAGED_OBJECTS = "staged_objects"
    UPLOADS = "uploads"
    PICTURES = "pictures"
    AUDIT_EVENTS = "audit_events"
    OUTBOX_DAYS = "outbox_days"
    OLD_ROWS = "old_rows"


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep: every so often, or once a day at this time (UTC) give or take."""

    name: str
    every: timedelta
    parts: tuple[Part, ...]
    sentence: str
    at: timedelta = timedelta(0)
    """How long after the start of each period it begins."""


MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

_ALL: Final = (
    Sweep(
        "workers",
        MINUTE,
        (Part.SILENT_WORKERS, Part.MISSING_POLLS),
        "takes scan workers off line that nobody has heard of for a minute, or that take no work though some "
        "waits; their jobs are released",
    ),
    Sweep(
        "stuck",
        MINUTE,
        (
            Part.LATE_NUDGES,
            Part.LOST_WORKFLOWS,
            Part.ORPHANED_JOBS,
            Part.SLOW_BATCHES,
            Part.FAILED_MERGES,
            Part.LATE_DELIVERIES,
        ),
        "starts lost workflows again, releases or merges jobs without owner, has merged what slow batches "
        "have staged, re-runs failed merges, has deliveries made that nobody makes",
    ),
    Sweep(
        "stalled",
        2 * MINUTE,
        (Part.STALLED_RUNS,),
        "asks runs to advance that are unfinished but have no live job",
    ),
    Sweep(
        "fires",
        2 * MINUTE,
        (Part.MISSED_FIRES,),
        "writes down fires of schedules that were missed, and has Temporal told of these schedules again",
    ),
    Sweep("outbox", HOUR, (Part.OUTBOX_DAYS,), "drops days of the outbox that everybody has handled"),
    Sweep(
        "uploads",
        10 * MINUTE,
        (Part.UPLOADS,),
        "removes what scan workers have uploaded and never staged, when its URL has expired",
    ),
    Sweep("jobs", DAY, (Part.OLD_JOBS,), "prunes old jobs in a final state", at=3 * HOUR),
    Sweep(
        "results",
        DAY,
        (Part.STAGED_RESULTS, Part.STAGED_OBJECTS),
        "removes staged results and objects that nobody needs any more",
        at=3 * HOUR + 20 * MINUTE,
    ),
    Sweep(
        "pictures",
        DAY,
        (Part.PICTURES,),
        "removes screenshots whose runs are gone, or that were never merged",
        at=3 * HOUR + 30 * MINUTE,
    ),
    Sweep("audit", DAY, (Part.AUDIT_EVENTS,), "archives old audit events", at=3 * HOUR + 40 * MINUTE),
    Sweep("rows", DAY, (Part.OLD_ROWS,), "prunes what else grows", at=4 * HOUR),
)

SWEEPS: Final[Mapping[str, Sweep]] = MappingProxyType({sweep.name: sweep for sweep in _ALL})
"""All sweeps by name."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, what was changed, and what could not be: that is looked at again next time."""

    examined: int = 0
    changed: int = 0
    failed: int = 0

    def __add__(self, other: "Report") -> "Report":
        return Report(
            self.examined + other.examined, self.changed + other.changed, self.failed + other.failed
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long things are kept, in days."""

    jobs_days: int = 180
    results_days: int = 30
    audit_days: int = 90
    commands_days: int = 7
    deliveries_days: int = 30
    notifications_days: int = 30
    statistics_days: int = 800
    idempotency_days: int = 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the sweeps are told by settings."""

    keep: Retention = Retention()
    poll_s: float = 60.0
    """How long a scan worker may let work wait that it could take."""
