#!/bin/sh
# Brings Temporal's two databases to the schema of its version. May be run again at any time.
set -eu

SQL_PASSWORD=$(cat "${RUNLANE_SECRETS_DIR:-/run/secrets}/temporal_password")
export SQL_PASSWORD

for pair in temporal:temporal temporal_visibility:visibility; do
    database=${pair%%:*}
    versions=/etc/temporal/schema/postgresql/v12/${pair##*:}/versioned
    tool="temporal-sql-tool --plugin postgres12 --ep ${POSTGRES_SEEDS:-postgres} -p 5432 -u temporal --db $database"
    # shellcheck disable=SC2086 # words of ours, without spaces inside
    $tool setup-schema -v 0.0
    # shellcheck disable=SC2086
    $tool update-schema -d "$versions"
done
