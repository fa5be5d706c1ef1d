"""Dead letters: events that a lane has given up, and entries of the stream that nobody could read."""

from migrations.sql import execute

revision = "0913_dead_letters"
down_revision = "0912_statistics"

SQL = """
CREATE TABLE dead_letters (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  lane text NOT NULL,
  event_id uuid,
  bus_seq bigint,
  type text,
  subject text,
  entry_id text,
  fields jsonb NOT NULL,
  attempts integer NOT NULL CHECK (attempts >= 0),
  error text NOT NULL CHECK (length(error) <= 500),
  status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'asked', 'redriven', 'purging')),
  first_failed_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  asked_at timestamptz,
  asked_by text,
  redrives integer NOT NULL DEFAULT 0,
  redriven_at timestamptz,
  redrive_error text CHECK (length(redrive_error) <= 500),
  CHECK (workspace_id IS NULL
         OR (event_id IS NOT NULL AND bus_seq IS NOT NULL AND type IS NOT NULL AND subject IS NOT NULL)),
  CHECK (workspace_id IS NOT NULL OR entry_id IS NOT NULL)
);
COMMENT ON TABLE dead_letters IS 'written in the transaction in which the lane goes on; the stream has a copy';
COMMENT ON COLUMN dead_letters.workspace_id IS 'null: an entry that belongs to no workspace, or to no known event';
COMMENT ON COLUMN dead_letters.fields IS 'the whole envelope, as the fields of its entry on the stream';
COMMENT ON COLUMN dead_letters.created_at IS 'when the last attempt failed, and the event was given up';
CREATE UNIQUE INDEX dead_letters_once ON dead_letters (lane, event_id) WHERE workspace_id IS NOT NULL;
CREATE UNIQUE INDEX dead_letters_entry ON dead_letters (entry_id) WHERE workspace_id IS NULL;
CREATE INDEX dead_letters_list ON dead_letters (workspace_id, created_at, id);
CREATE INDEX dead_letters_asked ON dead_letters (lane, status, bus_seq);

GRANT SELECT, INSERT, UPDATE, DELETE ON dead_letters TO runlane_system;
GRANT SELECT, UPDATE ON dead_letters TO runlane_api;
ALTER TABLE dead_letters ENABLE ROW LEVEL SECURITY;
ALTER TABLE dead_letters FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON dead_letters FOR ALL TO runlane_api
  USING (workspace_id = nullif(current_setting('runlane.workspace', true), '')::uuid)
  WITH CHECK (workspace_id = nullif(current_setting('runlane.workspace', true), '')::uuid);
"""


def upgrade() -> None:
    """Creates the table of dead letters."""
    execute(SQL)
