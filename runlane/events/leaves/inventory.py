"""Branches of the inventory: targets, assets, findings, issues."""

from typing import Final

from runlane.events import inventory_payloads as i
from runlane.events import payloads as p
from runlane.events import trail_payloads as t
from runlane.events.leaf import audited, transient
from runlane.events.policy import Severity

_ACTS: Final = "runlane.db.acts"
_MERGE: Final = "runlane.db.inventory.announcements"
_CHANGES: Final = "runlane.db.inventory.changes"


class _TargetScan:
    __slots__ = ()
    started: Final = transient("target.scan.started", i.TargetScanPayload, Severity.NONE)
    completed: Final = transient(
        "target.scan.completed", i.TargetScanPayload, Severity.INFO, is_outbound=True
    )
    failed: Final = transient("target.scan.failed", i.TargetScanPayload, Severity.MEDIUM, is_outbound=True)


class Target:
    """What may be scanned."""

    __slots__ = ()
    created: Final = audited(
        "target.created", p.TargetCreated, Severity.INFO, "runlane.db.targets", is_outbound=True
    )
    updated: Final = audited("target.updated", t.TargetUpdated, Severity.NONE, _ACTS)
    deleted: Final = audited("target.deleted", t.TargetDeleted, Severity.LOW, is_outbound=True)
    scan: Final = _TargetScan()


class _AssetService:
    __slots__ = ()
    discovered: Final = transient(
        "asset.service.discovered", p.AssetServiceDiscovered, Severity.INFO, _MERGE, is_outbound=True,
        is_batchable=True,
    )  # fmt: skip
    closed: Final = transient(
        "asset.service.closed", i.AssetServicePayload, Severity.NONE, _CHANGES, is_batchable=True
    )


class _AssetPort:
    __slots__ = ()
    opened: Final = transient(
        "asset.port.opened", p.AssetPortOpened, Severity.LOW, _MERGE, is_outbound=True, is_batchable=True
    )
    closed: Final = transient(
        "asset.port.closed", i.AssetPortClosed, Severity.NONE, _CHANGES, is_batchable=True
    )


class _AssetUrl:
    __slots__ = ()
    discovered: Final = transient(
        "asset.url.discovered", p.AssetUrlDiscovered, Severity.NONE, _MERGE, is_batchable=True
    )


class _AssetTechnology:
    __slots__ = ()
    detected: Final = transient(
        "asset.technology.detected", p.AssetTechnologyDetected, Severity.NONE, _MERGE, is_batchable=True
    )


class _AssetCertificate:
    __slots__ = ()
    expired: Final = transient(
        "asset.certificate.expired", i.AssetCertificateExpired, Severity.MEDIUM, is_outbound=True,
        is_batchable=True,
    )  # fmt: skip


class _AssetScreenshot:
    __slots__ = ()
    captured: Final = transient(
        "asset.screenshot.captured", i.AssetScreenshotCaptured, Severity.NONE, _MERGE, is_batchable=True
    )


class Asset:
    """What scans found at a target."""

    __slots__ = ()
    discovered: Final = transient(
        "asset.discovered", p.AssetDiscovered, Severity.INFO, _MERGE, is_outbound=True, is_batchable=True
    )
    updated: Final = transient("asset.updated", i.AssetUpdated, Severity.NONE, _CHANGES, is_batchable=True)
    disappeared: Final = transient(
        "asset.disappeared", i.AssetPayload, Severity.LOW, _CHANGES, is_outbound=True, is_batchable=True
    )
    deleted: Final = audited("asset.deleted", i.AssetPayload, Severity.LOW, is_outbound=True)
    service: Final = _AssetService()
    port: Final = _AssetPort()
    url: Final = _AssetUrl()
    technology: Final = _AssetTechnology()
    certificate: Final = _AssetCertificate()
    screenshot: Final = _AssetScreenshot()


class _VulnerabilityStatus:
    __slots__ = ()
    updated: Final = audited(
        "vulnerability.status.updated", i.VulnerabilityStatusUpdated, Severity.INFO, is_outbound=True
    )


class _VulnerabilityAnalysis:
    __slots__ = ()
    completed: Final = transient(
        "vulnerability.analysis.completed", i.VulnerabilityAnalysis, Severity.INFO, is_outbound=True
    )
    failed: Final = transient(
        "vulnerability.analysis.failed", i.VulnerabilityAnalysis, Severity.LOW, is_outbound=True
    )


class Vulnerability:
    """Findings."""

    __slots__ = ()
    detected: Final = transient(
        "vulnerability.detected", p.VulnerabilityDetected, Severity.HIGH, _MERGE, is_outbound=True
    )
    reopened: Final = transient(
        "vulnerability.reopened", i.VulnerabilityPayload, Severity.MEDIUM, _CHANGES, is_outbound=True
    )
    resolved: Final = transient(
        "vulnerability.resolved", i.VulnerabilityPayload, Severity.INFO, _CHANGES, is_outbound=True
    )
    bulk_updated: Final = audited(
        "vulnerability.bulk_updated", i.VulnerabilitiesUpdated, Severity.INFO, is_outbound=True
    )
    status: Final = _VulnerabilityStatus()
    analysis: Final = _VulnerabilityAnalysis()


class Issue:
    """What people discuss about findings."""

    __slots__ = ()
    created: Final = transient("issue.created", i.IssuePayload, Severity.INFO, is_outbound=True)
    closed: Final = transient("issue.closed", i.IssuePayload, Severity.INFO, is_outbound=True)
    reopened: Final = transient("issue.reopened", i.IssuePayload, Severity.INFO, is_outbound=True)
    commented: Final = transient("issue.commented", i.IssueCommented, Severity.INFO, is_outbound=True)
