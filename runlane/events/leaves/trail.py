"""Branches of what people do to their workspace, and of what the platform does for the trail itself."""

from typing import Final

from runlane.events import payloads as p
from runlane.events import trail_payloads as t
from runlane.events.leaf import audited
from runlane.events.policy import Severity

_ACTS: Final = "runlane.db.acts"
_GROUPS: Final = "api.routes.groups"


class _WorkspaceConfig:
    __slots__ = ()
    updated: Final = audited("workspace.config.updated", t.ConfigUpdated, Severity.NONE, _ACTS)


class _WorkspaceApiKey:
    __slots__ = ()
    rotated: Final = audited("workspace.api_key.rotated", p.ApiKeyRotated, Severity.MEDIUM, "runlane.db.keys")


class Workspace:
    """Tenants."""

    __slots__ = ()
    created: Final = audited("workspace.created", p.WorkspaceCreated, Severity.NONE, "runlane.db.workspaces")
    updated: Final = audited("workspace.updated", t.WorkspaceUpdated, Severity.NONE)
    deleted: Final = audited("workspace.deleted", t.WorkspaceDeleted, Severity.HIGH)
    config: Final = _WorkspaceConfig()
    api_key: Final = _WorkspaceApiKey()


class _MemberInvitation:
    __slots__ = ()
    cancelled: Final = audited("member.invitation.cancelled", t.InvitationPayload, Severity.NONE)
    accepted: Final = audited("member.invitation.accepted", t.InvitationPayload, Severity.INFO)


class _MemberPermissions:
    __slots__ = ()
    updated: Final = audited("member.permissions.updated", t.MemberPermissionsUpdated, Severity.MEDIUM)


class Member:
    """People of a workspace."""

    __slots__ = ()
    invited: Final = audited("member.invited", t.InvitationPayload, Severity.INFO)
    removed: Final = audited("member.removed", t.MemberRemoved, Severity.LOW)
    invitation: Final = _MemberInvitation()
    permissions: Final = _MemberPermissions()


class PermissionGroup:
    """Named sets of permissions."""

    __slots__ = ()
    created: Final = audited("permission_group.created", t.PermissionGroupPayload, Severity.NONE)
    updated: Final = audited("permission_group.updated", t.PermissionGroupPayload, Severity.LOW)
    deleted: Final = audited("permission_group.deleted", t.PermissionGroupPayload, Severity.MEDIUM)


class ApiKey:
    """Keys of programs."""

    __slots__ = ()
    created: Final = audited("api_key.created", p.ApiKeyCreated, Severity.LOW, "runlane.db.keys")
    revoked: Final = audited("api_key.revoked", p.ApiKeyRevoked, Severity.LOW, "runlane.db.keys")


class Network:
    """Internal networks."""

    __slots__ = ()
    created: Final = audited("network.created", t.NetworkPayload, Severity.NONE, _ACTS)
    deleted: Final = audited("network.deleted", t.NetworkPayload, Severity.LOW, _ACTS)


class AssetGroup:
    """Groups of targets."""

    __slots__ = ()
    created: Final = audited("asset_group.created", t.AssetGroupPayload, Severity.NONE, _GROUPS)
    updated: Final = audited("asset_group.updated", t.AssetGroupPayload, Severity.NONE, _GROUPS)
    deleted: Final = audited("asset_group.deleted", t.AssetGroupPayload, Severity.NONE, _GROUPS)


class Tool:
    """Tools that a workspace brings itself."""

    __slots__ = ()
    installed: Final = audited("tool.installed", t.ToolPayload, Severity.NONE, _ACTS)
    uninstalled: Final = audited("tool.uninstalled", t.ToolPayload, Severity.NONE, _ACTS)


class Operator:
    """What people do to runs, steps and jobs."""

    __slots__ = ()
    acted: Final = audited("operator.acted", p.OperatorActed, Severity.INFO, _ACTS)


class Report:
    """Reports."""

    __slots__ = ()
    generated: Final = audited("report.generated", t.ReportPayload, Severity.INFO)
    exported: Final = audited("report.exported", t.ReportPayload, Severity.NONE)
    deleted: Final = audited("report.deleted", t.ReportPayload, Severity.NONE)


class Audit:
    """The audit trail."""

    __slots__ = ()
    exported: Final = audited("audit.exported", t.AuditExported, Severity.LOW)
