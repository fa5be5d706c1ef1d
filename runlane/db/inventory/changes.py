"""Events of what merges found to be gone, or back again.

The same thing may go and come again within one run, so ordinals hold the moment that the result speaks of: a
repeated transaction repeats it.
"""

from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.pool import Record
from runlane.events import EVENT_CATALOG, Envelope, Leaf, envelope
from runlane.events.inventory_payloads import (
    AssetPayload,
    AssetPortClosed,
    AssetServicePayload,
    AssetUpdated,
    VulnerabilityPayload,
)
from runlane.events.payloads import AssetPortOpened, AssetServiceDiscovered

REAPPEARED: Final = "reappeared"
"""What has changed of an asset that is there again."""


def asset_disappeared(row: Record) -> Envelope:
    """`asset.disappeared`."""
    return envelope(
        EVENT_CATALOG.asset.disappeared,
        AssetPayload(asset_id=row["id"], target_id=row["target_id"], value=row["value"]),
        workspace_id=row["workspace_id"],
        subject=names.asset_subject(row["id"]),
        ordinal=row["at"].isoformat(),
    )


def asset_reappeared(row: Record, run_id: UUID) -> Envelope:
    """`asset.updated` of an asset that was gone."""
    payload = AssetUpdated(
        asset_id=row["id"],
        target_id=row["target_id"],
        value=row["value"],
        changes=(REAPPEARED,),
        run_id=run_id,
    )
    return envelope(
        EVENT_CATALOG.asset.updated,
        payload,
        workspace_id=row["workspace_id"],
        subject=names.asset_subject(row["id"]),
        ordinal=f"{REAPPEARED}/{row['at'].isoformat()}",
    )


def port_closed(row: Record) -> Envelope:
    """`asset.port.closed`. The subject is the asset, so the ordinal also says which port."""
    address, port, protocol = str(row["address"]), row["port"], row["protocol"]
    return envelope(
        EVENT_CATALOG.asset.port.closed,
        AssetPortClosed(asset_id=row["asset_id"], address=address, port=port, protocol=protocol),
        workspace_id=row["workspace_id"],
        subject=names.asset_subject(row["asset_id"]),
        ordinal=f"{row['at'].isoformat()}/{address}/{port}/{protocol}",
    )


def port_reopened(row: Record) -> Envelope:
    """`asset.port.opened` of a port that was closed."""
    address, port, protocol = str(row["address"]), row["port"], row["protocol"]
    return envelope(
        EVENT_CATALOG.asset.port.opened,
        AssetPortOpened(asset_id=row["asset_id"], address=address, port=port, protocol=protocol),
        workspace_id=row["workspace_id"],
        subject=names.asset_subject(row["asset_id"]),
        ordinal=f"{row['at'].isoformat()}/{address}/{port}/{protocol}",
    )


def service_closed(row: Record) -> Envelope:
    """`asset.service.closed`."""
    payload = AssetServicePayload(
        service_id=row["id"],
        asset_id=row["asset_id"],
        value=row["value"],
        port=row["port"],
        protocol=row["protocol"],
    )
    return envelope(
        EVENT_CATALOG.asset.service.closed,
        payload,
        workspace_id=row["workspace_id"],
        subject=names.service_subject(row["id"]),
        ordinal=row["at"].isoformat(),
    )


def service_reopened(row: Record, value: str) -> Envelope:
    """`asset.service.discovered` of a service that was closed; `value` is that of its asset."""
    payload = AssetServiceDiscovered(
        service_id=row["id"],
        asset_id=row["asset_id"],
        value=value,
        port=row["port"],
        protocol=row["protocol"],
    )
    return envelope(
        EVENT_CATALOG.asset.service.discovered,
        payload,
        workspace_id=row["workspace_id"],
        subject=names.service_subject(row["id"]),
        ordinal=row["at"].isoformat(),
    )


def vulnerability_reopened(row: Record) -> Envelope:
    """`vulnerability.reopened`."""
    return _about_finding(EVENT_CATALOG.vulnerability.reopened, row)


def vulnerability_resolved(row: Record) -> Envelope:
    """`vulnerability.resolved`."""
    return _about_finding(EVENT_CATALOG.vulnerability.resolved, row)


def _about_finding(leaf: Leaf[VulnerabilityPayload], row: Record) -> Envelope:
    return envelope(
        leaf,
        _finding(row),
        workspace_id=row["workspace_id"],
        subject=names.vulnerability_subject(row["id"]),
        ordinal=row["at"].isoformat(),
    )


def _finding(row: Record) -> VulnerabilityPayload:
    return VulnerabilityPayload(
        vulnerability_id=row["id"],
        asset_id=row["asset_id"],
        check_id=row["check_id"],
        severity=row["severity"],
    )
