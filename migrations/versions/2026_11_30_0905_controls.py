"""Pauses, limits, exclusions, blackout windows, operations on many jobs, and commands for Temporal."""

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
  lifted_by text,
  CHECK ((scope = 'platform') = (workspace_id IS NULL)),
  CHECK ((scope = 'run') = (run_id IS NOT NULL)),
  CHECK ((scope = 'toolset') = (toolset IS NOT NULL)),
  FOREIGN KEY (workspace_id, run_id) REFERENCES job_histories (workspace_id, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX pauses_active ON pauses (workspace_id, run_id, toolset) NULLS NOT DISTINCT
  WHERE lifted_at IS NULL;

CREATE TABLE limits (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  toolset text,
  max_in_progress integer CHECK (max_in_progress > 0),
  per_minute integer CHECK (per_minute > 0),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE NULLS NOT DISTINCT (workspace_id, toolset),
  CHECK (workspace_id IS NOT NULL OR toolset IS NOT NULL),
  CHECK (max_in_progress IS NOT NULL OR per_minute IS NOT NULL)
);
COMMENT ON TABLE limits IS 'of a workspace, of a tool set in it, or (no workspace) of a tool set everywhere';

CREATE TABLE limit_claims (
  limit_id uuid NOT NULL REFERENCES limits ON DELETE CASCADE,
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  job_id uuid NOT NULL,
  attempt integer NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (limit_id, job_id, attempt)
);
COMMENT ON TABLE limit_claims IS 'claims that count against a limit; written and pruned under the lock of its row';

CREATE TABLE limit_waiters (
  limit_id uuid NOT NULL REFERENCES limits ON DELETE CASCADE,
  workflow_id text NOT NULL,
  priority smallint NOT NULL,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  nudged_at timestamptz,
  PRIMARY KEY (limit_id, workflow_id)
);
COMMENT ON TABLE limit_waiters IS 'workflows that found no room; who asks next lets them go first';

CREATE TABLE rates (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  network_id uuid,
  target_id uuid,
  per_second integer NOT NULL CHECK (per_second BETWEEN 1 AND 1000000),
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE NULLS NOT DISTINCT (workspace_id, network_id, target_id),
  CHECK (num_nonnulls(network_id, target_id) <= (workspace_id IS NOT NULL)::integer),
  FOREIGN KEY (workspace_id, network_id) REFERENCES internal_networks (workspace_id, id),
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE rates IS 'what is sent a second: to a target, to a network, by a workspace, or (none) to each target';

CREATE TABLE rate_shares (
  job_id uuid NOT NULL,
  attempt integer NOT NULL,
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  target_id uuid,
  network_id uuid,
  per_second integer NOT NULL CHECK (per_second > 0),
  PRIMARY KEY (job_id, attempt)
);
COMMENT ON TABLE rate_shares IS 'what a claim may send a second; counts while its attempt is in progress';
CREATE INDEX rate_shares_workspace ON rate_shares (workspace_id);

CREATE TABLE worker_losses (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  worker_id uuid NOT NULL REFERENCES workers ON DELETE CASCADE,
  live integer NOT NULL,
  lost_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN worker_losses.live IS 'workers of its class alive at that moment, this one included';
CREATE INDEX worker_losses_time ON worker_losses (lost_at);

CREATE TABLE outages (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  server text NOT NULL CHECK (server IN ('postgresql', 'temporal')),
  began_at timestamptz NOT NULL,
  ended_at timestamptz,
  CHECK (began_at <= ended_at)
);
COMMENT ON TABLE outages IS 'when a server was away: what was lost around then is nobody''s fault';
CREATE INDEX outages_open ON outages (server) WHERE ended_at IS NULL;

CREATE TABLE exclusions (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  target_id uuid,
  kind text NOT NULL CHECK (kind IN ('domain', 'host', 'network', 'port')),
  value text NOT NULL CHECK (length(value) BETWEEN 1 AND 253),
  reason text,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE NULLS NOT DISTINCT (workspace_id, target_id, kind, value),
  CHECK (workspace_id IS NOT NULL OR target_id IS NULL),
  CHECK (kind <> 'network' OR pg_input_is_valid(value, 'cidr')),
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE exclusions IS 'what is never scanned: everywhere (no workspace), in a workspace, or for one target';

CREATE FUNCTION runlane_effective(place inet) RETURNS inet LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN family(place) = 4 OR masklen(place) < 128 THEN place
  WHEN place << '::ffff:0:0/96' OR place << '64:ff9b::/96' THEN '0.0.0.0'::inet + (
    get_byte(inet_send(place), 16)::bigint * 16777216 + get_byte(inet_send(place), 17) * 65536
    + get_byte(inet_send(place), 18) * 256 + get_byte(inet_send(place), 19))
  WHEN place << '2002::/16' THEN '0.0.0.0'::inet + (
    get_byte(inet_send(place), 6)::bigint * 16777216 + get_byte(inet_send(place), 7) * 65536
    + get_byte(inet_send(place), 8) * 256 + get_byte(inet_send(place), 9))
  ELSE place END;
COMMENT ON FUNCTION runlane_effective IS 'the IPv4 address that an IPv4-mapped, NAT64 or 6to4 address stands for';

CREATE FUNCTION runlane_is_inside(place text, network text) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN pg_input_is_valid(place, 'inet')
  THEN place::inet <<= network::inet OR runlane_effective(place::inet) <<= network::inet
  ELSE false END;
COMMENT ON FUNCTION runlane_is_inside IS 'whether a text is an address or network, and that all of it lies in a network';

CREATE TABLE blackout_windows (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  target_id uuid,
  group_id uuid,
  tag text CHECK (length(tag) BETWEEN 1 AND 64),
  policy text NOT NULL DEFAULT 'finish' CHECK (policy IN ('finish', 'cancel')),
  starts_at timestamptz,
  ends_at timestamptz,
  weekdays smallint[],
  begins time,
  ends time,
  time_zone text,
  reason text,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CHECK (num_nonnulls(target_id, group_id, tag) <= 1),
  CHECK (starts_at < ends_at),
  CHECK (num_nonnulls(starts_at, ends_at) IN (0, 2) AND num_nonnulls(weekdays, begins, ends, time_zone) IN (0, 4)),
  CHECK ((starts_at IS NULL) <> (weekdays IS NULL)),
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, group_id) REFERENCES target_groups (workspace_id, id)
);
COMMENT ON COLUMN blackout_windows.policy IS 'what runs when it opens is finished, or cancelled: given back for later';

CREATE TABLE operations (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  action text NOT NULL CHECK (action IN ('jobs.cancel', 'run.cancel', 'step.cancel')),
  filter jsonb NOT NULL,
  reason text,
  created_by text,
  actor jsonb,
  as_of timestamptz NOT NULL DEFAULT clock_timestamp(),
  matched integer NOT NULL DEFAULT 0,
  changed integer NOT NULL DEFAULT 0,
  is_aborted boolean NOT NULL DEFAULT false,
  moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at timestamptz,
  UNIQUE (workspace_id, id)
);
COMMENT ON TABLE operations IS 'one act of a person on many jobs, done in chunks; each counts in its own transaction';
COMMENT ON COLUMN operations.as_of IS 'jobs written later are not touched';
CREATE INDEX operations_open ON operations (moved_at) WHERE finished_at IS NULL;

CREATE TABLE commands (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  kind text NOT NULL CHECK (kind IN ('start_run', 'nudge', 'schedule', 'fire', 'trigger', 'deliver')),
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

CREATE TABLE gathered_targets (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace_id uuid NOT NULL,
  definition_id uuid NOT NULL,
  hops smallint NOT NULL CHECK (hops BETWEEN 1 AND 4),
  event text NOT NULL,
  rule smallint NOT NULL,
  run_id uuid,
  target_id uuid NOT NULL,
  project_id uuid,
  gathered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  FOREIGN KEY (workspace_id, definition_id) REFERENCES workflow_definitions (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, project_id) REFERENCES projects (workspace_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE gathered_targets IS 'an event about a target that starts a run of a definition soon; taken with that start';
COMMENT ON COLUMN gathered_targets.rule IS 'which entry of the definition''s `on` it fits';
COMMENT ON COLUMN gathered_targets.run_id IS 'the run that brought the event about; NULL: a person did';
COMMENT ON COLUMN gathered_targets.project_id IS 'the project whose run it will be; NULL: of none';
CREATE INDEX gathered_targets_of ON gathered_targets (definition_id, hops);
CREATE INDEX gathered_targets_project ON gathered_targets (definition_id, hops, project_id)
  WHERE project_id IS NOT NULL;
"""


def upgrade() -> None:
    """Creates the operator's controls and the command queue."""
    execute(SQL)
