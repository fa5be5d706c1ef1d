"""Merge of names found under a target's domain: assets."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

import orjson

from runlane.db.inventory.announcements import asset_discovered
from runlane.db.inventory.changes import asset_disappeared, asset_reappeared
from runlane.db.inventory.coverage import MISSES_TO_CLOSE, speaks_of_absence, zone_coverage
from runlane.db.inventory.primary import ensure_primary_assets
from runlane.db.inventory.sightings import Ledger, MergeJob, Sighting, chunks, columns, fold
from runlane.db.inventory.subjects import Target, pin_targets
from runlane.db.pool import Connection
from runlane.events.payloads import AssetDiscovered
from runlane.tools.addresses import parse_address
from runlane.tools.hosts import is_under
from runlane.tools.subdomains import SubdomainRecord
from runlane.tools.targets import TargetKind

_UPSERT: Final = """
WITH merged AS (
  INSERT INTO assets AS a (workspace_id, target_id, run_id, value, is_primary, records, addresses,
                           first_seen, last_seen)
  SELECT r.workspace_id, r.target_id, r.run_id, r.value, r.is_primary, r.records::jsonb,
         r.addresses::inet[], r.first_seen, r.last_seen
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::boolean[], $6::text[], $7::text[],
              $8::timestamptz[], $9::timestamptz[])
    AS r (workspace_id, target_id, run_id, value, is_primary, records, addresses, first_seen, last_seen)
  ORDER BY r.workspace_id, r.target_id, r.value
  ON CONFLICT (workspace_id, target_id, value) DO UPDATE SET
    is_primary = a.is_primary OR excluded.is_primary,
    run_id = CASE WHEN excluded.first_seen < a.first_seen THEN excluded.run_id ELSE a.run_id END,
    first_seen = LEAST(a.first_seen, excluded.first_seen),
    last_seen = GREATEST(a.last_seen, excluded.last_seen),
    records = CASE WHEN excluded.last_seen >= a.last_seen THEN excluded.records ELSE a.records END,
    addresses = CASE WHEN excluded.last_seen >= a.last_seen THEN excluded.addresses ELSE a.addresses END,
    missed = CASE WHEN excluded.last_seen >= a.last_seen AND a.gone_at IS NULL
                       OR excluded.last_seen >= a.gone_at THEN 0 ELSE a.missed END,
    gone_at = CASE WHEN a.gone_at > excluded.last_seen THEN a.gone_at END
  RETURNING a.workspace_id, a.id, a.target_id, a.value, a.last_seen AS at, old.id IS NULL AS is_new,
            old.gone_at IS NOT NULL AND a.gone_at IS NULL AS is_back
)
SELECT * FROM merged WHERE is_new OR is_back
"""

_CLOSE: Final = """
WITH missing AS (
  SELECT a.id, count(*)::int AS misses, max(job.observed_at) AS observed_at
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[])
    AS job (workspace_id, target_id, zone, observed_at)
  JOIN assets a ON a.workspace_id = job.workspace_id AND a.target_id = job.target_id
  WHERE a.gone_at IS NULL AND NOT a.is_primary AND a.last_seen < job.observed_at
    AND (a.value = job.zone OR right(a.value, length(job.zone) + 1) = '.' || job.zone)
  GROUP BY a.id
), counted AS (
  UPDATE assets a
  SET missed = a.missed + m.misses,
      gone_at = CASE WHEN a.missed + m.misses >= $5 THEN m.observed_at END
  FROM missing m
  WHERE a.id = m.id
  RETURNING a.workspace_id, a.id, a.target_id, a.value, a.gone_at AS at
)
SELECT * FROM counted WHERE at IS NOT NULL
"""


_Key: TypeAlias = tuple[UUID, str]


async def merge_subdomains(conn: Connection, jobs: Sequence[MergeJob], ledger: Ledger) -> None:
    """Merges names into assets; the target's own name is its primary asset, listed or not.

    A name outside the target's domain is left out: a host that is not trusted must not widen what is scanned.
    """
    targets = await pin_targets(conn, jobs)
    for chunk in chunks(jobs, SubdomainRecord):
        seen: list[tuple[_Key, MergeJob, SubdomainRecord]] = []
        for job, record in chunk:
            target = targets.get(job.target_id) if job.target_id is not None else None
            if job.target_id is not None and target is not None and _is_inside(record, target):
                seen.append(((job.target_id, record.name), job, record))
            else:
                ledger.left_out(job)
        if seen:
            await _upsert(conn, fold(seen, _rank), targets, ledger)
            await ledger.tell()
    for workspace_id, run_id, target_ids in _by_run(jobs, targets):
        ledger.envelopes += await ensure_primary_assets(conn, workspace_id, target_ids, run_id=run_id)
    await _close(conn, jobs, ledger)


async def _upsert(
    conn: Connection,
    folded: dict[_Key, Sighting[SubdomainRecord]],
    targets: dict[UUID, Target],
    ledger: Ledger,
) -> None:
    values = [_row(key, each, targets[key[0]].value) for key, each in folded.items()]
    for row in await conn.fetch(_UPSERT, *columns(values)):
        sighting = folded[row["target_id"], row["value"]]
        if not row["is_new"]:
            ledger.envelopes.append(asset_reappeared(row, sighting.newest.run_id))
            continue
        job = sighting.oldest
        ledger.found(job)
        payload = AssetDiscovered(
            asset_id=row["id"], target_id=row["target_id"], value=row["value"], run_id=job.run_id
        )
        ledger.envelopes.append(asset_discovered(job.workspace_id, payload))


async def _close(conn: Connection, jobs: Sequence[MergeJob], ledger: Ledger) -> None:
    rows: list[tuple[UUID, UUID, str, datetime]] = []
    for job in jobs:
        zone = zone_coverage(job.coverage) if speaks_of_absence(job) else None
        if zone is not None and job.target_id is not None:
            rows.append((job.workspace_id, job.target_id, zone, job.observed_at))
    if rows:
        gone = await conn.fetch(_CLOSE, *columns(rows), MISSES_TO_CLOSE)
        ledger.envelopes += map(asset_disappeared, gone)


def _is_inside(record: SubdomainRecord, target: Target) -> bool:
    return target.kind == TargetKind.DOMAIN and is_under(record.name, target.value)


def _rank(record: SubdomainRecord) -> tuple[object, ...]:
    return (sorted(record.records.items()),)


def _row(key: _Key, sighting: Sighting[SubdomainRecord], primary: str) -> tuple[object, ...]:
    record, job = sighting.record, sighting.newest
    return (
        job.workspace_id,
        key[0],
        sighting.oldest.run_id,
        record.name,
        record.name == primary,
        orjson.dumps(record.records).decode(),
        _addresses(record),
        sighting.oldest.observed_at,
        job.observed_at,
    )


def _addresses(record: SubdomainRecord) -> str:
    """Array literal of the values that are addresses: a zone may answer anything for A."""
    parsed = (parse_address(value) for value in record.addresses)
    return "{" + ",".join(str(address) for address in parsed if address is not None) + "}"


def _by_run(jobs: Sequence[MergeJob], targets: dict[UUID, Target]) -> list[tuple[UUID, UUID, list[UUID]]]:
    grouped: dict[tuple[UUID, UUID], set[UUID]] = {}
    for job in jobs:
        if job.target_id in targets:
            grouped.setdefault((job.workspace_id, job.run_id), set()).add(job.target_id)
    return [(workspace_id, run_id, sorted(ids)) for (workspace_id, run_id), ids in sorted(grouped.items())]
