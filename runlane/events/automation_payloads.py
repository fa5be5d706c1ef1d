"""Payloads of projects and statistics; `runlane.events.payloads` says the rules."""

from uuid import UUID

from runlane.events.payloads import Count, Payload, Text


class ProjectPayload(Payload):
    """What every event of a project says."""

    project_id: UUID
    name: Text


class ProjectAssets(ProjectPayload):
    """Assets came into a project, or left it. `sample`: some of them, at most a hundred."""

    assets: Count
    sample: tuple[UUID, ...]


class ProjectTriggerMatched(ProjectPayload):
    """An event is to start a run of a project. `cause`: the type of that event."""

    cause: Text
    definition_id: UUID


class ProjectRun(ProjectPayload):
    """What every event of a project's run says."""

    run_id: UUID
    reason: Text | None


class StatisticSnapshotCreated(Payload):
    """The figures of a workspace were kept as those of a day (in UTC)."""

    day: Text
    taken_at: Text
