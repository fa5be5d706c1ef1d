"""What the processes of the lanes report of each lane."""

from migrations.sql import execute

revision = "0913_lane_reports"
down_revision = "0913_dead_letters"

SQL = """
CREATE TABLE lane_reports (
  lane text PRIMARY KEY,
  pending bigint,
  oldest_pending_s double precision,
  acked bigint NOT NULL DEFAULT 0,
  skipped bigint NOT NULL DEFAULT 0,
  failed bigint NOT NULL DEFAULT 0,
  dead bigint NOT NULL DEFAULT 0,
  unknown bigint NOT NULL DEFAULT 0,
  last_error text CHECK (length(last_error) <= 500),
  last_error_at timestamptz,
  reported_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lane_reports IS 'apart from the checkpoint, whose row a turn of the lane locks';
GRANT SELECT, INSERT, UPDATE, DELETE ON lane_reports TO runlane_system;
"""


def upgrade() -> None:
    """Creates the table of reports."""
    execute(SQL)
