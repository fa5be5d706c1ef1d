"""Branches of workflows, projects and statistics."""

from typing import Final

from runlane.events import automation_payloads as a
from runlane.events import payloads as p
from runlane.events import trail_payloads as t
from runlane.events.leaf import audited, transient
from runlane.events.policy import Severity

_ACTS: Final = "runlane.db.acts"
_RUNS: Final = "runlane.db.runs"
_MEMBERSHIPS: Final = "runlane.db.memberships"
_PROJECTS: Final = "runlane.db.projects"
_PROJECT_RUNS: Final = "runlane.db.project_runs"
_CANCEL: Final = "runlane.db.cancel"


class _WorkflowRun:
    __slots__ = ()
    started: Final = transient("workflow.run.started", p.RunPayload, Severity.NONE, _RUNS)
    completed: Final = transient(
        "workflow.run.completed", p.RunPayload, Severity.INFO, _RUNS, is_outbound=True
    )
    failed: Final = transient("workflow.run.failed", p.RunPayload, Severity.MEDIUM, _RUNS, is_outbound=True)
    cancelled: Final = transient(
        "workflow.run.cancelled", p.RunPayload, Severity.INFO, _CANCEL, is_outbound=True
    )


class _WorkflowStep:
    __slots__ = ()
    completed: Final = transient("workflow.step.completed", p.StepPayload, Severity.NONE, _RUNS)
    failed: Final = transient("workflow.step.failed", p.StepPayload, Severity.LOW, _RUNS, is_outbound=True)
    cancelled: Final = transient(
        "workflow.step.cancelled", p.StepPayload, Severity.INFO, _CANCEL, is_outbound=True
    )


class _WorkflowTrigger:
    __slots__ = ()
    stopped: Final = transient(
        "workflow.trigger.stopped", p.TriggerStopped, Severity.LOW, "runlane.db.triggers", is_outbound=True
    )


class Workflow:
    """Saved definitions and their runs."""

    __slots__ = ()
    created: Final = audited("workflow.created", t.WorkflowPayload, Severity.NONE, _ACTS)
    updated: Final = audited("workflow.updated", t.WorkflowPayload, Severity.NONE, _ACTS)
    deleted: Final = audited("workflow.deleted", t.WorkflowPayload, Severity.NONE, _ACTS)
    run: Final = _WorkflowRun()
    step: Final = _WorkflowStep()
    trigger: Final = _WorkflowTrigger()


class _ProjectAssets:
    __slots__ = ()
    added: Final = transient(
        "project.assets.added", a.ProjectAssets, Severity.INFO, _MEMBERSHIPS, is_outbound=True
    )
    removed: Final = transient("project.assets.removed", a.ProjectAssets, Severity.NONE, _MEMBERSHIPS)


class _ProjectTrigger:
    __slots__ = ()
    matched: Final = transient(
        "project.trigger.matched", a.ProjectTriggerMatched, Severity.NONE, "runlane.db.project_triggers"
    )


class _ProjectRun:
    __slots__ = ()
    started: Final = transient("project.run.started", a.ProjectRun, Severity.NONE, _PROJECT_RUNS)
    completed: Final = transient(
        "project.run.completed", a.ProjectRun, Severity.INFO, _PROJECT_RUNS, is_outbound=True
    )
    failed: Final = transient(
        "project.run.failed", a.ProjectRun, Severity.MEDIUM, _PROJECT_RUNS, is_outbound=True
    )


class Project:
    """Scopes of assets with runs of their own."""

    __slots__ = ()
    created: Final = audited("project.created", a.ProjectPayload, Severity.NONE, _PROJECTS)
    updated: Final = audited("project.updated", a.ProjectPayload, Severity.NONE, _PROJECTS)
    deleted: Final = audited("project.deleted", a.ProjectPayload, Severity.NONE, _PROJECTS)
    assets: Final = _ProjectAssets()
    trigger: Final = _ProjectTrigger()
    run: Final = _ProjectRun()


class _StatisticSnapshot:
    __slots__ = ()
    created: Final = transient(
        "statistic.snapshot.created", a.StatisticSnapshotCreated, Severity.NONE, "runlane.db.statistics"
    )


class Statistic:
    """Figures of a workspace over time."""

    __slots__ = ()
    snapshot: Final = _StatisticSnapshot()
