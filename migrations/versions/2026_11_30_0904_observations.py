"""What one run saw: it goes with the run, while the current state of the inventory stays."""

from migrations.sql import execute

revision = "0005_observations"
down_revision = "0004_jobs"

SQL = """
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
  url text NOT NULL,
  object_key text NOT NULL UNIQUE,
  size_bytes integer NOT NULL,
  sha256 bytea NOT NULL CHECK (length(sha256) = 32),
  width integer NOT NULL,
  height integer NOT NULL,
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
"""


def upgrade() -> None:
    """Creates the observations, and the provenance of the current state."""
    execute(SQL)
