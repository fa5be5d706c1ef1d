"""Payloads of notifications, integrations and dead letters; `runlane.events.payloads` says the rules."""

from uuid import UUID

from runlane.events.payloads import Count, ErrorText, Payload, Text


class NotificationPayload(Payload):
    """What every event of a notification says. `cause`: the type of the event that it is about."""

    notification_id: UUID
    cause: Text


class NotificationFailed(NotificationPayload):
    """A notification could not be shown or sent."""

    error: ErrorText


class IntegrationPayload(Payload):
    """What every event of an integration says. `kind`: webhook, slack …"""

    integration_id: UUID
    kind: Text
    name: Text


class IntegrationSettingsUpdated(IntegrationPayload):
    """An integration is told something else. `changes`: the names of what was changed."""

    changes: tuple[Text, ...]


class IntegrationSynced(IntegrationPayload):
    """What another system knows was compared with what is known here."""

    records: Count


class IntegrationFailed(IntegrationPayload):
    """An integration does not do what it should."""

    error: ErrorText | None


class IntegrationDeliveryFailed(IntegrationFailed):
    """One event could not be delivered, for good. `cause`: its type."""

    delivery_id: UUID
    cause: Text


class IntegrationTicket(IntegrationPayload):
    """What every event of a ticket in another system says. `reference`: what it is called there."""

    reference: Text
    vulnerability_id: UUID | None
