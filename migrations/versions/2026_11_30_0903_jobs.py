"""Jobs, their attempts, staged results and error logs.

Fences: `jobs.attempt` grows with every claim and is never reset; `jobs.dispatch_id` names the one activity that
may claim the row; `jobs.failures` counts what is charged to the retry budget. A terminal row has `completed_at`,
a running one has an owner. Only live rows are indexed for the claim: its cost does not grow with what is
finished. These indexes say `completed_at IS NULL` and not which states are live: a statement that goes by id
and guards its state must not match them, or the planner walks a small index full of dead entries instead of
the primary key. No index knows `status`, `attempt` or `worker_id`, and pages are half full: a claim rewrites
rows in their own pages and touches no index.
"""

from migrations.sql import execute

revision = "0004_jobs"
down_revision = "0003_runs"

SQL = """
CREATE TABLE jobs (
  id uuid NOT NULL DEFAULT uuidv7(),
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
  own_only boolean NOT NULL DEFAULT false,
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
  losses smallint NOT NULL DEFAULT 0 CHECK (losses >= 0),
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
  PRIMARY KEY (id, workspace_id),
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
) WITH (fillfactor = 50);
COMMENT ON TABLE jobs IS 'one index serves look-ups by id and the composite references of tenant rows';
COMMENT ON COLUMN jobs.own_only IS 'it is about an address inside, which shared workers may not contact';
COMMENT ON COLUMN jobs.subject_id IS 'what the job is about: the target, asset or service it fans out over';
COMMENT ON COLUMN jobs.spec IS 'frozen input of the tool: target object and options';
COMMENT ON COLUMN jobs.alone IS 'set after a lost batch: dispatched by itself from then on';
COMMENT ON COLUMN jobs.attempt IS '0 at admit, +1 with each claim, never reset: the fence of every later write';
COMMENT ON COLUMN jobs.failures IS 'charged attempts: the retry budget';
COMMENT ON COLUMN jobs.failures_before IS 'charged attempts of the job that this one re-runs';
COMMENT ON COLUMN jobs.free_attempts IS 'attempts that ended without blame (lost, released, rejected)';
COMMENT ON COLUMN jobs.losses IS 'attempts that ended with the loss of their worker; from two on the job is a suspect';
CREATE INDEX jobs_dispatchable ON jobs (run_id, step_id, priority, created_at, id)
  WHERE completed_at IS NULL AND dispatch_id IS NULL;
CREATE INDEX jobs_dispatched ON jobs (dispatch_id)
  WHERE completed_at IS NULL AND dispatch_id IS NOT NULL;
CREATE INDEX jobs_live ON jobs (run_id, step_id) WHERE completed_at IS NULL;
CREATE INDEX jobs_ended ON jobs (run_id, completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX jobs_retryable ON jobs (completed_at) WHERE retryable;
CREATE INDEX jobs_own_only ON jobs (run_id, step_id) WHERE completed_at IS NULL AND own_only;
CREATE INDEX jobs_suspect ON jobs (workspace_id, toolset) WHERE completed_at IS NULL AND losses >= 2;

CREATE TABLE job_results (
  id uuid NOT NULL DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  run_id uuid NOT NULL,
  category text NOT NULL,
  body bytea,
  object_key text UNIQUE,
  size_bytes bigint NOT NULL CHECK (size_bytes >= 0),
  sha256 bytea NOT NULL CHECK (length(sha256) = 32),
  kept boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (id, workspace_id),
  CHECK ((body IS NULL) <> (object_key IS NULL)),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE job_results IS 'staged results: one per delivery of a batch; in the row when small, else in the bucket';
COMMENT ON COLUMN job_results.kept IS 'a merge failed for good: kept for a later merge';

CREATE TABLE uploads (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  worker_id uuid NOT NULL REFERENCES workers,
  dispatch_id uuid NOT NULL,
  object_key text NOT NULL UNIQUE,
  size_bytes bigint NOT NULL CHECK (size_bytes > 0),
  sha256 bytea NOT NULL CHECK (length(sha256) = 32),
  expires_at timestamptz NOT NULL,
  staged_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE uploads IS 'places in the bucket that workers may upload a body to, until their URLs have expired';
CREATE INDEX uploads_outstanding ON uploads (worker_id) WHERE staged_at IS NULL;

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
  body_job_id uuid,
  body_attempt integer,
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
) WITH (fillfactor = 30);
COMMENT ON TABLE job_attempts IS 'pages a third full: stage and settle rewrite a row in its own page and touch no index';
COMMENT ON COLUMN job_attempts.claim_key IS 'identity of the claiming activity task: the same key gets the same answer';
COMMENT ON COLUMN job_attempts.observed_at IS 'the moment that the result speaks of: when the claim was made';
COMMENT ON COLUMN job_attempts.body_job_id IS 'whose lines of the result are meant, when they are not its own: a kept result is merged anew';
CREATE INDEX job_attempts_dispatch ON job_attempts (dispatch_id);
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
"""


def upgrade() -> None:
    """Creates the tables of jobs."""
    execute(SQL)
