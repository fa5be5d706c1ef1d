"""Grants and row-level security of the two service roles.

`runlane_api` sees the rows of the workspace that its transaction named (`SET LOCAL runlane.workspace`), and
none when it named none. `runlane_system` (core, results, lanes, worker endpoints) bypasses row security.
Rows without a workspace (built-in tools and definitions, controls of everything) are readable by all and writable by none but the
system role. The owner role runs migrations only.
"""

from migrations.sql import execute

revision = "0008_row_security"
down_revision = "0007_events"

TENANT_TABLES = (
    "permission_groups", "members", "api_keys", "internal_networks", "workers", "secrets",
    "idempotency_keys", "targets", "target_groups", "target_group_members", "assets", "ports",
    "asset_services", "urls", "technologies", "vulnerabilities", "tool_profiles", "projects",
    "project_scopes", "definition_versions", "schedules", "schedule_fires", "job_histories", "run_targets",
    "run_steps", "run_needs", "run_shards", "dispatches", "jobs", "job_results", "uploads", "job_attempts", "job_error_logs",
    "port_observations", "http_responses", "url_observations", "screenshots", "limit_claims",
    "blackout_windows", "rate_shares", "commands", "outbox", "audit_events", "operations",
    "gathered_targets",
)  # fmt: skip
SHARED_TABLES = ("tools", "connectors", "workflow_definitions", "limits", "rates", "pauses", "exclusions")
APPEND_ONLY = ("audit_events",)

ARCHIVER = "runlane_drop_archived_audit(bigint, bigint, integer, text, bytea)"

CURRENT = "nullif(current_setting('runlane.workspace', true), '')::uuid"


def _secure(table: str, readable: str, writable: str) -> str:
    return f"""
    ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
    ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant_read ON {table} FOR SELECT TO runlane_api USING ({readable});
    CREATE POLICY tenant_write ON {table} FOR ALL TO runlane_api USING ({writable}) WITH CHECK ({writable});
    """


def upgrade() -> None:
    """Grants what each role needs and closes the rest."""
    own = f"workspace_id = {CURRENT}"
    statements = [
        "GRANT USAGE ON SCHEMA public TO runlane_api, runlane_system",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO runlane_system",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO runlane_api, runlane_system",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON "
        + ", ".join((*TENANT_TABLES, *SHARED_TABLES))
        + " TO runlane_api",
        "GRANT SELECT ON workspaces, bus_state TO runlane_api",
        # whoever asks for secrets in the name of a person sees their names
        "REVOKE SELECT ON secrets FROM runlane_api",
        "GRANT SELECT (id, workspace_id, name, key_id, created_at, rotated_at) ON secrets TO runlane_api",
        "REVOKE UPDATE, DELETE ON audit_events FROM runlane_api, runlane_system",
        "REVOKE INSERT ON audit_events FROM runlane_api",
        "REVOKE INSERT, UPDATE, DELETE ON audit_archives FROM runlane_system",
        "REVOKE UPDATE, DELETE ON outbox FROM runlane_api",
        "REVOKE ALL ON FUNCTION runlane_ensure_outbox_partitions(integer) FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION runlane_ensure_outbox_partitions(integer) TO runlane_system",
        "REVOKE ALL ON FUNCTION runlane_drop_outbox_partition(text) FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION runlane_drop_outbox_partition(text) TO runlane_system",
        f"REVOKE ALL ON FUNCTION {ARCHIVER} FROM PUBLIC",
        f"GRANT EXECUTE ON FUNCTION {ARCHIVER} TO runlane_system",
    ]
    execute(";\n".join(statements) + ";")
    for table in TENANT_TABLES:
        execute(_secure(table, own, own))
    for table in SHARED_TABLES:
        execute(_secure(table, f"workspace_id IS NULL OR {own}", own))
    # row security binds the owner, too; its function deletes what is archived, and a trigger guards the rest
    execute("CREATE POLICY archive ON audit_events TO CURRENT_USER USING (true)")
    execute(_secure("workspaces", f"id = {CURRENT}", f"id = {CURRENT}"))
