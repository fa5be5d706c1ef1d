"""Read models of the projection lane: statistics by day, and a summary of each target.

A summary is counted from the inventory, not added up from events: those only say that it is stale. `marks` says
whether it became stale again while it was counted.
"""

from migrations.sql import execute

revision = "0912_statistics"
down_revision = "0911_integrations"

CURRENT = "nullif(current_setting('runlane.workspace', true), '')::uuid"

SQL = """
CREATE TABLE daily_statistics (
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  metric text NOT NULL CHECK (length(metric) BETWEEN 1 AND 64),
  day date NOT NULL,
  value bigint NOT NULL CHECK (value >= 0),
  PRIMARY KEY (workspace_id, metric, day)
);
CREATE INDEX daily_statistics_day ON daily_statistics (day);

CREATE TABLE target_summaries (
  workspace_id uuid NOT NULL,
  target_id uuid NOT NULL,
  assets bigint NOT NULL DEFAULT 0,
  ports bigint NOT NULL DEFAULT 0,
  services bigint NOT NULL DEFAULT 0,
  findings_info bigint NOT NULL DEFAULT 0,
  findings_low bigint NOT NULL DEFAULT 0,
  findings_medium bigint NOT NULL DEFAULT 0,
  findings_high bigint NOT NULL DEFAULT 0,
  findings_critical bigint NOT NULL DEFAULT 0,
  last_run_id uuid,
  last_run_at timestamptz,
  scanned_at timestamptz,
  stale_since timestamptz DEFAULT clock_timestamp(),
  marks bigint NOT NULL DEFAULT 0,
  refreshed_at timestamptz,
  PRIMARY KEY (workspace_id, target_id),
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON COLUMN target_summaries.last_run_id IS 'the newest run on it; runs are kept';
COMMENT ON COLUMN target_summaries.scanned_at IS 'when a run on it was completed last';
COMMENT ON COLUMN target_summaries.stale_since IS 'something changed since it was counted; a new row was never counted';
CREATE INDEX target_summaries_stale ON target_summaries (stale_since) WHERE stale_since IS NOT NULL;

INSERT INTO target_summaries (workspace_id, target_id) SELECT workspace_id, id FROM targets;
"""

TENANT_TABLES = ("daily_statistics", "target_summaries")


def upgrade() -> None:
    """Creates the read models; summaries of targets that are there are counted by the lanes process."""
    execute(SQL)
    tables = ", ".join(TENANT_TABLES)
    execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO runlane_system")
    execute(f"GRANT SELECT ON {tables} TO runlane_api")
    for table in TENANT_TABLES:
        execute(f"""
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
        CREATE POLICY tenant_read ON {table} FOR SELECT TO runlane_api USING (workspace_id = {CURRENT});
        """)
