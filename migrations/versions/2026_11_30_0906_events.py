"""The outbox, the bus's counter, lane bookkeeping and the audit trail.

The outbox is partitioned by day, so that old days are dropped instead of deleted. `bus_seq` comes from the
one row of `bus_state`, never from a sequence: a rolled-back transaction must leave no hole in it.
"""

from migrations.sql import execute

revision = "0007_events"
down_revision = "0006_controls"

SQL = """
CREATE TABLE outbox (
  id bigint GENERATED ALWAYS AS IDENTITY,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  workspace_id uuid NOT NULL,
  event_id uuid NOT NULL,
  type text NOT NULL,
  subject text NOT NULL,
  attributes jsonb NOT NULL DEFAULT '{}',
  data jsonb NOT NULL,
  occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  bus_seq bigint,
  PRIMARY KEY (created_at, id)
) PARTITION BY RANGE (created_at);
COMMENT ON COLUMN outbox.id IS 'drawn after the row lock of its cause: the order of causes on one subject';
COMMENT ON COLUMN outbox.attributes IS 'CloudEvents extension attributes: cause, traceparent, actorid ...';
COMMENT ON COLUMN outbox.bus_seq IS 'place on the bus, given by the leading relay; steps of exactly one';
CREATE INDEX outbox_unsequenced ON outbox (id) WHERE bus_seq IS NULL;
CREATE INDEX outbox_bus_seq ON outbox (bus_seq) WHERE bus_seq IS NOT NULL;
CREATE TABLE outbox_default PARTITION OF outbox DEFAULT;

CREATE FUNCTION runlane_ensure_outbox_partitions(days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE
  day date;
  made integer := 0;
BEGIN
  FOR day IN SELECT generate_series(current_date, current_date + days, interval '1 day')::date LOOP
    IF to_regclass(format('public.outbox_%s', to_char(day, 'YYYYMMDD'))) IS NULL THEN
      BEGIN
        EXECUTE format('CREATE TABLE public.outbox_%s PARTITION OF public.outbox FOR VALUES FROM (%L) TO (%L)',
                       to_char(day, 'YYYYMMDD'), day::timestamptz, (day + 1)::timestamptz);
        made := made + 1;
      EXCEPTION WHEN check_violation THEN
        -- the default partition has rows of that day already; the days after it must not suffer for that
        RAISE NOTICE 'events of % stay in the default partition', day;
      END;
    END IF;
  END LOOP;
  RETURN made;
END $$;
SET LOCAL TIME ZONE 'UTC';
SELECT runlane_ensure_outbox_partitions(7);

CREATE TABLE bus_state (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  last_seq bigint NOT NULL DEFAULT 0,
  published_seq bigint NOT NULL DEFAULT 0,
  epoch integer NOT NULL DEFAULT 0,
  base_seq bigint NOT NULL DEFAULT 1,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN bus_state.published_seq IS 'every event up to here is on the stream: one number, no mark on each row';
COMMENT ON COLUMN bus_state.epoch IS 'grows when the stream was found empty and started anew at base_seq';
INSERT INTO bus_state DEFAULT VALUES;

CREATE TABLE lane_checkpoints (
  lane text PRIMARY KEY,
  last_seq bigint NOT NULL DEFAULT 0,
  last_entry_id text,
  lost bigint NOT NULL DEFAULT 0,
  live_at timestamptz,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN lane_checkpoints.last_seq IS 'everything up to here was handled';
COMMENT ON COLUMN lane_checkpoints.live_at IS 'last sign of the lane''s loop: a lane dead for long leaves the brake';

CREATE TABLE lane_inbox (
  lane text NOT NULL,
  event_id uuid NOT NULL,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (lane, event_id)
);

CREATE TABLE audit_events (
  audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace_id uuid NOT NULL,
  event_id uuid NOT NULL UNIQUE,
  bus_seq bigint NOT NULL,
  type text NOT NULL,
  subject text NOT NULL,
  actor_id text,
  actor_type text,
  outcome text,
  severity text NOT NULL,
  data jsonb NOT NULL,
  occurred_at timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE audit_events IS 'append-only; no cascade from workspaces: the trail outlives them';
CREATE INDEX audit_events_list ON audit_events (workspace_id, audit_id DESC);

CREATE FUNCTION runlane_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'audit_events is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_events_append_only BEFORE UPDATE ON audit_events
  FOR EACH STATEMENT EXECUTE FUNCTION runlane_refuse_change();
"""


def upgrade() -> None:
    """Creates the outbox and what its readers keep."""
    execute(SQL)
