"""Pauses, limits, exclusions, blackout windows, and the commands that Temporal has to be told."""

from migrations.sql import execute

revision = "0006_controls"
down_revision = "0005_observations"

SQL = """
CREATE TABLE pauses (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  scope text NOT NULL CHECK (scope IN ('run', 'toolset', 'workspace', 'platform')),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  run_id uuid,
  toolset text,
  reason text,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  lifted_at timestamptz,
  CHECK ((scope = 'platform') = (workspace_id IS NULL)),
  CHECK ((scope = 'run') = (run_id IS NOT NULL)),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX pauses_active ON pauses (workspace_id) WHERE lifted_at IS NULL;

CREATE TABLE limits (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  toolset text,
  max_in_progress integer CHECK (max_in_progress > 0),
  per_minute integer CHECK (per_minute > 0),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE NULLS NOT DISTINCT (workspace_id, toolset)
);

CREATE TABLE exclusions (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  kind text NOT NULL CHECK (kind IN ('domain', 'network')),
  value text NOT NULL,
  reason text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, kind, value)
);

CREATE TABLE blackout_windows (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  target_id uuid,
  starts_at timestamptz NOT NULL,
  ends_at timestamptz NOT NULL,
  reason text,
  CHECK (starts_at < ends_at),
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE
);

CREATE TABLE commands (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  kind text NOT NULL CHECK (kind IN ('start_run', 'nudge', 'schedule')),
  workflow_id text NOT NULL,
  payload jsonb NOT NULL DEFAULT '{}',
  request_id text UNIQUE,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  tries integer NOT NULL DEFAULT 0,
  error text,
  done_at timestamptz
);
COMMENT ON TABLE commands IS 'what Temporal has to be told; relayed at full speed, with back-off while it is away';
CREATE INDEX commands_open ON commands (due_at, id) WHERE done_at IS NULL;
"""


def upgrade() -> None:
    """Creates the operator's controls and the command queue."""
    execute(SQL)
