"""Merge of crawls: URLs, and which run saw them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

from runlane.db.inventory.announcements import url_discovered
from runlane.db.inventory.coverage import MISSES_TO_CLOSE, speaks_of_absence, url_coverage
from runlane.db.inventory.sightings import Ledger, MergeJob, Sighting, chunks, columns, fold
from runlane.db.inventory.subjects import Services, find_services, owned, pin_assets
from runlane.db.pool import Connection
from runlane.tools.url_discovery import UrlRecord

_UPSERT: Final = """
INSERT INTO urls AS u (workspace_id, asset_id, service_id, run_id, url, url_sha256, status, content_type,
                       source, first_seen, last_seen)
SELECT r.workspace_id, r.asset_id, r.service_id, r.run_id, r.url, r.url_sha256, r.status, r.content_type,
       r.source, r.first_seen, r.last_seen
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::bytea[], $7::int[], $8::text[],
            $9::text[], $10::timestamptz[], $11::timestamptz[])
  AS r (workspace_id, asset_id, service_id, run_id, url, url_sha256, status, content_type, source,
        first_seen, last_seen)
ORDER BY r.workspace_id, r.asset_id, r.url_sha256
ON CONFLICT (workspace_id, asset_id, url_sha256) DO UPDATE SET
  service_id = coalesce(excluded.service_id, u.service_id),
  run_id = CASE WHEN excluded.first_seen < u.first_seen THEN excluded.run_id ELSE u.run_id END,
  first_seen = LEAST(u.first_seen, excluded.first_seen),
  last_seen = GREATEST(u.last_seen, excluded.last_seen),
  status = CASE WHEN (excluded.last_seen, excluded.status IS NOT NULL) >= (u.last_seen, u.status IS NOT NULL)
                THEN excluded.status ELSE u.status END,
  content_type = CASE WHEN (excluded.last_seen, excluded.status IS NOT NULL)
                           >= (u.last_seen, u.status IS NOT NULL)
                      THEN excluded.content_type ELSE u.content_type END,
  source = CASE WHEN (excluded.last_seen, excluded.status IS NOT NULL) >= (u.last_seen, u.status IS NOT NULL)
                THEN excluded.source ELSE u.source END,
  missed = CASE WHEN excluded.last_seen >= u.last_seen AND u.gone_at IS NULL
                     OR excluded.last_seen >= u.gone_at THEN 0 ELSE u.missed END,
  gone_at = CASE WHEN u.gone_at > excluded.last_seen THEN u.gone_at END
RETURNING u.id, u.asset_id, u.url_sha256, old.id IS NULL AS is_new
"""

_OBSERVE: Final = """
INSERT INTO url_observations AS o (workspace_id, run_id, url_id, job_id, status, depth, source, observed_at)
SELECT r.workspace_id, r.run_id, r.url_id, r.job_id, r.status, r.depth, r.source, r.observed_at
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::int[], $6::int[], $7::text[],
            $8::timestamptz[])
  AS r (workspace_id, run_id, url_id, job_id, status, depth, source, observed_at)
ORDER BY r.run_id, r.url_id
ON CONFLICT (run_id, url_id) DO UPDATE SET
  job_id = excluded.job_id, status = excluded.status, depth = excluded.depth, source = excluded.source,
  observed_at = excluded.observed_at
WHERE (excluded.observed_at, excluded.status IS NOT NULL) >= (o.observed_at, o.status IS NOT NULL)
"""

_CLOSE: Final = """
WITH missing AS (
  SELECT u.id, count(*)::int AS misses, max(job.observed_at) AS observed_at
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[])
    AS job (workspace_id, asset_id, scope, observed_at)
  JOIN urls u ON u.workspace_id = job.workspace_id AND u.asset_id = job.asset_id
  WHERE u.gone_at IS NULL AND u.last_seen < job.observed_at AND starts_with(u.url, job.scope)
  GROUP BY u.id
)
UPDATE urls u
SET missed = u.missed + m.misses,
    gone_at = CASE WHEN u.missed + m.misses >= $5 THEN m.observed_at END
FROM missing m
WHERE u.id = m.id
"""

_Url: TypeAlias = tuple[UUID, bytes]
_Seen: TypeAlias = tuple[_Url, MergeJob, UrlRecord]


async def merge_urls(conn: Connection, jobs: Sequence[MergeJob], ledger: Ledger) -> None:
    """Merges URLs of the asset's own hosts; a link that leads elsewhere is left out."""
    assets = await pin_assets(conn, jobs)
    services = await find_services(conn, jobs)
    for chunk in chunks(jobs, UrlRecord):
        seen: list[_Seen] = [
            ((asset_id, record.key), job, record) for asset_id, job, record in owned(chunk, assets, ledger)
        ]
        if seen:
            ids = await _upsert(conn, fold(seen, _rank), services, ledger)
            await _observe(conn, seen, ids)
            await ledger.tell()
    await _close(conn, jobs)


async def _upsert(
    conn: Connection, folded: Mapping[_Url, Sighting[UrlRecord]], services: Services, ledger: Ledger
) -> dict[_Url, UUID]:
    ids: dict[_Url, UUID] = {}
    values = [_row(asset_id, each, services) for (asset_id, _), each in folded.items()]
    for row in await conn.fetch(_UPSERT, *columns(values)):
        key = (row["asset_id"], row["url_sha256"])
        ids[key] = row["id"]
        if row["is_new"]:
            each = folded[key]
            ledger.found(each.oldest)
            ledger.envelopes.append(url_discovered(each.oldest, row["id"], row["asset_id"], each.record))
    return ids


async def _observe(conn: Connection, seen: Iterable[_Seen], ids: Mapping[_Url, UUID]) -> None:
    keyed = (((job.run_id, ids[key]), job, record) for key, job, record in seen)
    rows: list[tuple[object, ...]] = []
    for (run_id, url_id), each in fold(keyed, _rank).items():
        job, record = each.newest, each.record
        seen_as = (record.status, record.depth, record.source)
        rows.append((job.workspace_id, run_id, url_id, job.job_id, *seen_as, job.observed_at))
    await conn.execute(_OBSERVE, *columns(rows))


async def _close(conn: Connection, jobs: Sequence[MergeJob]) -> None:
    rows: list[tuple[UUID, UUID, str, datetime]] = []
    for job in jobs:
        scope = url_coverage(job.coverage) if speaks_of_absence(job) else None
        if scope is not None and job.asset_id is not None:
            rows.append((job.workspace_id, job.asset_id, scope, job.observed_at))
    if rows:
        await conn.execute(_CLOSE, *columns(rows), MISSES_TO_CLOSE)


def _rank(record: UrlRecord) -> tuple[object, ...]:
    # an answer says more than a mere link; then what is nearest to the start page
    return (record.status is not None, -record.depth, record.source, record.status or 0)


def _row(asset_id: UUID, sighting: Sighting[UrlRecord], services: Services) -> tuple[object, ...]:
    record, job = sighting.record, sighting.newest
    ids = (job.workspace_id, asset_id, services.get((asset_id, record.port)), sighting.oldest.run_id)
    seen_as = (record.status, record.content_type, record.source)
    return (*ids, record.url, record.key, *seen_as, sighting.oldest.observed_at, job.observed_at)
