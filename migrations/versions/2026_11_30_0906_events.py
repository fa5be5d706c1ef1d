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
CREATE INDEX outbox_of_workspace ON outbox (workspace_id, bus_seq) WHERE bus_seq IS NOT NULL;
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
  pruned_seq bigint NOT NULL DEFAULT 0,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN bus_state.published_seq IS 'every event up to here is on the stream: one number, no mark on each row';
COMMENT ON COLUMN bus_state.epoch IS 'grows when the stream was found empty and started anew at base_seq';
COMMENT ON COLUMN bus_state.pruned_seq IS 'rows up to here may be gone from the outbox';
INSERT INTO bus_state DEFAULT VALUES;

CREATE TABLE lane_checkpoints (
  lane text PRIMARY KEY,
  last_seq bigint NOT NULL DEFAULT 0,
  read_seq bigint NOT NULL DEFAULT 0,
  start_seq bigint NOT NULL DEFAULT 0,
  last_entry_id text,
  lost bigint NOT NULL DEFAULT 0,
  live_at timestamptz,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN lane_checkpoints.last_seq IS 'everything up to here was handled';
COMMENT ON COLUMN lane_checkpoints.read_seq IS 'everything up to here was read; what is missing behind it is a gap';
COMMENT ON COLUMN lane_checkpoints.start_seq IS 'everything up to here came before the lane was there';
COMMENT ON COLUMN lane_checkpoints.live_at IS 'last sign of the lane''s loop: a lane dead for long leaves the brake';

CREATE FUNCTION runlane_drop_outbox_partition(partition text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public SET timezone = 'UTC'
SET lock_timeout = '1s' AS $$
DECLARE
  handled bigint;
  newest bigint;
  is_waiting boolean;
BEGIN
  IF partition !~ '^outbox_[0-9]{8}$' THEN
    RAISE EXCEPTION 'not a partition of one day: %', partition USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF to_date(right(partition, 8), 'YYYYMMDD') + 1 > clock_timestamp() - interval '7 days' THEN
    RETURN false;
  END IF;
  SELECT least(published_seq, (SELECT min(last_seq) FROM lane_checkpoints
                               WHERE live_at > clock_timestamp() - interval '10 minutes'))
    INTO handled FROM bus_state;
  EXECUTE format('SELECT max(bus_seq), EXISTS (SELECT FROM public.%1$I WHERE bus_seq IS NULL) FROM public.%1$I',
                 partition) INTO newest, is_waiting;
  IF is_waiting OR newest > handled THEN
    RETURN false;
  END IF;
  -- the parent first, as every reader and writer does: in the other order two would wait for each other
  LOCK TABLE ONLY public.outbox IN ACCESS EXCLUSIVE MODE;
  EXECUTE format('DROP TABLE public.%I', partition);
  UPDATE bus_state SET pruned_seq = greatest(pruned_seq, coalesce(newest, 0));
  RETURN true;
END $$;
COMMENT ON FUNCTION runlane_drop_outbox_partition IS
  'drops a day of events that is older than 7 days, published and handled by every live lane; else says false';

CREATE TABLE lane_inbox (
  lane text NOT NULL,
  event_id uuid NOT NULL,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (lane, event_id)
);
CREATE INDEX lane_inbox_received ON lane_inbox (received_at);

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
CREATE INDEX audit_events_bus ON audit_events (workspace_id, bus_seq);
CREATE INDEX audit_events_all ON audit_events (bus_seq);

CREATE TABLE audit_archives (
  first_id bigint PRIMARY KEY,
  last_id bigint NOT NULL CHECK (last_id >= first_id),
  events integer NOT NULL CHECK (events > 0),
  object_key text NOT NULL UNIQUE,
  sha256 bytea NOT NULL CHECK (length(sha256) = 32),
  archived_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE audit_archives IS 'what has left audit_events, and in which object it is';

CREATE FUNCTION runlane_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- only a function of the owner acts as somebody else than who logged in
  IF TG_OP = 'DELETE' AND current_user <> session_user THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'audit_events is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_events
  FOR EACH STATEMENT EXECUTE FUNCTION runlane_refuse_change();

CREATE FUNCTION runlane_drop_archived_audit(first bigint, last bigint, count integer, key text, digest bytea)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE
  gone integer;
BEGIN
  IF EXISTS (SELECT FROM audit_events WHERE audit_id BETWEEN first AND last
             AND recorded_at > clock_timestamp() - interval '90 days') THEN
    RAISE EXCEPTION 'audit events stay for 90 days' USING ERRCODE = 'insufficient_privilege';
  END IF;
  DELETE FROM audit_events WHERE audit_id BETWEEN first AND last;
  GET DIAGNOSTICS gone = ROW_COUNT;
  IF gone <> count THEN
    RAISE EXCEPTION 'the archive has % events, the table %', count, gone USING ERRCODE = 'data_exception';
  END IF;
  INSERT INTO audit_archives (first_id, last_id, events, object_key, sha256)
  VALUES (first, last, count, key, digest);
END $$;
COMMENT ON FUNCTION runlane_drop_archived_audit IS 'the only way to delete audit events: archived ones, after 90 days';
"""


def upgrade() -> None:
    """Creates the outbox and what its readers keep."""
    execute(SQL)
