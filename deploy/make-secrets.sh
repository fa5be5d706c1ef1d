#!/bin/sh
# Draws the passwords of docker-compose.yml into a folder of files (default: deploy/secrets). Keeps those there.
# The folder is closed to others; the files are readable because each container reads them as its own user.
set -eu

folder=${1:-"$(dirname "$0")/secrets"}
mkdir -p "$folder"
chmod 700 "$folder"
umask 022

draw() {
    od -An -N 32 -tx1 /dev/urandom | tr -d ' \n'
}

keep() {
    [ -s "$folder/$1" ] || printf '%s' "$2" >"$folder/$1"
}

secret() {
    keep "$1" "$(draw)"
    cat "$folder/$1"
}

secret postgres_password >/dev/null
owner=$(secret postgres_owner_password)
api=$(secret postgres_api_password)
system=$(secret postgres_system_password)
secret temporal_password >/dev/null
redis=$(secret redis_password)
secret runlane_key_pepper >/dev/null
secret runlane_secret_keys >/dev/null
access_key=$(secret runlane_s3_access_key)
secret_key=$(secret runlane_s3_secret_key)

keep runlane_database_url "postgresql://runlane:$owner@postgres:5432/runlane"
keep runlane_database_api_url "postgresql://runlane_api:$api@postgres:5432/runlane"
keep runlane_database_system_url "postgresql://runlane_system:$system@postgres:5432/runlane"
keep runlane_redis_url "redis://:$redis@valkey:6379/0"
keep valkey.conf "requirepass $redis
"
keep s3.json "{\"identities\": [{\"name\": \"runlane\", \"credentials\": [{\"accessKey\": \"$access_key\", \
\"secretKey\": \"$secret_key\"}], \"actions\": [\"Admin\", \"Read\", \"List\", \"Tagging\", \"Write\"]}]}
"
# The first scan worker joins with a key that the running API makes: see the comment in docker-compose.yml.
[ -e "$folder/runlane_worker_enrolment_key" ] || : >"$folder/runlane_worker_enrolment_key"
printf 'secrets are in %s\n' "$folder"
