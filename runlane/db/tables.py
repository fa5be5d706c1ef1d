"""The tables that the API reads, for SQLAlchemy Core; a test compares them with the migrated schema.

Those of what scans have found are in `inventory_tables`.
"""

from sqlalchemy import Column, SmallInteger, Table

from runlane.db.columns import (
    cidrs,
    digest,
    flag,
    integer,
    json,
    key,
    metadata,
    ref,
    small,
    text,
    texts,
    time,
)

workers = Table(
    "workers",
    metadata,
    key(),
    text("scope"),
    ref("workspace_id"),
    ref("network_id"),
    text("name"),
    digest("token_digest"),
    time("token_issued_at"),
    digest("next_digest", null=True),
    digest("previous_digest", null=True),
    time("previous_until", null=True),
    time("rotation_asked_at", null=True),
    time("drained_at", null=True),
    ref("incarnation"),
    text("status"),
    texts("toolsets"),
    json("slots"),
    json("tools"),
    flag("container_mode"),
    text("version", null=True),
    integer("protocol", null=True),
    time("beat_at", null=True),
    time("stream_seen_at", null=True),
    text("stream_replica", null=True),
    time("joined_at"),
    time("left_at", null=True),
    texts("not_polling"),
    time("not_polling_since", null=True),
    time("deleted_at", null=True),
)

internal_networks = Table(
    "internal_networks",
    metadata,
    key(),
    key("workspace_id"),
    text("name"),
    cidrs("cidrs"),
    integer("version"),
    text("created_by", null=True),
    time("created_at"),
)

targets = Table(
    "targets",
    metadata,
    key(),
    key("workspace_id"),
    text("kind"),
    text("value"),
    ref("network_id"),
    texts("tags"),
    time("created_at"),
    time("deleted_at", null=True),
)

tool_profiles = Table(
    "tool_profiles",
    metadata,
    key(),
    key("workspace_id"),
    text("tool_id"),
    text("name"),
    json("options"),
    time("created_at"),
)

target_groups = Table(
    "target_groups",
    metadata,
    key(),
    key("workspace_id"),
    text("name"),
    texts("tags"),
    integer("version"),
    text("created_by", null=True),
    time("created_at"),
)

target_group_members = Table(
    "target_group_members", metadata, key("workspace_id"), key("group_id"), key("target_id")
)

workflow_definitions = Table(
    "workflow_definitions",
    metadata,
    key(),
    ref("workspace_id"),
    text("name"),
    integer("version"),
    json("body"),
    time("created_at"),
    time("deleted_at", null=True),
)

definition_versions = Table(
    "definition_versions",
    metadata,
    key("workspace_id"),
    key("definition_id"),
    integer("version"),
    json("body"),
    text("saved_by", null=True),
    time("saved_at"),
)

schedules = Table(
    "schedules",
    metadata,
    key(),
    key("workspace_id"),
    text("name"),
    ref("definition_id"),
    json("run"),
    json("spec"),
    integer("version"),
    text("created_by", null=True),
    time("expected_at", null=True),
    time("paused_at", null=True),
    time("created_at"),
    time("deleted_at", null=True),
)

schedule_fires = Table(
    "schedule_fires",
    metadata,
    key("schedule_id"),
    key("workspace_id"),
    time("due_at"),
    text("outcome"),
    text("reason", null=True),
    ref("run_id"),
    text("workflow_id", null=True),
    text("asked_by", null=True),
    time("recorded_at"),
)

job_histories = Table(
    "job_histories",
    metadata,
    key(),
    key("workspace_id"),
    text("name"),
    text("kind"),
    text("status"),
    json("definition"),
    ref("definition_id"),
    integer("definition_version", null=True),
    ref("project_id"),
    ref("schedule_id"),
    text("trigger"),
    ref("rerun_of"),
    integer("hops"),
    small("priority"),
    text("created_by", null=True),
    text("blocked_reason", null=True),
    time("nudged_at", null=True),
    text("owner", null=True),
    time("owner_started_at", null=True),
    time("created_at"),
    time("started_at", null=True),
    time("closed_at", null=True),
    time("jobs_pruned_at", null=True),
)

run_targets = Table(
    "run_targets", metadata, key("workspace_id"), key("run_id"), key("target_id"), flag("is_new")
)

run_steps = Table(
    "run_steps",
    metadata,
    key("workspace_id"),
    key("run_id"),
    text("step_id"),
    integer("position"),
    text("name"),
    text("tool_id"),
    text("status"),
    json("config"),
    text("tolerance", null=True),
    Column("priority", SmallInteger),
    time("scope_as_of", null=True),
    ref("admit_cursor"),
    time("admitted_at", null=True),
    time("opened_at", null=True),
    time("closed_at", null=True),
    integer("jobs_total"),
    integer("jobs_failed", null=True),
)

run_needs = Table("run_needs", metadata, key("workspace_id"), key("run_id"), text("step_id"), text("needs"))

jobs = Table(
    "jobs",
    metadata,
    key(),
    key("workspace_id"),
    key("run_id"),
    text("step_id"),
    text("tool_id"),
    text("toolset"),
    text("category"),
    ref("target_id"),
    ref("asset_id"),
    ref("service_id"),
    ref("network_id"),
    flag("own_only"),
    key("subject_id"),
    integer("ordinal"),
    integer("generation"),
    json("spec"),
    text("status"),
    small("priority"),
    time("due_at"),
    ref("dispatch_id"),
    flag("alone"),
    integer("attempt"),
    integer("failures"),
    integer("failures_before"),
    integer("free_attempts"),
    small("losses"),
    flag("retryable"),
    flag("quarantined"),
    ref("worker_id"),
    time("picked_at", null=True),
    time("completed_at", null=True),
    text("reason", null=True),
    ref("result_ref"),
    ref("retry_of"),
    text("cause", null=True),
    time("created_at"),
)

job_attempts = Table(
    "job_attempts",
    metadata,
    key("job_id"),
    integer("attempt"),
    key("workspace_id"),
    key("dispatch_id"),
    key("worker_id"),
    key("incarnation"),
    text("claim_key"),
    time("claimed_at"),
    time("observed_at"),
    time("staged_at", null=True),
    text("staged_outcome", null=True),
    text("staged_error", null=True),
    json("coverage", null=True),
    flag("is_complete", null=True),
    flag("is_reachable", null=True),
    ref("result_id"),
    ref("body_job_id"),
    integer("body_attempt", null=True),
    integer("merge_failures"),
    time("ended_at", null=True),
    text("outcome", null=True),
    flag("charged"),
    json("summary", null=True),
    texts("argv", null=True),
    text("tool_version", null=True),
)

job_error_logs = Table(
    "job_error_logs",
    metadata,
    key(),
    key("workspace_id"),
    key("job_id"),
    integer("attempt"),
    text("outcome"),
    text("message"),
    text("partial", null=True),
    digest("digest"),
    integer("times"),
    time("created_at"),
    time("last_at"),
)

pauses = Table(
    "pauses",
    metadata,
    key(),
    text("scope"),
    ref("workspace_id"),
    ref("run_id"),
    text("toolset", null=True),
    text("reason", null=True),
    text("created_by", null=True),
    time("created_at"),
    time("lifted_at", null=True),
    text("lifted_by", null=True),
)

operations = Table(
    "operations",
    metadata,
    key(),
    key("workspace_id"),
    text("action"),
    json("filter"),
    text("reason", null=True),
    text("created_by", null=True),
    json("actor", null=True),
    time("as_of"),
    integer("matched"),
    integer("changed"),
    flag("is_aborted"),
    time("moved_at"),
    time("finished_at", null=True),
)
