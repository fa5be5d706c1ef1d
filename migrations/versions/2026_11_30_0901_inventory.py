"""Targets and the inventory: what is known now, and what one run saw.

Current state (assets, ports, services, urls, technologies, vulnerabilities) carries first and last sight and
never cascades from a run: a run's id there is provenance and becomes NULL when the run goes. Observations
(port_observations, http_responses, url_observations, screenshots) belong to one run and go with it.
Source: Job registry, What is recorded.
"""

from migrations.sql import execute

revision = "0002_inventory"
down_revision = "0001_tenancy"

SQL = """
CREATE TABLE targets (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  kind text NOT NULL CHECK (kind IN ('domain', 'ip', 'cidr')),
  value text NOT NULL CHECK (length(value) BETWEEN 1 AND 253),
  network_id uuid,
  tags text[] NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at timestamptz,
  UNIQUE (workspace_id, id),
  FOREIGN KEY (workspace_id, network_id) REFERENCES internal_networks (workspace_id, id)
);
CREATE UNIQUE INDEX targets_value ON targets (workspace_id, value, network_id) NULLS NOT DISTINCT
  WHERE deleted_at IS NULL;
CREATE INDEX targets_network ON targets (network_id) WHERE network_id IS NOT NULL;

CREATE TABLE target_groups (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  tags text[] NOT NULL DEFAULT '{}',
  version integer NOT NULL DEFAULT 1,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, name)
);
COMMENT ON TABLE target_groups IS 'a named set of targets: its members, and those that its rule fits';
COMMENT ON COLUMN target_groups.tags IS 'the rule: targets with all of these tags are in it; none: members only';

CREATE TABLE target_group_members (
  workspace_id uuid NOT NULL,
  group_id uuid NOT NULL,
  target_id uuid NOT NULL,
  PRIMARY KEY (group_id, target_id),
  FOREIGN KEY (workspace_id, group_id) REFERENCES target_groups (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE
);

CREATE TABLE assets (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  target_id uuid NOT NULL,
  run_id uuid,
  value text NOT NULL CHECK (length(value) BETWEEN 1 AND 253),
  is_primary boolean NOT NULL DEFAULT false,
  enabled boolean NOT NULL DEFAULT true,
  records jsonb NOT NULL DEFAULT '{}',
  addresses inet[] NOT NULL DEFAULT '{}',
  first_seen timestamptz NOT NULL,
  last_seen timestamptz NOT NULL,
  missed integer NOT NULL DEFAULT 0,
  gone_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, target_id, value),
  FOREIGN KEY (workspace_id, target_id) REFERENCES targets (workspace_id, id) ON DELETE CASCADE,
  CHECK (first_seen <= last_seen)
);
COMMENT ON COLUMN assets.run_id IS 'the run that saw it first';
COMMENT ON COLUMN assets.missed IS 'complete results in a row whose coverage holds it and that did not see it';

CREATE TABLE ports (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  asset_id uuid NOT NULL,
  run_id uuid,
  address inet NOT NULL,
  port integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
  protocol text NOT NULL CHECK (protocol IN ('tcp', 'udp')),
  first_seen timestamptz NOT NULL,
  last_seen timestamptz NOT NULL,
  missed integer NOT NULL DEFAULT 0,
  closed_at timestamptz,
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, asset_id, address, port, protocol),
  FOREIGN KEY (workspace_id, asset_id) REFERENCES assets (workspace_id, id) ON DELETE CASCADE,
  CHECK (first_seen <= last_seen)
);

CREATE TABLE asset_services (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  asset_id uuid NOT NULL,
  run_id uuid,
  port integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
  protocol text NOT NULL CHECK (protocol IN ('tcp', 'udp')),
  address inet,
  banner text,
  is_tls boolean,
  scheme text CHECK (scheme IN ('http', 'https')),
  url text,
  status integer,
  title text,
  server text,
  tls jsonb,
  web_seen_at timestamptz,
  first_seen timestamptz NOT NULL,
  last_seen timestamptz NOT NULL,
  missed integer NOT NULL DEFAULT 0,
  closed_at timestamptz,
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, asset_id, port, protocol),
  FOREIGN KEY (workspace_id, asset_id) REFERENCES assets (workspace_id, id) ON DELETE CASCADE,
  CHECK (first_seen <= last_seen)
);
COMMENT ON COLUMN asset_services.web_seen_at IS 'last time it answered HTTP; NULL when it never did';

CREATE TABLE urls (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  asset_id uuid NOT NULL,
  service_id uuid,
  run_id uuid,
  url text NOT NULL,
  url_sha256 bytea NOT NULL CHECK (length(url_sha256) = 32),
  status integer,
  content_type text,
  source text,
  first_seen timestamptz NOT NULL,
  last_seen timestamptz NOT NULL,
  missed integer NOT NULL DEFAULT 0,
  gone_at timestamptz,
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, asset_id, url_sha256),
  FOREIGN KEY (workspace_id, asset_id) REFERENCES assets (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, service_id) REFERENCES asset_services (workspace_id, id)
    ON DELETE SET NULL (service_id),
  CHECK (first_seen <= last_seen)
);

CREATE TABLE technologies (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  service_id uuid NOT NULL,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  version text,
  first_seen timestamptz NOT NULL,
  last_seen timestamptz NOT NULL,
  UNIQUE (workspace_id, service_id, name),
  FOREIGN KEY (workspace_id, service_id) REFERENCES asset_services (workspace_id, id) ON DELETE CASCADE,
  CHECK (first_seen <= last_seen)
);

CREATE TABLE vulnerabilities (
  id uuid PRIMARY KEY DEFAULT uuidv7(),
  workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  asset_id uuid NOT NULL,
  service_id uuid,
  run_id uuid,
  tool_id text,
  check_id text NOT NULL,
  name text NOT NULL,
  severity text NOT NULL CHECK (severity IN ('info', 'low', 'medium', 'high', 'critical')),
  url text,
  fingerprint bytea NOT NULL CHECK (length(fingerprint) = 32),
  description text,
  evidence text,
  remediation text,
  reference_urls text[] NOT NULL DEFAULT '{}',
  cwe text[] NOT NULL DEFAULT '{}',
  status text NOT NULL DEFAULT 'open'
    CHECK (status IN ('open', 'resolved', 'accepted', 'false_positive')),
  first_seen timestamptz NOT NULL,
  last_seen timestamptz NOT NULL,
  missed integer NOT NULL DEFAULT 0,
  resolved_at timestamptz,
  UNIQUE (workspace_id, id),
  UNIQUE (workspace_id, fingerprint),
  FOREIGN KEY (workspace_id, asset_id) REFERENCES assets (workspace_id, id) ON DELETE CASCADE,
  FOREIGN KEY (workspace_id, service_id) REFERENCES asset_services (workspace_id, id)
    ON DELETE SET NULL (service_id),
  CHECK (first_seen <= last_seen),
  CHECK ((status = 'resolved') = (resolved_at IS NOT NULL))
);
CREATE INDEX vulnerabilities_asset ON vulnerabilities (workspace_id, asset_id);
COMMENT ON COLUMN vulnerabilities.fingerprint IS 'SHA-256 over asset, check and where it was (port, URL)';
"""


def upgrade() -> None:
    """Creates targets and the current state of the inventory."""
    execute(SQL)
