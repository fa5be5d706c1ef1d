"""Payloads of what becomes of targets, assets and findings; `runlane.events.payloads` says the rules."""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from runlane.events.payloads import Count, ErrorText, FindingSeverity, Payload, Text

Port = Annotated[int, Field(ge=1, le=65535)]


class TargetScanPayload(Payload):
    """What every event of a run on one of its targets says."""

    target_id: UUID
    run_id: UUID
    reason: Text | None


class AssetPayload(Payload):
    """What every event of an asset says."""

    asset_id: UUID
    target_id: UUID
    value: Text


class AssetUpdated(AssetPayload):
    """Something about an asset is different. `changes`: the names of what was changed."""

    changes: tuple[Text, ...]
    run_id: UUID | None


class AssetServicePayload(Payload):
    """Nothing answers any more where something did."""

    service_id: UUID
    asset_id: UUID
    value: Text
    port: Port
    protocol: Text


class AssetPortClosed(Payload):
    """A port that was open is closed."""

    asset_id: UUID
    address: Text
    port: Port
    protocol: Text


class AssetCertificateExpired(Payload):
    """A service shows a certificate that is not valid any more."""

    service_id: UUID
    asset_id: UUID
    subject: Text
    expired_at: Text


class AssetScreenshotCaptured(Payload):
    """There is a picture of what a service shows."""

    service_id: UUID
    asset_id: UUID
    run_id: UUID


class VulnerabilityPayload(Payload):
    """What every event of a finding says."""

    vulnerability_id: UUID
    asset_id: UUID
    check_id: Text
    severity: FindingSeverity


class VulnerabilityStatusUpdated(VulnerabilityPayload):
    """A person judged a finding."""

    before: Text
    after: Text
    reason: Text | None


class VulnerabilitiesUpdated(Payload):
    """A person judged many findings at once."""

    vulnerabilities: Count
    after: Text
    reason: Text | None


class VulnerabilityAnalysis(VulnerabilityPayload):
    """A finding was looked at more closely, or that failed."""

    error: ErrorText | None


class IssuePayload(Payload):
    """What every event of an issue says."""

    issue_id: UUID
    vulnerability_id: UUID | None
    title: Text


class IssueCommented(IssuePayload):
    """Somebody said something about an issue."""

    comment_id: UUID
