"""Notifications: rules of who is told what, mutes, and what was told.

A recipient is the name of an API key: who rotates a key keeps what was told. `seq` is a place in the order of
changes: the lane alone draws it, under the lock of its turn, so that a reader who has seen a number has seen all
before it.
"""

from migrations.sql import execute

revision = "0910_notifications"
down_revision = "0008_row_security"

TENANT_TABLES = ("notification_rules", "notification_mutes", "notifications")

CURRENT = "nullif(current_setting('runlane.workspace', true), '')::uuid"

LEVELS = "('info', 'low', 'medium', 'high', 'critical')"

SQL = f"""
CREATE TABLE notification_rules (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  event_types text[] NOT NULL DEFAULT '{{}}' CHECK (cardinality(event_types) <= 50),
  least_severity text NOT NULL CHECK (least_severity IN {LEVELS}),
  target_id uuid,
  group_id uuid,
  recipients text[] NOT NULL DEFAULT '{{}}' CHECK (cardinality(recipients) <= 100),
  is_on boolean NOT NULL DEFAULT true,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, name),
  CHECK (num_nonnulls(target_id, group_id) <= 1),
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, group_id) REFERENCES target_groups (workspace_id, id)
);
COMMENT ON COLUMN notification_rules.event_types IS 'types, or beginnings of types; none: all that may notify';
COMMENT ON COLUMN notification_rules.recipients IS 'names of API keys; none: all that may read notifications';

CREATE TABLE notification_mutes (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  rule text CHECK (length(rule) BETWEEN 1 AND 100),
  event_type text CHECK (length(event_type) BETWEEN 1 AND 100),
  target_id uuid,
  until timestamptz NOT NULL,
  reason text,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CHECK (num_nonnulls(rule, event_type, target_id) = 1),
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON COLUMN notification_mutes.rule IS 'name of a rule: the default one has no row';
CREATE INDEX notification_mutes_list ON notification_mutes (workspace_id, until);

CREATE SEQUENCE notifications_seq;
CREATE TABLE notifications (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  recipient text NOT NULL CHECK (length(recipient) BETWEEN 1 AND 100),
  seq bigint NOT NULL DEFAULT nextval('notifications_seq'),
  type text NOT NULL,
  severity text NOT NULL CHECK (severity IN {LEVELS}),
  subject text NOT NULL,
  run_id uuid,
  target_id uuid,
  data jsonb NOT NULL,
  digest_key text NOT NULL,
  is_digest boolean NOT NULL,
  events integer NOT NULL CHECK (events > 0),
  event_ids uuid[] NOT NULL,
  occurred_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  read_at timestamptz,
  CHECK (is_digest OR events = 1)
);
ALTER SEQUENCE notifications_seq OWNED BY notifications.seq;
COMMENT ON COLUMN notifications.data IS 'of the first event';
COMMENT ON COLUMN notifications.event_ids IS 'the first events of a digest';
COMMENT ON COLUMN notifications.occurred_at IS 'of the newest event';
CREATE UNIQUE INDEX notifications_changes ON notifications (seq);
CREATE INDEX notifications_list ON notifications (workspace_id, recipient, id);
CREATE INDEX notifications_unread ON notifications (workspace_id, recipient, id) WHERE read_at IS NULL;
CREATE INDEX notifications_alike ON notifications (workspace_id, recipient, digest_key, created_at);
"""


def _secure(table: str) -> str:
    own = f"workspace_id = {CURRENT}"
    return f"""
    ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
    ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant_read ON {table} FOR SELECT TO runlane_api USING ({own});
    CREATE POLICY tenant_write ON {table} FOR ALL TO runlane_api USING ({own}) WITH CHECK ({own});
    """


def upgrade() -> None:
    """Creates the tables and says who may do what with them."""
    execute(SQL)
    tables = ", ".join(TENANT_TABLES)
    execute(f"""
    GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO runlane_system;
    GRANT SELECT, INSERT, UPDATE, DELETE ON notification_rules, notification_mutes TO runlane_api;
    GRANT SELECT, UPDATE (read_at) ON notifications TO runlane_api;
    GRANT USAGE ON SEQUENCE notifications_seq TO runlane_system;
    """)
    for table in TENANT_TABLES:
        execute(_secure(table))
