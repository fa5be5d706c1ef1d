"""What the bus does with an event, and which lanes read it. Routing only, no business logic."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """How loudly an event may notify. `NONE` never notifies and never leaves the platform."""

    NONE = "none"
    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Policy:
    """Per event: whether the audit trail keeps it, and how loudly it may notify."""

    persist: bool
    severity: Severity


class Lane(StrEnum):
    """Consumer groups of the stream; a lane is declared only when something can serve it."""

    AUDIT = "audit"
    PROJECTION = "projection"
    NOTIFICATIONS = "notifications"
    INTEGRATIONS = "integrations"
    PROJECTS = "projects"


SUBSCRIPTIONS: Final[Mapping[Lane, frozenset[str] | None]] = {
    Lane.AUDIT: None,
    Lane.PROJECTION: frozenset({"target", "asset", "vulnerability", "job", "scan", "workflow", "statistic"}),
    Lane.NOTIFICATIONS: frozenset(
        {"target", "asset", "vulnerability", "issue", "network", "job", "scan", "workflow", "project"}
        | {"worker", "integration", "dead_letter"}
    ),
    Lane.INTEGRATIONS: frozenset(
        {"target", "asset", "vulnerability", "issue", "job", "scan", "workflow", "project", "integration"}
    ),
    Lane.PROJECTS: frozenset({"target", "asset", "asset_group", "vulnerability", "project"}),
}
"""Domains (first word of the type) that each lane reads; None: all. Source: Event bridge, Lanes."""


def is_subscribed(lane: Lane, event_type: str) -> bool:
    """Whether the lane reads events of this type at all."""
    domains = SUBSCRIPTIONS[lane]
    return domains is None or event_type.partition(".")[0] in domains
