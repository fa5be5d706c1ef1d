"""What the API gives of the inventory, as JSON."""

from datetime import datetime
from ipaddress import IPv4Address, IPv6Address
from typing import Literal
from uuid import UUID

from pydantic import Field

from api.schemas import Answer

Severity = Literal["info", "low", "medium", "high", "critical"]
FindingStatus = Literal["open", "resolved", "accepted", "false_positive"]


class _Seen(Answer):
    id: UUID
    run_id: UUID | None = Field(description="the run that saw it first; null when that run is gone")
    first_seen: datetime
    last_seen: datetime


class Asset(_Seen):
    """A name or address of a target."""

    target_id: UUID
    value: str
    is_primary: bool
    enabled: bool
    records: dict[str, object]
    addresses: list[IPv4Address | IPv6Address]
    created_at: datetime
    gone_at: datetime | None


class _OfAsset(_Seen):
    asset_id: UUID
    target_id: UUID
    host: str


class Service(_OfAsset):
    """An open port of an asset and what answers there."""

    port: int
    protocol: str
    address: IPv4Address | IPv6Address | None
    banner: str | None
    is_tls: bool | None
    scheme: str | None
    url: str | None
    status: int | None
    title: str | None
    server: str | None
    tls: dict[str, object] | None
    technologies: list[str]
    web_seen_at: datetime | None
    closed_at: datetime | None


class Url(_OfAsset):
    """A URL that was found."""

    service_id: UUID | None
    url: str
    status: int | None
    content_type: str | None
    source: str | None
    gone_at: datetime | None


class Finding(_OfAsset):
    """Something that is wrong, and where."""

    service_id: UUID | None
    tool_id: str | None
    check_id: str
    name: str
    severity: Severity
    url: str | None
    description: str | None
    evidence: str | None
    remediation: str | None
    reference_urls: list[str]
    cwe: list[str]
    status: FindingStatus
    resolved_at: datetime | None
