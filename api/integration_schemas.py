"""Endpoints and deliveries, as the API takes and gives them."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field, SecretStr, StringConstraints

from api.action_schemas import Why
from api.schemas import Answer, JsonObject, Printable, Request
from runlane.events import Severity
from runlane.integrations import Answer as Said
from runlane.integrations import DeliveryState, Kind

MAX_ENTRIES = 100
MAX_SECRETS = 50
MAX_SECRET = 8_192


def _storable(secrets: dict[str, SecretStr]) -> dict[str, SecretStr]:
    if any("\0" in name + value.get_secret_value() for name, value in secrets.items()):
        raise ValueError("texts without NUL are required")
    return secrets


def _loud(severity: Severity) -> Severity:
    if severity is Severity.NONE:
        raise ValueError("what has no severity is never delivered")
    return severity


IntegrationName = Annotated[Printable, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)]
Secrets = Annotated[
    dict[
        Annotated[str, StringConstraints(max_length=100)], Annotated[SecretStr, Field(max_length=MAX_SECRET)]
    ],
    AfterValidator(_storable),
    Field(max_length=MAX_SECRETS, description="what the kind asks for, by name; never shown"),
]
Events = Annotated[
    list[Annotated[Printable, StringConstraints(min_length=1, max_length=80)]],
    Field(
        max_length=MAX_ENTRIES,
        description="types, or domains as `asset.*`; none: all that is delivered at all",
        examples=[["vulnerability.*", "workflow.run.failed"]],
    ),
]
Least = Annotated[Severity, AfterValidator(_loud)]


class NewIntegration(Why):
    """An endpoint to connect."""

    kind: Kind
    name: IntegrationName
    config: JsonObject = Field(
        description="as the kind asks for", examples=[{"url": "https://hooks.test/in"}]
    )
    secrets: Secrets = Field(default_factory=dict)
    events: Events = Field(default_factory=list)
    least_severity: Least = Severity.INFO
    is_ordered: bool = Field(
        default=False,
        description="one at a time, in the order of the bus: a failure holds up what comes after",
    )


class EditedIntegration(Request):
    """What is to be changed; what is left out stays. Secrets are replaced as a whole."""

    name: IntegrationName | None = None
    config: JsonObject | None = None
    secrets: Secrets | None = None
    events: Events | None = None
    least_severity: Least | None = None
    is_ordered: bool | None = None


class Integration(Answer):
    """An endpoint, and how it is."""

    id: UUID
    kind: Kind
    name: str
    config: JsonObject
    events: list[str]
    least_severity: Severity
    is_ordered: bool
    status: str = Field(description="active or disabled")
    disabled_reason: str | None = Field(description="person, gone or failing")
    version: int = Field(description="counts its changes; as `ETag` it is what `If-Match` says")
    created_by: str | None
    created_at: datetime
    failures: int = Field(description="attempts in a row that were not accepted")
    failing_since: datetime | None
    delivered_at: datetime | None = Field(description="when it last accepted something")
    is_probing: bool = Field(description="was enabled again, and has accepted nothing since")
    paused_until: datetime | None = Field(description="left alone until then")


class ConnectedIntegration(Integration):
    """An endpoint with the key that its deliveries are signed with."""

    signing_key: str | None = Field(description="shown here and never again; null: nothing is signed")


class Replay(Why):
    """Which deliveries are made once more."""

    since: datetime = Field(description="deliveries that were made since then, at most a thousand")
    state: DeliveryState | None = Field(default=None, description="only those of this state")


class ReplayedDeliveries(Answer):
    """What a replay has begun."""

    deliveries: int
    has_more: bool = Field(description="call again once these are delivered")


class Delivery(Answer):
    """A delivery."""

    id: UUID
    integration_id: UUID
    event_id: UUID
    replay: int = Field(description="how often it was wanted once more")
    type: str
    subject: str
    sequence: int
    events: int = Field(description="how many events it tells of")
    state: DeliveryState
    attempts: int
    due_at: datetime = Field(description="while it is pending: when it is attempted, or no longer under way")
    status: int | None = Field(description="of HTTP, of the last attempt")
    error: str | None
    ticket: str | None
    duration_ms: int | None
    created_at: datetime
    ended_at: datetime | None


class Try(Answer):
    """One attempt."""

    attempt: int
    answer: Said
    status: int | None
    excerpt: str | None = Field(
        description="start of what was answered; for keys that may change integrations"
    )
    error: str | None
    duration_ms: int
    ended_at: datetime


class DeliveryInFull(Delivery):
    """A delivery, what was sent, and how each attempt went."""

    body: JsonObject
    tries: list[Try]
