"""Workspaces, people, keys, workers and internal networks.

Every tenant row carries `workspace_id`, and every reference between tenant rows is composite, so that a
row of one workspace cannot point at a row of another. Ids are drawn by the database (time-ordered).
"""

from migrations.sql import execute

revision = "0001_tenancy"
down_revision = None

SQL = """
CREATE TABLE workspaces (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  allow_shared boolean NOT NULL DEFAULT false,
  allowed_networks cidr[] NOT NULL DEFAULT '{}',
  max_open_runs integer NOT NULL DEFAULT 100 CHECK (max_open_runs > 0),
  shared_slot_share real NOT NULL DEFAULT 0.5 CHECK (shared_slot_share > 0 AND shared_slot_share <= 1),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at timestamptz
);
COMMENT ON COLUMN workspaces.allow_shared IS 'whether shared scan workers may take jobs of this workspace';
COMMENT ON COLUMN workspaces.allowed_networks IS 'non-global networks whose addresses may be targets';

CREATE TABLE permission_groups (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  scopes text[] NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, name)
);

CREATE TABLE members (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  subject text NOT NULL CHECK (length(subject) BETWEEN 1 AND 320),
  display_name text,
  permission_group_id uuid,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  removed_at timestamptz,
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, subject),
  FOREIGN KEY (workspace_id, permission_group_id) REFERENCES permission_groups (workspace_id, id)
    ON DELETE SET NULL (permission_group_id)
);

CREATE TABLE internal_networks (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  cidrs cidr[] NOT NULL DEFAULT '{}' CHECK (cardinality(cidrs) <= 32),
  version integer NOT NULL DEFAULT 1,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, name)
);
COMMENT ON COLUMN internal_networks.cidrs IS 'all that workers of it contact; those of two networks may overlap';

CREATE TABLE api_keys (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  network_id uuid,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  prefix text NOT NULL UNIQUE CHECK (length(prefix) BETWEEN 8 AND 24),
  digest bytea NOT NULL CHECK (length(digest) = 32),
  scopes text[] NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz,
  UNIQUE (workspace_id, id),
  CHECK (network_id IS NULL OR (workspace_id IS NOT NULL AND scopes = '{worker:join}')),
  FOREIGN KEY (workspace_id, network_id) REFERENCES internal_networks (workspace_id, id)
);
COMMENT ON COLUMN api_keys.network_id IS 'workers that it enrols are bound to this network';
COMMENT ON COLUMN api_keys.workspace_id IS 'NULL for platform keys';
COMMENT ON COLUMN api_keys.digest IS 'HMAC-SHA256 of the key with the pepper of the installation';

CREATE TABLE workers (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  scope text NOT NULL CHECK (scope IN ('workspace', 'shared')),
  workspace_id uuid REFERENCES workspaces ON DELETE CASCADE,
  network_id uuid,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  token_digest bytea NOT NULL CHECK (length(token_digest) = 32),
  token_issued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  next_digest bytea CHECK (length(next_digest) = 32),
  previous_digest bytea CHECK (length(previous_digest) = 32),
  previous_until timestamptz,
  rotation_asked_at timestamptz,
  drained_at timestamptz,
  incarnation uuid,
  status text NOT NULL DEFAULT 'offline' CHECK (status IN ('offline', 'online', 'draining', 'revoked')),
  toolsets text[] NOT NULL DEFAULT '{}',
  slots jsonb NOT NULL DEFAULT '{}',
  tools jsonb NOT NULL DEFAULT '{}',
  container_mode boolean NOT NULL GENERATED ALWAYS AS ('container' = ANY (toolsets)) STORED,
  version text,
  protocol integer,
  beat_at timestamptz,
  stream_seen_at timestamptz,
  stream_replica text,
  joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  left_at timestamptz,
  not_polling text[] NOT NULL DEFAULT '{}',
  not_polling_since timestamptz,
  deleted_at timestamptz,
  CHECK ((not_polling = '{}') = (not_polling_since IS NULL)),
  CHECK ((scope = 'workspace') = (workspace_id IS NOT NULL)),
  CHECK (network_id IS NULL OR scope = 'workspace'),
  CHECK ((previous_digest IS NULL) = (previous_until IS NULL)),
  UNIQUE (workspace_id, id),
  FOREIGN KEY (workspace_id, network_id) REFERENCES internal_networks (workspace_id, id)
);
COMMENT ON COLUMN workers.next_digest IS 'token that was issued; its first use replaces the old one';
COMMENT ON COLUMN workers.previous_digest IS 'token that was replaced; good for what goes on until then';
COMMENT ON COLUMN workers.drained_at IS 'a person has it take nothing new since then, whatever life it is in';
COMMENT ON COLUMN workers.incarnation IS 'one life of the process: changes with every join';
COMMENT ON COLUMN workers.slots IS 'jobs at once, by tool set';
COMMENT ON COLUMN workers.tools IS 'versions of the tools that are foreign programs, as the host found them';
COMMENT ON COLUMN workers.stream_seen_at IS 'last sign on the control stream; NULL while it is broken';
COMMENT ON COLUMN workers.not_polling IS 'tool sets for which it takes no work, though it could and some waits';
COMMENT ON COLUMN workers.deleted_at IS 'soft delete: attempts keep referring to the row';
CREATE INDEX workers_live ON workers (workspace_id) WHERE status IN ('online', 'draining');

CREATE TABLE api_replicas (
  replica text PRIMARY KEY,
  steady_since timestamptz NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE api_replicas IS 'who confirms control streams: while nobody does, the silence of a worker says nothing';

CREATE TABLE gateway_replicas (
  replica text PRIMARY KEY,
  steady_since timestamptz NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE gateway_replicas IS 'who notes polls: while nobody does, a missing poll says nothing about a worker';

CREATE TABLE worker_polls (
  worker_id uuid NOT NULL REFERENCES workers ON DELETE CASCADE,
  toolset text NOT NULL,
  polled_at timestamptz NOT NULL,
  PRIMARY KEY (worker_id, toolset)
);
COMMENT ON TABLE worker_polls IS 'when a worker last asked for work of a tool set, a few seconds old';

CREATE TABLE secrets (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  key_id text NOT NULL,
  nonce bytea NOT NULL,
  ciphertext bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  rotated_at timestamptz,
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, name)
);

CREATE TABLE idempotency_keys (
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  route text NOT NULL,
  key text NOT NULL CHECK (length(key) BETWEEN 1 AND 200),
  body_sha256 bytea NOT NULL CHECK (length(body_sha256) = 32),
  status integer NOT NULL,
  response jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (workspace_id, route, key)
);
"""


def upgrade() -> None:
    """Creates the tenancy tables."""
    execute(SQL)
