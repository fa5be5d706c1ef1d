#!/bin/sh
# Makes the namespace and the search attributes that runs are found by. May be run again at any time.
# The address is in TEMPORAL_ADDRESS.
set -eu

namespace=${TEMPORAL_NAMESPACE:-default}
retention=${RUNLANE_TEMPORAL_RETENTION:-30d}

if ! temporal operator namespace describe --namespace "$namespace" >/dev/null 2>&1; then
    temporal operator namespace create --namespace "$namespace" --retention "$retention"
fi

# Every part of the server learns of a new namespace in its own time.
tries=0
until present=$(temporal operator search-attribute list --namespace "$namespace"); do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || exit 1
    sleep 1
done
for attribute in WorkspaceId:Keyword ProjectId:Keyword RunKind:Keyword RunStatus:Keyword Tools:KeywordList; do
    name=${attribute%%:*}
    if ! printf '%s\n' "$present" | grep -qw "$name"; then
        temporal operator search-attribute create --namespace "$namespace" --name "$name" --type "${attribute##*:}"
    fi
done
