#!/bin/sh
# Makes Runlane's database and roles, and Temporal's, in a fresh PostgreSQL. May be run again at any time.
# The image of PostgreSQL runs it once, on an empty volume, as the superuser.
set -eu

secrets=${RUNLANE_SECRETS_DIR:-/run/secrets}
init_sql=${RUNLANE_POSTGRES_INIT_SQL:-/opt/runlane/postgres-init.sql}

RUNLANE_POSTGRES_OWNER_PASSWORD=$(cat "$secrets/postgres_owner_password")
RUNLANE_POSTGRES_API_PASSWORD=$(cat "$secrets/postgres_api_password")
RUNLANE_POSTGRES_SYSTEM_PASSWORD=$(cat "$secrets/postgres_system_password")
TEMPORAL_PASSWORD=$(cat "$secrets/temporal_password")
export RUNLANE_POSTGRES_OWNER_PASSWORD RUNLANE_POSTGRES_API_PASSWORD RUNLANE_POSTGRES_SYSTEM_PASSWORD
export TEMPORAL_PASSWORD

psql --no-psqlrc --quiet --username "${POSTGRES_USER:-postgres}" --dbname postgres --file "$init_sql"
psql --no-psqlrc --quiet --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
\set ON_ERROR_STOP on
\getenv temporal_password TEMPORAL_PASSWORD
SELECT 'CREATE ROLE temporal LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'temporal') \gexec
ALTER ROLE temporal NOSUPERUSER LOGIN PASSWORD :'temporal_password';
SELECT format('CREATE DATABASE %I OWNER temporal', name)
FROM unnest(ARRAY['temporal', 'temporal_visibility']) AS name
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = name) \gexec
REVOKE ALL ON DATABASE temporal FROM PUBLIC;
REVOKE ALL ON DATABASE temporal_visibility FROM PUBLIC;
SQL
