"""Payloads of what people do to their workspace; `runlane.events.payloads` says the rules."""

from uuid import UUID

from pydantic import JsonValue

from runlane.events.payloads import Count, Payload, Text


class ActPayload(Payload):
    """What every event of a person's act says.

    `action`: what was done, as `runlane.db.acts` names it; `resource_id`: to what; `value`: what was set;
    `jobs`: how many that changed.
    """

    action: Text
    resource_id: UUID
    value: Text | None
    jobs: Count | None
    reason: Text | None


class RequestPayload(Payload):
    """What an event says that is a mirror of a request: what was asked for, and what was answered."""

    resource_id: UUID
    reason: Text | None
    changes: dict[str, JsonValue]
    metadata: dict[str, JsonValue]


class ConfigUpdated(ActPayload):
    """A rule, a secret or a profile of a workspace was set or removed; `resource_id` is its own."""


class WorkspaceUpdated(Payload):
    """A tenant has another name or other settings. `changes`: the names of what was changed."""

    workspace_id: UUID
    name: Text
    changes: tuple[Text, ...]


class WorkspaceDeleted(Payload):
    """A tenant is no more; its audit trail stays as long as any."""

    workspace_id: UUID
    name: Text


class InvitationPayload(Payload):
    """What every event of an invitation says."""

    invitation_id: UUID
    email: Text


class MemberRemoved(Payload):
    """A person is not of the workspace any more."""

    member_id: UUID
    name: Text


class MemberPermissionsUpdated(Payload):
    """A person may do more, or less. `groups`: the permission groups from now on."""

    member_id: UUID
    groups: tuple[Text, ...]


class PermissionGroupPayload(Payload):
    """What every event of a permission group says."""

    group_id: UUID
    name: Text
    permissions: tuple[Text, ...]


class TargetUpdated(ActPayload):
    """Targets have other tags, or one is in another network.

    `resource_id`: of the target, or of the workspace when it concerns many.
    """


class TargetDeleted(Payload):
    """Something may not be scanned any more."""

    target_id: UUID
    kind: Text
    value: Text


class AssetGroupPayload(RequestPayload):
    """A group of targets was made, changed or deleted. `metadata`: its name and its size from now on."""


class NetworkPayload(ActPayload):
    """An internal network was made or deleted."""


class WorkflowPayload(ActPayload):
    """A saved definition has its first or another version, or is deleted. `value`: name and version."""


class ToolPayload(ActPayload):
    """A tool that a workspace brings may be used, or may not any more. `value`: slug, version, digest."""


class WorkerCommandExecuted(ActPayload):
    """A person told a scan worker to drain, to go on, to change its credential, or to go."""


class ReportPayload(Payload):
    """What every event of a report says."""

    report_id: UUID
    name: Text


class AuditExported(Payload):
    """A part of the audit trail was taken out."""

    first_at: Text
    last_at: Text
    events: Count
