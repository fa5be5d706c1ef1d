-- Database and roles of Runlane. Roles belong to the cluster, so they are made here and not by a migration.
-- Run by psql as a superuser, from the embedded stack and from compose; may be run again at any time.
-- Passwords come from the environment, where no list of processes shows them.
\set ON_ERROR_STOP on
\getenv owner_password RUNLANE_POSTGRES_OWNER_PASSWORD
\getenv api_password RUNLANE_POSTGRES_API_PASSWORD
\getenv system_password RUNLANE_POSTGRES_SYSTEM_PASSWORD

SELECT format('CREATE ROLE %I LOGIN', name)
FROM unnest(ARRAY['runlane', 'runlane_api', 'runlane_system']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec

-- Owner: migrations only. API: under row-level security. System: sees every workspace.
ALTER ROLE runlane NOSUPERUSER NOBYPASSRLS LOGIN PASSWORD :'owner_password';
ALTER ROLE runlane_api NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE LOGIN PASSWORD :'api_password';
ALTER ROLE runlane_system NOSUPERUSER BYPASSRLS NOCREATEDB NOCREATEROLE LOGIN PASSWORD :'system_password';

SELECT 'CREATE DATABASE runlane OWNER runlane'
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'runlane') \gexec

ALTER DATABASE runlane OWNER TO runlane;
ALTER DATABASE runlane SET timezone TO 'UTC';
REVOKE ALL ON DATABASE runlane FROM PUBLIC;
GRANT CONNECT ON DATABASE runlane TO runlane_api, runlane_system;
-- `runlane doctor` names whoever keeps a transaction open.
GRANT pg_read_all_stats TO runlane_system;
