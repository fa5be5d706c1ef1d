"""Runs, steps, jobs, attempts, dispatches, staged results and the observations of a run.

Fences: `jobs.attempt` grows with every claim and is never reset; `jobs.dispatch_id` names the one activity
that may claim the row; `jobs.failures` counts what is charged to the retry budget. A terminal row has
`completed_at`, a running one has an owner; the constraints say so, so that no code path can forget.
Only live rows are indexed for the claim: its cost does not grow with what is finished.
"""

from migrations.sql import execute

revision = "0003_registry"
down_revision = "0002_inventory"

SQL = """
CREATE TABLE tools (
  id text PRIMARY KEY CHECK (id ~ '^[a-z0-9_-]{1,64}$'),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  category text NOT NULL,
  toolset text NOT NULL,
  shape text NOT NULL CHECK (shape IN ('stream', 'each', 'many')),
  version text NOT NULL,
  max_batch integer NOT NULL CHECK (max_batch BETWEEN 1 AND 100),
  enabled boolean NOT NULL DEFAULT true
);
COMMENT ON COLUMN tools.workspace_id IS 'NULL for built-in tools';

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
  tool_id text NOT NULL REFERENCES tools,
  image text NOT NULL,
  digest text NOT NULL,
  manifest jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, id)
);

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

CREATE TABLE projects (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at timestamptz,
  UNIQUE (workspace_id, id)
);

CREATE TABLE project_scopes (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL,
  project_id uuid NOT NULL,
  rule jsonb NOT NULL,
  UNIQUE (workspace_id, id),
  FOREIGN KEY (workspace_id, project_id) REFERENCES projects (workspace_id, id) ON DELETE CASCADE
);

CREATE TABLE schedules (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  definition_id uuid,
  spec jsonb NOT NULL,
  paused_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at timestamptz,
  UNIQUE (workspace_id, id)
);

CREATE TABLE schedule_fires (
  schedule_id uuid NOT NULL,
  workspace_id uuid NOT NULL,
  due_at timestamptz NOT NULL,
  outcome text NOT NULL CHECK (outcome IN ('ran', 'skipped', 'buffered', 'missed')),
  reason text,
  run_id uuid,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (schedule_id, due_at),
  FOREIGN KEY (workspace_id, schedule_id) REFERENCES schedules (workspace_id, id) ON DELETE CASCADE
);

CREATE TABLE job_histories (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  kind text NOT NULL DEFAULT 'workflow',
  status text NOT NULL DEFAULT 'accepted'
    CHECK (status IN ('accepted', 'running', 'completed', 'failed', 'cancelled')),
  definition jsonb NOT NULL,
  definition_id uuid,
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
COMMENT ON COLUMN job_histories.nudged_at IS 'set by the transaction that asks the workflow to look; cleared by its read';
COMMENT ON COLUMN job_histories.owner IS 'Temporal run id of the workflow that adopted it last: an older one takes no rows';
CREATE INDEX job_histories_list ON job_histories (workspace_id, created_at DESC, id DESC);
CREATE INDEX job_histories_open ON job_histories (created_at) WHERE closed_at IS NULL;

CREATE TABLE run_targets (
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  target_id uuid NOT NULL,
  PRIMARY KEY (run_id, target_id),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE
);

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

CREATE TABLE jobs (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  step_id text NOT NULL,
  tool_id text NOT NULL,
  toolset text NOT NULL,
  category text NOT NULL,
  target_id uuid,
  asset_id uuid,
  service_id uuid,
  network_id uuid,
  subject_id uuid NOT NULL,
  ordinal integer NOT NULL DEFAULT 0,
  generation integer NOT NULL DEFAULT 0,
  spec jsonb NOT NULL,
  status text NOT NULL DEFAULT 'pending'
    CHECK (status IN ('pending', 'in_progress', 'completed', 'failed', 'cancelled', 'skipped')),
  priority smallint NOT NULL DEFAULT 2 CHECK (priority BETWEEN 0 AND 4),
  due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  dispatch_id uuid,
  alone boolean NOT NULL DEFAULT false,
  attempt integer NOT NULL DEFAULT 0,
  failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
  failures_before integer NOT NULL DEFAULT 0 CHECK (failures_before >= 0),
  free_attempts integer NOT NULL DEFAULT 0 CHECK (free_attempts >= 0),
  retryable boolean NOT NULL DEFAULT false,
  quarantined boolean NOT NULL DEFAULT false,
  worker_id uuid,
  picked_at timestamptz,
  completed_at timestamptz,
  reason text,
  result_ref uuid,
  retry_of uuid,
  cause text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, id),
  UNIQUE (run_id, step_id, subject_id, ordinal, generation),
  CHECK ((status IN ('completed', 'failed', 'cancelled', 'skipped')) = (completed_at IS NOT NULL)),
  CHECK (status <> 'in_progress' OR (worker_id IS NOT NULL AND picked_at IS NOT NULL
                                     AND dispatch_id IS NOT NULL AND attempt > 0)),
  CHECK (NOT retryable OR status = 'failed'),
  FOREIGN KEY (workspace_id, run_id, step_id) REFERENCES run_steps (workspace_id, run_id, step_id)
    ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id)
    ON DELETE SET NULL (target_id),
  FOREIGN KEY (workspace_id, asset_id) REFERENCES assets (workspace_id, id)
    ON DELETE SET NULL (asset_id),
  FOREIGN KEY (workspace_id, service_id) REFERENCES asset_services (workspace_id, id)
    ON DELETE SET NULL (service_id)
);
COMMENT ON COLUMN jobs.subject_id IS 'what the job is about: the target, asset or service it fans out over';
COMMENT ON COLUMN jobs.spec IS 'frozen input of the tool: target object and options';
COMMENT ON COLUMN jobs.alone IS 'set after a lost batch: dispatched by itself from then on';
COMMENT ON COLUMN jobs.attempt IS '0 at admit, +1 with each claim, never reset: the fence of every later write';
COMMENT ON COLUMN jobs.failures IS 'charged attempts: the retry budget';
COMMENT ON COLUMN jobs.failures_before IS 'charged attempts of the job that this one re-runs';
COMMENT ON COLUMN jobs.free_attempts IS 'attempts that ended without blame (lost, released, rejected)';
CREATE INDEX jobs_dispatchable ON jobs (run_id, step_id, priority, created_at, id)
  WHERE status = 'pending' AND dispatch_id IS NULL;
CREATE INDEX jobs_dispatched ON jobs (dispatch_id)
  WHERE status IN ('pending', 'in_progress') AND dispatch_id IS NOT NULL;
CREATE INDEX jobs_live ON jobs (run_id, step_id) WHERE status IN ('pending', 'in_progress');
CREATE INDEX jobs_worker ON jobs (worker_id) WHERE status = 'in_progress';
CREATE INDEX jobs_stuck ON jobs (picked_at) WHERE status = 'in_progress';
CREATE INDEX jobs_retryable ON jobs (completed_at) WHERE status = 'failed' AND retryable;

CREATE TABLE job_results (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  run_id uuid NOT NULL,
  category text NOT NULL,
  body bytea,
  object_key text UNIQUE,
  size_bytes bigint NOT NULL CHECK (size_bytes >= 0),
  sha256 bytea NOT NULL CHECK (length(sha256) = 32),
  kept boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, id),
  CHECK ((body IS NULL) <> (object_key IS NULL)),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE job_results IS 'staged results: one per delivery of a batch; in the row when small, else in the bucket';
COMMENT ON COLUMN job_results.kept IS 'a merge failed for good: kept for a later merge';

CREATE TABLE job_attempts (
  job_id uuid NOT NULL,
  attempt integer NOT NULL CHECK (attempt > 0),
  workspace_id uuid NOT NULL,
  dispatch_id uuid NOT NULL,
  worker_id uuid NOT NULL REFERENCES workers,
  incarnation uuid NOT NULL,
  claim_key text NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  observed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  staged_at timestamptz,
  staged_outcome text
    CHECK (staged_outcome IN ('completed', 'tool_failed', 'timed_out', 'fatal', 'rejected')),
  staged_error text,
  coverage jsonb,
  is_complete boolean,
  is_reachable boolean,
  result_id uuid,
  merge_failures integer NOT NULL DEFAULT 0,
  ended_at timestamptz,
  outcome text CHECK (outcome IN ('completed', 'tool_failed', 'timed_out', 'fatal', 'merge_failed', 'lost',
                                  'released', 'rejected', 'cancelled', 'stale')),
  charged boolean NOT NULL DEFAULT false,
  summary jsonb,
  argv text[],
  tool_version text,
  PRIMARY KEY (job_id, attempt),
  FOREIGN KEY (workspace_id, job_id) REFERENCES jobs (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, result_id) REFERENCES job_results (workspace_id, id)
    ON DELETE SET NULL (result_id),
  CHECK ((ended_at IS NULL) = (outcome IS NULL)),
  CHECK ((staged_at IS NULL) = (staged_outcome IS NULL))
);
COMMENT ON COLUMN job_attempts.claim_key IS 'identity of the claiming activity task: the same key gets the same answer';
COMMENT ON COLUMN job_attempts.observed_at IS 'the moment that the result speaks of: when the claim was made';
CREATE INDEX job_attempts_claim ON job_attempts (dispatch_id, claim_key);
CREATE INDEX job_attempts_open ON job_attempts (worker_id) WHERE ended_at IS NULL;
CREATE INDEX job_attempts_result ON job_attempts (result_id) WHERE result_id IS NOT NULL;

CREATE TABLE job_error_logs (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL,
  job_id uuid NOT NULL,
  attempt integer NOT NULL,
  outcome text NOT NULL,
  message text NOT NULL,
  partial text,
  digest bytea NOT NULL CHECK (length(digest) = 32),
  times integer NOT NULL DEFAULT 1,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, job_id, digest),
  FOREIGN KEY (workspace_id, job_id) REFERENCES jobs (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON COLUMN job_error_logs.digest IS 'SHA-256 of outcome and message: the same error of a job is one row';

CREATE TABLE port_observations (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  asset_id uuid NOT NULL,
  job_id uuid NOT NULL,
  ports integer[] NOT NULL,
  is_complete boolean NOT NULL,
  observed_at timestamptz NOT NULL,
  UNIQUE (run_id, asset_id, job_id),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, asset_id) REFERENCES assets (workspace_id, id) ON DELETE CASCADE
);

CREATE TABLE http_responses (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  service_id uuid NOT NULL,
  job_id uuid NOT NULL,
  url text NOT NULL,
  status integer,
  response jsonb NOT NULL,
  observed_at timestamptz NOT NULL,
  UNIQUE (run_id, service_id, job_id),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, service_id) REFERENCES asset_services (workspace_id, id) ON DELETE CASCADE
);

CREATE TABLE url_observations (
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  url_id uuid NOT NULL,
  job_id uuid NOT NULL,
  status integer,
  depth integer,
  source text,
  observed_at timestamptz NOT NULL,
  PRIMARY KEY (run_id, url_id),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, url_id) REFERENCES urls (workspace_id, id) ON DELETE CASCADE
);

CREATE TABLE screenshots (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL,
  run_id uuid NOT NULL,
  service_id uuid NOT NULL,
  job_id uuid NOT NULL,
  object_key text NOT NULL,
  observed_at timestamptz NOT NULL,
  UNIQUE (run_id, service_id, job_id),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, service_id) REFERENCES asset_services (workspace_id, id) ON DELETE CASCADE
);

ALTER TABLE assets ADD FOREIGN KEY (workspace_id, run_id)
  REFERENCES job_histories (workspace_id, id) ON DELETE SET NULL (run_id);
ALTER TABLE ports ADD FOREIGN KEY (workspace_id, run_id)
  REFERENCES job_histories (workspace_id, id) ON DELETE SET NULL (run_id);
ALTER TABLE asset_services ADD FOREIGN KEY (workspace_id, run_id)
  REFERENCES job_histories (workspace_id, id) ON DELETE SET NULL (run_id);
ALTER TABLE urls ADD FOREIGN KEY (workspace_id, run_id)
  REFERENCES job_histories (workspace_id, id) ON DELETE SET NULL (run_id);
ALTER TABLE vulnerabilities ADD FOREIGN KEY (workspace_id, run_id)
  REFERENCES job_histories (workspace_id, id) ON DELETE SET NULL (run_id);

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
    """Creates the registry tables."""
    execute(SQL)
