"""Branches of notifications, integrations, dead letters. What tells of a failed delivery stays inside."""

from typing import Final

from runlane.events import delivery_payloads as d
from runlane.events import payloads as p
from runlane.events.leaf import audited, transient
from runlane.events.policy import Severity

_LETTERS: Final = "runlane.db.dead_letters"


_INTEGRATIONS: Final = "runlane.db.integrations"
_PUMPING: Final = "runlane.db.pumping"


class Notification:
    """What people are told in the console."""

    __slots__ = ()
    created: Final = transient(
        "notification.created", d.NotificationPayload, Severity.NONE, "runlane.db.notifications"
    )
    sent: Final = transient("notification.sent", d.NotificationPayload, Severity.NONE)
    failed: Final = transient("notification.failed", d.NotificationFailed, Severity.LOW)


class _IntegrationSettings:
    __slots__ = ()
    updated: Final = audited(
        "integration.settings.updated",
        d.IntegrationSettingsUpdated,
        Severity.INFO,
        _INTEGRATIONS,
        is_outbound=True,
    )


class _IntegrationSync:
    __slots__ = ()
    completed: Final = transient("integration.sync.completed", d.IntegrationSynced, Severity.NONE)
    failed: Final = transient(
        "integration.sync.failed", d.IntegrationFailed, Severity.MEDIUM, is_outbound=True
    )


class _IntegrationDelivery:
    __slots__ = ()
    failed: Final = transient(
        "integration.delivery.failed", d.IntegrationDeliveryFailed, Severity.LOW, _PUMPING
    )


class _IntegrationEndpoint:
    __slots__ = ()
    disabled: Final = transient("integration.endpoint.disabled", d.IntegrationFailed, Severity.HIGH, _PUMPING)
    recovered: Final = transient(
        "integration.endpoint.recovered", d.IntegrationPayload, Severity.INFO, _PUMPING
    )


class _IntegrationTicket:
    __slots__ = ()
    created: Final = transient(
        "integration.ticket.created", d.IntegrationTicket, Severity.INFO, _PUMPING, is_outbound=True
    )
    updated: Final = transient("integration.ticket.updated", d.IntegrationTicket, Severity.NONE)
    closed: Final = transient("integration.ticket.closed", d.IntegrationTicket, Severity.NONE)


class Integration:
    """Systems of others that are told."""

    __slots__ = ()
    connected: Final = audited(
        "integration.connected", d.IntegrationPayload, Severity.INFO, _INTEGRATIONS, is_outbound=True
    )
    disconnected: Final = audited(
        "integration.disconnected", d.IntegrationPayload, Severity.MEDIUM, _INTEGRATIONS, is_outbound=True
    )
    settings: Final = _IntegrationSettings()
    sync: Final = _IntegrationSync()
    delivery: Final = _IntegrationDelivery()
    endpoint: Final = _IntegrationEndpoint()
    ticket: Final = _IntegrationTicket()


class DeadLetter:
    """Events that a sink could not handle."""

    __slots__ = ()
    created: Final = transient("dead_letter.created", p.DeadLetterCreated, Severity.MEDIUM, _LETTERS)
    redriven: Final = audited("dead_letter.redriven", p.DeadLetterRedriven, Severity.INFO, _LETTERS)
