"""The tables of what scans have found, as the API reads them; see `tables`."""

from sqlalchemy import Column, Table
from sqlalchemy.dialects.postgresql import ARRAY, INET

from runlane.db.columns import digest, flag, integer, json, key, metadata, ref, seen, text, texts, time

assets = Table(
    "assets",
    metadata,
    key(),
    key("workspace_id"),
    key("target_id"),
    ref("run_id"),
    text("value"),
    flag("is_primary"),
    flag("enabled"),
    json("records"),
    Column("addresses", ARRAY(INET), nullable=False),
    *seen("gone_at"),
    time("created_at"),
)

asset_services = Table(
    "asset_services",
    metadata,
    key(),
    key("workspace_id"),
    key("asset_id"),
    ref("run_id"),
    integer("port"),
    text("protocol"),
    Column("address", INET),
    text("banner", null=True),
    flag("is_tls", null=True),
    text("scheme", null=True),
    text("url", null=True),
    integer("status", null=True),
    text("title", null=True),
    text("server", null=True),
    json("tls", null=True),
    time("web_seen_at", null=True),
    *seen("closed_at"),
)

technologies = Table(
    "technologies",
    metadata,
    key(),
    key("workspace_id"),
    key("service_id"),
    text("name"),
    text("version", null=True),
    time("first_seen"),
    time("last_seen"),
)

urls = Table(
    "urls",
    metadata,
    key(),
    key("workspace_id"),
    key("asset_id"),
    ref("service_id"),
    ref("run_id"),
    text("url"),
    digest("url_sha256"),
    integer("status", null=True),
    text("content_type", null=True),
    text("source", null=True),
    *seen("gone_at"),
)

vulnerabilities = Table(
    "vulnerabilities",
    metadata,
    key(),
    key("workspace_id"),
    key("asset_id"),
    ref("service_id"),
    ref("run_id"),
    text("tool_id", null=True),
    text("check_id"),
    text("name"),
    text("severity"),
    text("url", null=True),
    digest("fingerprint"),
    text("description", null=True),
    text("evidence", null=True),
    text("remediation", null=True),
    texts("reference_urls"),
    texts("cwe"),
    text("status"),
    *seen("resolved_at"),
)

screenshots = Table(
    "screenshots",
    metadata,
    key(),
    key("workspace_id"),
    key("run_id"),
    key("service_id"),
    key("job_id"),
    text("url"),
    text("object_key"),
    integer("size_bytes"),
    digest("sha256"),
    integer("width"),
    integer("height"),
    time("observed_at"),
)
