"""Events of what a merge found. Ordinals hold the run, so that a repeated transaction repeats their ids."""

from uuid import UUID

from runlane import names
from runlane.db.inventory.sightings import MergeJob
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.inventory_payloads import AssetScreenshotCaptured
from runlane.events.payloads import (
    AssetDiscovered,
    AssetPortOpened,
    AssetServiceDiscovered,
    AssetTechnologyDetected,
    AssetUrlDiscovered,
    VulnerabilityDetected,
)
from runlane.tools.http_probe import Technology
from runlane.tools.ports_scanner import PortRecord
from runlane.tools.url_discovery import UrlRecord
from runlane.tools.vulnerabilities import FindingRecord


def asset_discovered(workspace_id: UUID, payload: AssetDiscovered) -> Envelope:
    """`asset.discovered`."""
    return envelope(
        EVENT_CATALOG.asset.discovered,
        payload,
        workspace_id=workspace_id,
        subject=names.asset_subject(payload.asset_id),
        ordinal=str(payload.run_id),
    )


def port_opened(job: MergeJob, asset_id: UUID, record: PortRecord) -> Envelope:
    """`asset.port.opened`. The subject is the asset, so the ordinal also says which port."""
    return envelope(
        EVENT_CATALOG.asset.port.opened,
        AssetPortOpened(
            asset_id=asset_id, address=record.address, port=record.port, protocol=record.protocol
        ),
        workspace_id=job.workspace_id,
        subject=names.asset_subject(asset_id),
        ordinal=f"{job.run_id}/{record.address}/{record.port}/{record.protocol}",
    )


def service_discovered(job: MergeJob, payload: AssetServiceDiscovered) -> Envelope:
    """`asset.service.discovered`."""
    return envelope(
        EVENT_CATALOG.asset.service.discovered,
        payload,
        workspace_id=job.workspace_id,
        subject=names.service_subject(payload.service_id),
        ordinal=str(job.run_id),
    )


def technology_detected(job: MergeJob, service_id: UUID, technology: Technology) -> Envelope:
    """`asset.technology.detected`. The subject is the service, so the ordinal also says which technology."""
    return envelope(
        EVENT_CATALOG.asset.technology.detected,
        AssetTechnologyDetected(service_id=service_id, name=technology.name, version=technology.version),
        workspace_id=job.workspace_id,
        subject=names.service_subject(service_id),
        ordinal=f"{job.run_id}/{technology.name}",
    )


def screenshot_captured(job: MergeJob, payload: AssetScreenshotCaptured) -> Envelope:
    """`asset.screenshot.captured`. The subject is the service; several jobs of a run may take one."""
    return envelope(
        EVENT_CATALOG.asset.screenshot.captured,
        payload,
        workspace_id=job.workspace_id,
        subject=names.service_subject(payload.service_id),
        ordinal=str(job.job_id),
    )


def url_discovered(job: MergeJob, url_id: UUID, asset_id: UUID, record: UrlRecord) -> Envelope:
    """`asset.url.discovered`."""
    return envelope(
        EVENT_CATALOG.asset.url.discovered,
        AssetUrlDiscovered(url_id=url_id, asset_id=asset_id, url=record.url),
        workspace_id=job.workspace_id,
        subject=names.url_subject(url_id),
        ordinal=str(job.run_id),
    )


def vulnerability_detected(
    job: MergeJob, vulnerability_id: UUID, asset_id: UUID, record: FindingRecord
) -> Envelope:
    """`vulnerability.detected`."""
    return envelope(
        EVENT_CATALOG.vulnerability.detected,
        VulnerabilityDetected(
            vulnerability_id=vulnerability_id,
            asset_id=asset_id,
            check_id=record.check,
            severity=record.severity.value,
            url=record.url,
        ),
        workspace_id=job.workspace_id,
        subject=names.vulnerability_subject(vulnerability_id),
        ordinal=str(job.run_id),
    )
