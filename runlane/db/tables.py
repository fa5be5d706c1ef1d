"""The tables that the API reads, for SQLAlchemy Core; a test compares them with the migrated schema."""

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, INET, JSONB

metadata = MetaData()


def _id(name: str = "id") -> Column[object]:
    return Column(name, Uuid, nullable=False)


def _ref(name: str) -> Column[object]:
    return Column(name, Uuid)


def _text(name: str, *, null: bool = False) -> Column[object]:
    return Column(name, Text, nullable=null)


def _integer(name: str, *, null: bool = False) -> Column[object]:
    return Column(name, Integer, nullable=null)


def _small(name: str) -> Column[object]:
    return Column(name, SmallInteger, nullable=False)


def _flag(name: str, *, null: bool = False) -> Column[object]:
    return Column(name, Boolean, nullable=null)


def _time(name: str, *, null: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=null)


def _json(name: str, *, null: bool = False) -> Column[object]:
    return Column(name, JSONB, nullable=null)


def _texts(name: str, *, null: bool = False) -> Column[object]:
    return Column(name, ARRAY(Text), nullable=null)


def _hash(name: str) -> Column[object]:
    return Column(name, LargeBinary, nullable=False)


workers = Table(
    "workers",
    metadata,
    _id(),
    _text("scope"),
    _ref("workspace_id"),
    _ref("network_id"),
    _text("name"),
    _hash("token_digest"),
    _ref("incarnation"),
    _text("status"),
    _texts("toolsets"),
    _json("slots"),
    _json("tools"),
    _flag("container_mode"),
    _text("version", null=True),
    _integer("protocol", null=True),
    _time("beat_at", null=True),
    _time("stream_seen_at", null=True),
    _text("stream_replica", null=True),
    _time("joined_at"),
    _time("left_at", null=True),
    _time("deleted_at", null=True),
)

targets = Table(
    "targets",
    metadata,
    _id(),
    _id("workspace_id"),
    _text("kind"),
    _text("value"),
    _ref("network_id"),
    _texts("tags"),
    _time("created_at"),
    _time("deleted_at", null=True),
)

assets = Table(
    "assets",
    metadata,
    _id(),
    _id("workspace_id"),
    _id("target_id"),
    _ref("run_id"),
    _text("value"),
    _flag("is_primary"),
    _flag("enabled"),
    _json("records"),
    Column("addresses", ARRAY(INET), nullable=False),
    _time("first_seen"),
    _time("last_seen"),
    _integer("missed"),
    _time("gone_at", null=True),
    _time("created_at"),
)

asset_services = Table(
    "asset_services",
    metadata,
    _id(),
    _id("workspace_id"),
    _id("asset_id"),
    _ref("run_id"),
    _integer("port"),
    _text("protocol"),
    Column("address", INET),
    _text("banner", null=True),
    _flag("is_tls", null=True),
    _text("scheme", null=True),
    _text("url", null=True),
    _integer("status", null=True),
    _text("title", null=True),
    _text("server", null=True),
    _json("tls", null=True),
    _time("web_seen_at", null=True),
    _time("first_seen"),
    _time("last_seen"),
    _integer("missed"),
    _time("closed_at", null=True),
)

technologies = Table(
    "technologies",
    metadata,
    _id(),
    _id("workspace_id"),
    _id("service_id"),
    _text("name"),
    _text("version", null=True),
    _time("first_seen"),
    _time("last_seen"),
)

urls = Table(
    "urls",
    metadata,
    _id(),
    _id("workspace_id"),
    _id("asset_id"),
    _ref("service_id"),
    _ref("run_id"),
    _text("url"),
    _hash("url_sha256"),
    _integer("status", null=True),
    _text("content_type", null=True),
    _text("source", null=True),
    _time("first_seen"),
    _time("last_seen"),
    _integer("missed"),
    _time("gone_at", null=True),
)

vulnerabilities = Table(
    "vulnerabilities",
    metadata,
    _id(),
    _id("workspace_id"),
    _id("asset_id"),
    _ref("service_id"),
    _ref("run_id"),
    _text("tool_id", null=True),
    _text("check_id"),
    _text("name"),
    _text("severity"),
    _text("url", null=True),
    _hash("fingerprint"),
    _text("description", null=True),
    _text("evidence", null=True),
    _text("remediation", null=True),
    _texts("reference_urls"),
    _texts("cwe"),
    _text("status"),
    _time("first_seen"),
    _time("last_seen"),
    _integer("missed"),
    _time("resolved_at", null=True),
)

workflow_definitions = Table(
    "workflow_definitions",
    metadata,
    _id(),
    _ref("workspace_id"),
    _text("name"),
    _integer("version"),
    _json("body"),
    _time("created_at"),
    _time("deleted_at", null=True),
)

schedules = Table(
    "schedules",
    metadata,
    _id(),
    _id("workspace_id"),
    _text("name"),
    _ref("definition_id"),
    _json("run"),
    _json("spec"),
    _text("created_by", null=True),
    _time("expected_at", null=True),
    _time("paused_at", null=True),
    _time("created_at"),
    _time("deleted_at", null=True),
)

schedule_fires = Table(
    "schedule_fires",
    metadata,
    _id("schedule_id"),
    _id("workspace_id"),
    _time("due_at"),
    _text("outcome"),
    _text("reason", null=True),
    _ref("run_id"),
    _text("workflow_id", null=True),
    _time("recorded_at"),
)

job_histories = Table(
    "job_histories",
    metadata,
    _id(),
    _id("workspace_id"),
    _text("name"),
    _text("kind"),
    _text("status"),
    _json("definition"),
    _ref("definition_id"),
    _ref("project_id"),
    _ref("schedule_id"),
    _text("trigger"),
    _ref("rerun_of"),
    _integer("hops"),
    _small("priority"),
    _text("created_by", null=True),
    _text("blocked_reason", null=True),
    _time("nudged_at", null=True),
    _text("owner", null=True),
    _time("owner_started_at", null=True),
    _time("created_at"),
    _time("started_at", null=True),
    _time("closed_at", null=True),
    _time("jobs_pruned_at", null=True),
)

run_targets = Table("run_targets", metadata, _id("workspace_id"), _id("run_id"), _id("target_id"))

run_steps = Table(
    "run_steps",
    metadata,
    _id("workspace_id"),
    _id("run_id"),
    _text("step_id"),
    _integer("position"),
    _text("name"),
    _text("tool_id"),
    _text("status"),
    _json("config"),
    _text("tolerance", null=True),
    Column("priority", SmallInteger),
    _time("scope_as_of", null=True),
    _ref("admit_cursor"),
    _time("admitted_at", null=True),
    _time("opened_at", null=True),
    _time("closed_at", null=True),
    _integer("jobs_total"),
    _integer("jobs_failed", null=True),
)

run_needs = Table("run_needs", metadata, _id("workspace_id"), _id("run_id"), _text("step_id"), _text("needs"))

jobs = Table(
    "jobs",
    metadata,
    _id(),
    _id("workspace_id"),
    _id("run_id"),
    _text("step_id"),
    _text("tool_id"),
    _text("toolset"),
    _text("category"),
    _ref("target_id"),
    _ref("asset_id"),
    _ref("service_id"),
    _ref("network_id"),
    _flag("own_only"),
    _id("subject_id"),
    _integer("ordinal"),
    _integer("generation"),
    _json("spec"),
    _text("status"),
    _small("priority"),
    _time("due_at"),
    _ref("dispatch_id"),
    _flag("alone"),
    _integer("attempt"),
    _integer("failures"),
    _integer("failures_before"),
    _integer("free_attempts"),
    _small("losses"),
    _flag("retryable"),
    _flag("quarantined"),
    _ref("worker_id"),
    _time("picked_at", null=True),
    _time("completed_at", null=True),
    _text("reason", null=True),
    _ref("result_ref"),
    _ref("retry_of"),
    _text("cause", null=True),
    _time("created_at"),
)

job_attempts = Table(
    "job_attempts",
    metadata,
    _id("job_id"),
    _integer("attempt"),
    _id("workspace_id"),
    _id("dispatch_id"),
    _id("worker_id"),
    _id("incarnation"),
    _text("claim_key"),
    _time("claimed_at"),
    _time("observed_at"),
    _time("staged_at", null=True),
    _text("staged_outcome", null=True),
    _text("staged_error", null=True),
    _json("coverage", null=True),
    _flag("is_complete", null=True),
    _flag("is_reachable", null=True),
    _ref("result_id"),
    _ref("body_job_id"),
    _integer("body_attempt", null=True),
    _integer("merge_failures"),
    _time("ended_at", null=True),
    _text("outcome", null=True),
    _flag("charged"),
    _json("summary", null=True),
    _texts("argv", null=True),
    _text("tool_version", null=True),
)

job_error_logs = Table(
    "job_error_logs",
    metadata,
    _id(),
    _id("workspace_id"),
    _id("job_id"),
    _integer("attempt"),
    _text("outcome"),
    _text("message"),
    _text("partial", null=True),
    _hash("digest"),
    _integer("times"),
    _time("created_at"),
    _time("last_at"),
)

screenshots = Table(
    "screenshots",
    metadata,
    _id(),
    _id("workspace_id"),
    _id("run_id"),
    _id("service_id"),
    _id("job_id"),
    _text("url"),
    _text("object_key"),
    _integer("size_bytes"),
    _hash("sha256"),
    _integer("width"),
    _integer("height"),
    _time("observed_at"),
)

pauses = Table(
    "pauses",
    metadata,
    _id(),
    _text("scope"),
    _ref("workspace_id"),
    _ref("run_id"),
    _text("toolset", null=True),
    _text("reason", null=True),
    _text("created_by", null=True),
    _time("created_at"),
    _time("lifted_at", null=True),
    _text("lifted_by", null=True),
)

operations = Table(
    "operations",
    metadata,
    _id(),
    _id("workspace_id"),
    _text("action"),
    _json("filter"),
    _text("reason", null=True),
    _text("created_by", null=True),
    _json("actor", null=True),
    _time("as_of"),
    _integer("matched"),
    _integer("changed"),
    _flag("is_aborted"),
    _time("moved_at"),
    _time("finished_at", null=True),
)
