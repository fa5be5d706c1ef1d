"""Tables of endpoints and deliveries as the API lists them, for SQLAlchemy Core."""

from sqlalchemy import BigInteger, Column, Table

from runlane.db.columns import flag, integer, json, key, metadata, text, texts, time

integrations = Table(
    "integrations",
    metadata,
    key(),
    key("workspace_id"),
    text("kind"),
    text("name"),
    json("config"),
    texts("events"),
    text("least_severity"),
    flag("is_ordered"),
    text("status"),
    text("disabled_reason", null=True),
    integer("version"),
    text("created_by", null=True),
    time("created_at"),
    time("deleted_at", null=True),
    integer("failures"),
    time("failing_since", null=True),
    time("delivered_at", null=True),
    flag("is_probing"),
    time("paused_until", null=True),
    time("called_for", null=True),
)

deliveries = Table(
    "deliveries",
    metadata,
    key(),
    key("workspace_id"),
    key("integration_id"),
    key("event_id"),
    integer("replay"),
    text("type"),
    text("subject"),
    Column("sequence", BigInteger, nullable=False),
    json("body"),
    text("digest", null=True),
    integer("events"),
    text("state"),
    integer("attempts"),
    integer("refusals"),
    time("due_at"),
    integer("status", null=True),
    text("error", null=True),
    text("ticket", null=True),
    integer("duration_ms", null=True),
    time("created_at"),
    time("ended_at", null=True),
)
