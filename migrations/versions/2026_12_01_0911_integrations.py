"""Endpoints outside of the platform, what is delivered to them, and how each attempt went."""

from migrations.sql import execute

revision = "0911_integrations"
down_revision = "0910_notifications"

SQL = """
CREATE TABLE integrations (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  kind text NOT NULL CHECK (kind IN ('webhook', 'slack', 'telegram', 'github', 'jira', 'linear')),
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  config jsonb NOT NULL,
  events text[] NOT NULL DEFAULT '{}',
  least_severity text NOT NULL DEFAULT 'info'
    CHECK (least_severity IN ('info', 'low', 'medium', 'high', 'critical')),
  is_ordered boolean NOT NULL DEFAULT false,
  status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disabled')),
  disabled_reason text CHECK (disabled_reason IN ('person', 'gone', 'failing')),
  version integer NOT NULL DEFAULT 1,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at timestamptz,
  failures integer NOT NULL DEFAULT 0,
  failing_since timestamptz,
  delivered_at timestamptz,
  is_probing boolean NOT NULL DEFAULT false,
  paused_until timestamptz,
  called_for timestamptz,
  UNIQUE (workspace_id, id),
  CHECK ((status = 'disabled') = (disabled_reason IS NOT NULL)),
  CHECK ((failures = 0) = (failing_since IS NULL))
);
COMMENT ON COLUMN integrations.events IS 'types, or domains with .*; none: all that is delivered at all';
COMMENT ON COLUMN integrations.failures IS 'attempts in a row that were not accepted';
COMMENT ON COLUMN integrations.is_probing IS 'was enabled again, and has accepted nothing since';
COMMENT ON COLUMN integrations.called_for IS
  'a command to deliver is there for this time; whoever begins to deliver empties it';
CREATE UNIQUE INDEX integrations_name ON integrations (workspace_id, name) WHERE deleted_at IS NULL;

CREATE TABLE integration_secrets (
  workspace_id uuid NOT NULL,
  integration_id uuid NOT NULL,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  key_id text NOT NULL,
  nonce bytea NOT NULL,
  ciphertext bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz,
  PRIMARY KEY (integration_id, name),
  FOREIGN KEY (workspace_id, integration_id) REFERENCES integrations (workspace_id, id) ON DELETE CASCADE
);

CREATE TABLE deliveries (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL,
  integration_id uuid NOT NULL,
  event_id uuid NOT NULL,
  replay integer NOT NULL DEFAULT 0,
  type text NOT NULL,
  subject text NOT NULL,
  sequence bigint NOT NULL,
  body jsonb NOT NULL,
  digest text,
  events integer NOT NULL DEFAULT 1 CHECK (events > 0),
  state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed', 'skipped')),
  attempts integer NOT NULL DEFAULT 0,
  refusals integer NOT NULL DEFAULT 0,
  due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  status integer,
  error text,
  ticket text,
  duration_ms integer,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at timestamptz,
  UNIQUE (workspace_id, id),
  UNIQUE (integration_id, event_id, replay),
  CHECK ((state = 'pending') = (ended_at IS NULL)),
  FOREIGN KEY (workspace_id, integration_id) REFERENCES integrations (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON COLUMN deliveries.replay IS 'how often a person wanted the same event delivered again';
COMMENT ON COLUMN deliveries.digest IS 'of what it is a digest: type, run and moment; its event is the first one';
COMMENT ON COLUMN deliveries.due_at IS 'while it is being sent: when nobody is any more';
CREATE INDEX deliveries_pending ON deliveries (integration_id, due_at) WHERE state = 'pending';
CREATE INDEX deliveries_ordered ON deliveries (integration_id, sequence, id) WHERE state = 'pending';
CREATE INDEX deliveries_list ON deliveries (integration_id, id DESC);
CREATE INDEX deliveries_ended ON deliveries (ended_at) WHERE state <> 'pending';
CREATE UNIQUE INDEX deliveries_open ON deliveries (integration_id, event_id) WHERE state = 'pending';
CREATE UNIQUE INDEX deliveries_digest ON deliveries (integration_id, digest) WHERE digest IS NOT NULL AND replay = 0;

CREATE TABLE delivery_attempts (
  workspace_id uuid NOT NULL,
  delivery_id uuid NOT NULL,
  attempt integer NOT NULL,
  answer text NOT NULL CHECK (answer IN ('accepted', 'troubled', 'refused', 'gone')),
  status integer,
  excerpt text CHECK (length(excerpt) <= 2048),
  error text,
  duration_ms integer NOT NULL,
  ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (delivery_id, attempt),
  FOREIGN KEY (workspace_id, delivery_id) REFERENCES deliveries (workspace_id, id) ON DELETE CASCADE
);

CREATE TABLE delivery_windows (
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  type text NOT NULL,
  run_id uuid,
  began_at timestamptz NOT NULL,
  events integer NOT NULL,
  UNIQUE NULLS NOT DISTINCT (workspace_id, type, run_id)
);
COMMENT ON TABLE delivery_windows IS 'how many events of a type and run came since a moment: above a bound they are told as one';
CREATE INDEX delivery_windows_began ON delivery_windows (began_at);
"""

TENANT_TABLES = ("integrations", "integration_secrets", "deliveries", "delivery_attempts", "delivery_windows")

CURRENT = "nullif(current_setting('runlane.workspace', true), '')::uuid"


def _secure(table: str) -> str:
    own = f"workspace_id = {CURRENT}"
    return f"""
    ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
    ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant_read ON {table} FOR SELECT TO runlane_api USING ({own});
    CREATE POLICY tenant_write ON {table} FOR ALL TO runlane_api USING ({own}) WITH CHECK ({own});
    """


def upgrade() -> None:
    """Creates the tables, and gives each role what it needs of them."""
    execute(SQL)
    tables = ", ".join(TENANT_TABLES)
    execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO runlane_system, runlane_api")
    # whoever connects in the name of a person sees that there are secrets, and what they are called
    execute("REVOKE SELECT ON integration_secrets FROM runlane_api")
    shown = "workspace_id, integration_id, name, key_id, created_at, expires_at"
    execute(f"GRANT SELECT ({shown}) ON integration_secrets TO runlane_api")
    for table in TENANT_TABLES:
        execute(_secure(table))
