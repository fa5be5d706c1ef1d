"""Tables of projects as the API lists them, for SQLAlchemy Core."""

from sqlalchemy import Table

from runlane.db.columns import integer, key, metadata, ref, text, time

projects = Table(
    "projects",
    metadata,
    key(),
    key("workspace_id"),
    text("name"),
    integer("version"),
    text("created_by", null=True),
    time("created_at"),
    time("changed_at"),
    time("due_at"),
    ref("looked_up_to"),
    time("deleted_at", null=True),
)

project_assets = Table(
    "project_assets", metadata, key("workspace_id"), key("project_id"), key("asset_id"), time("since")
)
