"""What is audited: exactly the events that the policy persists, which the import of the catalog checks."""

from typing import Final

AUDIT_ACTIONS: Final = frozenset(
    (
        "api_key.created",
        "api_key.revoked",
        "asset.deleted",
        "asset_group.created",
        "asset_group.deleted",
        "asset_group.updated",
        "audit.exported",
        "dead_letter.redriven",
        "integration.connected",
        "integration.disconnected",
        "integration.settings.updated",
        "job.cancelled",
        "member.invitation.accepted",
        "member.invitation.cancelled",
        "member.invited",
        "member.permissions.updated",
        "member.removed",
        "network.created",
        "network.deleted",
        "permission_group.created",
        "permission_group.deleted",
        "permission_group.updated",
        "project.created",
        "project.deleted",
        "project.updated",
        "report.deleted",
        "report.exported",
        "report.generated",
        "scan.schedule.updated",
        "target.created",
        "target.deleted",
        "target.updated",
        "tool.installed",
        "tool.uninstalled",
        "vulnerability.bulk_updated",
        "vulnerability.status.updated",
        "worker.command.executed",
        "workflow.created",
        "workflow.deleted",
        "workflow.updated",
        "workspace.api_key.rotated",
        "workspace.config.updated",
        "workspace.created",
        "workspace.deleted",
        "workspace.updated",
    )
)
"""The 45 audit actions of the document. Source: Event bridge, Domains in the catalog."""

OWN_AUDIT_ACTIONS: Final = frozenset(
    (
        "operator.acted",
        "scan.schedule.created",
        "scan.schedule.deleted",
        "worker.credential_rotated",
    )
)
"""Audit actions that the document does not count: see ADR 0017."""
