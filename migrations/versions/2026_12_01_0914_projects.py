"""Which assets are in which project."""

from migrations.sql import execute

revision = "0914_projects"
down_revision = "0913_lane_reports"

SQL = """
CREATE TABLE project_assets (
  workspace_id uuid NOT NULL,
  project_id uuid NOT NULL,
  asset_id uuid NOT NULL,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (project_id, asset_id),
  FOREIGN KEY (workspace_id, project_id) REFERENCES projects (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, asset_id) REFERENCES assets (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX project_assets_of ON project_assets (workspace_id, asset_id);
"""

CURRENT = "nullif(current_setting('runlane.workspace', true), '')::uuid"

ROWS = f"""
GRANT SELECT, INSERT, UPDATE, DELETE ON project_assets TO runlane_system, runlane_api;
ALTER TABLE project_assets ENABLE ROW LEVEL SECURITY;
ALTER TABLE project_assets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON project_assets FOR SELECT TO runlane_api USING (workspace_id = {CURRENT});
CREATE POLICY tenant_write ON project_assets FOR ALL TO runlane_api
  USING (workspace_id = {CURRENT}) WITH CHECK (workspace_id = {CURRENT});
"""


def upgrade() -> None:
    """Creates the table, and gives each role what it needs of it."""
    execute(SQL)
    execute(ROWS)
