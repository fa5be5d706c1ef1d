"""Tools, definitions, schedules, and runs with their steps, shards and dispatches.

A run is a graph of steps that is frozen at its start. A terminal row has `closed_at`: the constraints say so, so
that no code path can forget.
"""

from migrations.sql import execute

revision = "0003_runs"
down_revision = "0002_inventory"

SQL = """
CREATE TABLE tools (
  id text PRIMARY KEY CHECK (id ~ '^[a-z0-9_-]{1,80}$'),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  category text NOT NULL,
  fans_out text NOT NULL CHECK (fans_out IN ('targets', 'assets', 'services', 'web_services')),
  toolset text NOT NULL,
  shape text NOT NULL CHECK (shape IN ('stream', 'each', 'many')),
  version text NOT NULL,
  wall_s double precision NOT NULL CHECK (wall_s > 0),
  parallelism integer NOT NULL CHECK (parallelism > 0),
  max_batch integer NOT NULL CHECK (max_batch > 0),
  large_max_batch integer NOT NULL CHECK (large_max_batch BETWEEN max_batch AND 100),
  enabled boolean NOT NULL DEFAULT true
);
COMMENT ON COLUMN tools.workspace_id IS 'NULL for tools that every workspace has';
COMMENT ON COLUMN tools.wall_s IS 'limit of one job';

CREATE TABLE tool_profiles (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  tool_id text NOT NULL REFERENCES tools,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  options jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, tool_id, name)
);

CREATE TABLE connectors (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  slug text NOT NULL,
  tool_id text NOT NULL UNIQUE REFERENCES tools ON DELETE CASCADE,
  image text NOT NULL,
  digest text NOT NULL,
  manifest jsonb NOT NULL,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, id),
  UNIQUE NULLS NOT DISTINCT (workspace_id, slug)
);
COMMENT ON COLUMN connectors.slug IS 'what steps name it by; the tool of a workspace''s own one has another id';

CREATE TABLE workflow_definitions (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  version integer NOT NULL DEFAULT 1,
  body jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at timestamptz,
  UNIQUE (workspace_id, id)
);
CREATE UNIQUE INDEX workflow_definitions_name
  ON workflow_definitions (workspace_id, name) NULLS NOT DISTINCT WHERE deleted_at IS NULL;
CREATE INDEX workflow_definitions_triggered ON workflow_definitions (id) WHERE body ? 'on';

CREATE TABLE definition_versions (
  workspace_id uuid NOT NULL,
  definition_id uuid NOT NULL,
  version integer NOT NULL,
  body jsonb NOT NULL,
  saved_by text,
  saved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (definition_id, version),
  FOREIGN KEY (workspace_id, definition_id) REFERENCES workflow_definitions (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE definition_versions IS 'what a saved definition said, version by version';

CREATE TABLE projects (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  version integer NOT NULL DEFAULT 1,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  looked_up_to uuid,
  deleted_at timestamptz,
  UNIQUE (workspace_id, id)
);
COMMENT ON COLUMN projects.changed_at IS 'when a person said its rules last';
COMMENT ON COLUMN projects.due_at IS 'when all assets are to be compared with its rules again';
COMMENT ON COLUMN projects.looked_up_to IS 'the last asset that was compared; NULL: the first is next';
CREATE UNIQUE INDEX projects_name ON projects (workspace_id, name) WHERE deleted_at IS NULL;
CREATE INDEX projects_due ON projects (due_at) WHERE deleted_at IS NULL;

CREATE TABLE project_scopes (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL,
  project_id uuid NOT NULL,
  kind text NOT NULL
    CHECK (kind IN ('domain', 'cidr', 'target', 'group', 'tag', 'port', 'technology', 'severity')),
  value text NOT NULL CHECK (length(value) BETWEEN 1 AND 253),
  UNIQUE (workspace_id, id),
  UNIQUE (project_id, kind, value),
  FOREIGN KEY (workspace_id, project_id) REFERENCES projects (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE project_scopes IS 'rules of a project: an asset that any of them fits is in it';

CREATE TABLE schedules (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  definition_id uuid,
  run jsonb NOT NULL,
  spec jsonb NOT NULL,
  version integer NOT NULL DEFAULT 1,
  created_by text,
  expected_at timestamptz,
  paused_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at timestamptz,
  UNIQUE (workspace_id, id)
);
COMMENT ON COLUMN schedules.run IS 'what a fire starts: definition, targets, groups, tags, config, priority';
COMMENT ON COLUMN schedules.expected_at IS 'the first fire that the ledger does not know; NULL: none is expected';
CREATE UNIQUE INDEX schedules_name ON schedules (workspace_id, name) WHERE deleted_at IS NULL;
CREATE INDEX schedules_expected ON schedules (expected_at) WHERE expected_at IS NOT NULL;

CREATE TABLE schedule_fires (
  schedule_id uuid NOT NULL,
  workspace_id uuid NOT NULL,
  due_at timestamptz NOT NULL,
  outcome text NOT NULL CHECK (outcome IN ('ran', 'skipped', 'buffered', 'missed')),
  reason text,
  run_id uuid,
  workflow_id text,
  asked_by text,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (schedule_id, due_at),
  FOREIGN KEY (workspace_id, schedule_id) REFERENCES schedules (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON COLUMN schedule_fires.workflow_id IS 'whom to nudge when a buffered fire may run';
COMMENT ON COLUMN schedule_fires.asked_by IS 'who wanted it now; NULL: the clock';
CREATE INDEX schedule_fires_waiting ON schedule_fires (schedule_id) WHERE outcome = 'buffered';

CREATE TABLE job_histories (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  kind text NOT NULL DEFAULT 'workflow',
  status text NOT NULL DEFAULT 'accepted'
    CHECK (status IN ('accepted', 'running', 'completed', 'failed', 'cancelled')),
  definition jsonb NOT NULL,
  definition_id uuid,
  definition_version integer,
  project_id uuid,
  schedule_id uuid,
  trigger text NOT NULL DEFAULT 'request'
    CHECK (trigger IN ('request', 'schedule', 'event', 'rerun', 'sweep')),
  rerun_of uuid,
  hops integer NOT NULL DEFAULT 0 CHECK (hops BETWEEN 0 AND 3),
  priority smallint NOT NULL DEFAULT 2 CHECK (priority BETWEEN 0 AND 4),
  created_by text,
  blocked_reason text,
  nudged_at timestamptz,
  owner text,
  owner_started_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at timestamptz,
  closed_at timestamptz,
  jobs_pruned_at timestamptz,
  UNIQUE (workspace_id, id),
  CHECK ((status IN ('completed', 'failed', 'cancelled')) = (closed_at IS NOT NULL)),
  FOREIGN KEY (workspace_id, definition_id) REFERENCES workflow_definitions (workspace_id, id)
    ON DELETE SET NULL (definition_id),
  FOREIGN KEY (workspace_id, project_id) REFERENCES projects (workspace_id, id)
    ON DELETE SET NULL (project_id),
  FOREIGN KEY (workspace_id, schedule_id) REFERENCES schedules (workspace_id, id)
    ON DELETE SET NULL (schedule_id),
  FOREIGN KEY (workspace_id, rerun_of) REFERENCES job_histories (workspace_id, id)
    ON DELETE SET NULL (rerun_of)
);
COMMENT ON COLUMN job_histories.definition IS 'frozen at start: later edits of the definition change nothing';
COMMENT ON COLUMN job_histories.definition_version IS 'of the saved definition that it was started from';
COMMENT ON COLUMN job_histories.nudged_at IS 'set by the transaction that asks the workflow to look; cleared by its read';
COMMENT ON COLUMN job_histories.owner IS 'Temporal run id of the workflow that adopted it last: an older one takes no rows';
COMMENT ON COLUMN job_histories.jobs_pruned_at IS 'its last job was pruned: it has left the list, its page opens';
CREATE INDEX job_histories_list ON job_histories (workspace_id, created_at DESC, id DESC);
CREATE INDEX job_histories_open ON job_histories (created_at) WHERE closed_at IS NULL;
CREATE INDEX job_histories_open_of ON job_histories (workspace_id) WHERE closed_at IS NULL;

CREATE TABLE run_targets (
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  target_id uuid NOT NULL,
  is_new boolean NOT NULL DEFAULT false,
  PRIMARY KEY (run_id, target_id),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON COLUMN run_targets.is_new IS 'the assets that it has by itself are still to be made';
CREATE INDEX run_targets_new ON run_targets (run_id, target_id) WHERE is_new;

CREATE TABLE run_steps (
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  step_id text NOT NULL CHECK (step_id ~ '^[a-z0-9_-]{1,64}$'),
  position integer NOT NULL,
  name text NOT NULL,
  tool_id text NOT NULL REFERENCES tools,
  status text NOT NULL DEFAULT 'waiting'
    CHECK (status IN ('waiting', 'running', 'completed', 'failed', 'skipped', 'cancelled')),
  config jsonb NOT NULL DEFAULT '{}',
  tolerance text,
  priority smallint CHECK (priority BETWEEN 0 AND 4),
  scope_as_of timestamptz,
  admit_cursor uuid,
  admitted_at timestamptz,
  opened_at timestamptz,
  closed_at timestamptz,
  jobs_total integer NOT NULL DEFAULT 0,
  jobs_failed integer,
  PRIMARY KEY (run_id, step_id),
  UNIQUE (workspace_id, run_id, step_id),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE,
  CHECK ((status IN ('completed', 'failed', 'skipped', 'cancelled')) = (closed_at IS NOT NULL)),
  CHECK (status <> 'running' OR (opened_at IS NOT NULL AND scope_as_of IS NOT NULL))
);
COMMENT ON COLUMN run_steps.scope_as_of IS 'frozen when the step opens: what is created later is not in it';
COMMENT ON COLUMN run_steps.priority IS 'of jobs that are still to be admitted; NULL: that of the run';
COMMENT ON COLUMN run_steps.jobs_total IS 'jobs admitted so far';
COMMENT ON COLUMN run_steps.admit_cursor IS 'last subject that has its job; admit goes on behind it';

CREATE TABLE run_needs (
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  step_id text NOT NULL,
  needs text NOT NULL,
  PRIMARY KEY (run_id, step_id, needs),
  FOREIGN KEY (workspace_id, run_id, step_id) REFERENCES run_steps (workspace_id, run_id, step_id)
    ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, run_id, needs) REFERENCES run_steps (workspace_id, run_id, step_id)
    ON DELETE CASCADE,
  CHECK (step_id <> needs)
);

CREATE TABLE run_shards (
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  step_id text NOT NULL,
  number integer NOT NULL,
  workflow_id text NOT NULL UNIQUE,
  nudged_at timestamptz,
  opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  closed_at timestamptz,
  PRIMARY KEY (run_id, step_id, number),
  FOREIGN KEY (workspace_id, run_id, step_id) REFERENCES run_steps (workspace_id, run_id, step_id)
    ON DELETE CASCADE
);

CREATE TABLE dispatches (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  step_id text NOT NULL,
  workflow_id text NOT NULL,
  workflow_run_id text NOT NULL,
  call_number integer NOT NULL,
  task_queue text NOT NULL,
  priority smallint NOT NULL,
  size integer NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  closed_at timestamptz,
  UNIQUE (workspace_id, id),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE dispatches IS 'one batch activity each; its activity id is the id of the row';
CREATE INDEX dispatches_call ON dispatches (workflow_run_id, call_number);
CREATE INDEX dispatches_open ON dispatches (run_id) WHERE closed_at IS NULL;
CREATE INDEX dispatches_queued ON dispatches (task_queue) WHERE closed_at IS NULL;
"""


def upgrade() -> None:
    """Creates the tables of runs."""
    execute(SQL)
