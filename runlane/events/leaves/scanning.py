"""Branches of jobs, schedules and scan workers."""

from typing import Final

from runlane.events import payloads as p
from runlane.events import trail_payloads as t
from runlane.events.leaf import audited, transient
from runlane.events.policy import Severity

_SCHEDULES: Final = "runlane.db.schedules"
_FIRES: Final = "runlane.db.fires"
_VERDICTS: Final = "activities.verdicts"
_WORKERS: Final = "runlane.db.workers"


class _ScanSchedule:
    __slots__ = ()
    created: Final = audited("scan.schedule.created", p.ScheduleCreated, Severity.NONE, _SCHEDULES)
    updated: Final = audited("scan.schedule.updated", p.ScheduleUpdated, Severity.NONE, _SCHEDULES)
    deleted: Final = audited("scan.schedule.deleted", p.ScheduleDeleted, Severity.LOW, _SCHEDULES)
    fired: Final = transient("scan.schedule.fired", p.ScheduleFired, Severity.NONE, _FIRES)
    skipped: Final = transient(
        "scan.schedule.skipped", p.ScheduleSkipped, Severity.LOW, _FIRES, is_outbound=True
    )
    missed: Final = transient(
        "scan.schedule.missed", p.ScheduleMissed, Severity.MEDIUM, _FIRES, is_outbound=True
    )


class Scan:
    """Scans that begin by themselves."""

    __slots__ = ()
    schedule: Final = _ScanSchedule()


class _JobResult:
    __slots__ = ()
    cleaned: Final = transient(
        "job.result.cleaned", p.JobResultCleaned, Severity.NONE, "runlane.db.sweeps.staged", is_batchable=True
    )


class Job:
    """Units of work: one tool on one subject."""

    __slots__ = ()
    created: Final = transient(
        "job.created", p.JobCreated, Severity.NONE, "runlane.db.admit", is_batchable=True
    )
    started: Final = transient(
        "job.started", p.JobStarted, Severity.NONE, "runlane.db.claims", is_batchable=True
    )
    completed: Final = transient("job.completed", p.JobCompleted, Severity.NONE, _VERDICTS, is_batchable=True)
    failed: Final = transient(
        "job.failed", p.JobFailed, Severity.MEDIUM, _VERDICTS, is_outbound=True, is_batchable=True
    )
    skipped: Final = transient(
        "job.skipped", p.JobSkipped, Severity.NONE, "runlane.db.skips", is_batchable=True
    )
    cancelled: Final = audited(
        "job.cancelled", p.JobCancelled, Severity.INFO, "runlane.db.cancel", is_outbound=True,
        is_batchable=True,
    )  # fmt: skip
    retried: Final = transient("job.retried", p.JobRetried, Severity.NONE, _VERDICTS, is_batchable=True)
    released: Final = transient("job.released", p.JobReleased, Severity.NONE, _VERDICTS, is_batchable=True)
    reset_stuck: Final = transient(
        "job.reset_stuck", p.JobResetStuck, Severity.LOW, "runlane.db.sweeps.failed_merges",
        is_outbound=True, is_batchable=True,
    )  # fmt: skip
    result: Final = _JobResult()


class _WorkerNetwork:
    __slots__ = ()
    connected: Final = transient(
        "worker.network.connected", p.WorkerNetworkConnected, Severity.INFO, _WORKERS
    )
    disconnected: Final = transient("worker.network.disconnected", p.WorkerNetworkConnected, Severity.MEDIUM)


class _WorkerCommand:
    __slots__ = ()
    executed: Final = audited(
        "worker.command.executed", t.WorkerCommandExecuted, Severity.MEDIUM, "runlane.db.acts"
    )


class Worker:
    """Scan hosts."""

    __slots__ = ()
    joined: Final = transient("worker.joined", p.WorkerJoined, Severity.INFO, _WORKERS)
    left: Final = transient("worker.left", p.WorkerLeft, Severity.INFO, _WORKERS)
    timed_out: Final = transient("worker.timed_out", p.WorkerTimedOut, Severity.HIGH, _WORKERS)
    rejected: Final = transient("worker.rejected", p.WorkerRejected, Severity.HIGH, _WORKERS)
    credential_rotated: Final = audited(
        "worker.credential_rotated", p.WorkerCredentialRotated, Severity.LOW, "runlane.db.credentials"
    )
    network: Final = _WorkerNetwork()
    command: Final = _WorkerCommand()
