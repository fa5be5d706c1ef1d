"""Merge of findings: vulnerabilities."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import orjson

from runlane.db.inventory.announcements import vulnerability_detected
from runlane.db.inventory.changes import vulnerability_reopened, vulnerability_resolved
from runlane.db.inventory.coverage import MISSES_TO_CLOSE, check_coverage, speaks_of_absence
from runlane.db.inventory.sightings import Ledger, MergeJob, Sighting, chunks, columns, fold
from runlane.db.inventory.subjects import Services, find_services, owned, pin_assets
from runlane.db.pool import Connection
from runlane.events import scrub_text
from runlane.tools.records import digest
from runlane.tools.vulnerabilities import FindingRecord

_UPSERT: Final = """
WITH merged AS (
  INSERT INTO vulnerabilities AS v (workspace_id, asset_id, service_id, run_id, tool_id, check_id, name,
                                    severity, url, fingerprint, description, evidence, remediation,
                                    reference_urls, cwe, first_seen, last_seen)
  SELECT r.workspace_id, r.asset_id, r.service_id, r.run_id, r.tool_id, r.check_id, r.name, r.severity, r.url,
         r.fingerprint, r.description, r.evidence, r.remediation,
         ARRAY(SELECT jsonb_array_elements_text(r.reference_urls::jsonb)),
         ARRAY(SELECT jsonb_array_elements_text(r.cwe::jsonb)), r.first_seen, r.last_seen
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[],
              $9::text[], $10::bytea[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
              $16::timestamptz[], $17::timestamptz[])
    AS r (workspace_id, asset_id, service_id, run_id, tool_id, check_id, name, severity, url, fingerprint,
          description, evidence, remediation, reference_urls, cwe, first_seen, last_seen)
  ORDER BY r.workspace_id, r.fingerprint
  ON CONFLICT (workspace_id, fingerprint) DO UPDATE SET
    service_id = coalesce(excluded.service_id, v.service_id),
    run_id = CASE WHEN excluded.first_seen < v.first_seen THEN excluded.run_id ELSE v.run_id END,
    first_seen = LEAST(v.first_seen, excluded.first_seen),
    last_seen = GREATEST(v.last_seen, excluded.last_seen),
    tool_id = CASE WHEN excluded.last_seen >= v.last_seen THEN excluded.tool_id ELSE v.tool_id END,
    name = CASE WHEN excluded.last_seen >= v.last_seen THEN excluded.name ELSE v.name END,
    severity = CASE WHEN excluded.last_seen >= v.last_seen THEN excluded.severity ELSE v.severity END,
    url = CASE WHEN excluded.last_seen >= v.last_seen THEN excluded.url ELSE v.url END,
    description = CASE WHEN excluded.last_seen >= v.last_seen
                       THEN excluded.description ELSE v.description END,
    evidence = CASE WHEN excluded.last_seen >= v.last_seen THEN excluded.evidence ELSE v.evidence END,
    remediation = CASE WHEN excluded.last_seen >= v.last_seen
                       THEN excluded.remediation ELSE v.remediation END,
    reference_urls = CASE WHEN excluded.last_seen >= v.last_seen
                          THEN excluded.reference_urls ELSE v.reference_urls END,
    cwe = CASE WHEN excluded.last_seen >= v.last_seen THEN excluded.cwe ELSE v.cwe END,
    missed = CASE WHEN excluded.last_seen >= v.last_seen AND v.resolved_at IS NULL
                       OR excluded.last_seen >= v.resolved_at THEN 0 ELSE v.missed END,
    status = CASE WHEN excluded.last_seen >= v.resolved_at THEN 'open' ELSE v.status END,
    resolved_at = CASE WHEN v.resolved_at > excluded.last_seen THEN v.resolved_at END
  RETURNING v.workspace_id, v.id, v.asset_id, v.check_id, v.severity, v.fingerprint, v.last_seen AS at,
            old.id IS NULL AS is_new, old.status = 'resolved' AND v.status = 'open' AS is_back
)
SELECT * FROM merged WHERE is_new OR is_back
"""

# Only what is open resolves by itself: a person's word (accepted, false positive) stays.
_CLOSE: Final = """
WITH missing AS (
  SELECT v.id, count(*)::int AS misses, max(job.observed_at) AS observed_at
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
    AS job (workspace_id, asset_id, tool_id, scope, checks, observed_at)
  JOIN vulnerabilities v ON v.workspace_id = job.workspace_id AND v.asset_id = job.asset_id
  WHERE v.status = 'open' AND v.last_seen < job.observed_at AND v.tool_id = job.tool_id
    AND job.checks::jsonb ? v.check_id AND starts_with(v.url, job.scope)
  GROUP BY v.id
), counted AS (
  UPDATE vulnerabilities v
  SET missed = v.missed + m.misses,
      status = CASE WHEN v.missed + m.misses >= $7 THEN 'resolved' ELSE v.status END,
      resolved_at = CASE WHEN v.missed + m.misses >= $7 THEN m.observed_at END
  FROM missing m
  WHERE v.id = m.id
  RETURNING v.workspace_id, v.id, v.asset_id, v.check_id, v.severity, v.resolved_at AS at
)
SELECT * FROM counted WHERE at IS NOT NULL
"""

_Seen: TypeAlias = tuple[bytes, MergeJob, FindingRecord]


async def merge_findings(conn: Connection, jobs: Sequence[MergeJob], ledger: Ledger) -> None:
    """Merges findings on the asset's own hosts; evidence is masked here again, whatever the tool did."""
    assets = await pin_assets(conn, jobs)
    services = await find_services(conn, jobs)
    for chunk in chunks(jobs, FindingRecord):
        seen: list[_Seen] = [
            (digest(str(asset_id), record.key.hex()), job, record)
            for asset_id, job, record in owned(chunk, assets, ledger)
        ]
        if seen:
            await _upsert(conn, fold(seen, _rank), services, ledger)
            await ledger.tell()
    await _close(conn, jobs, ledger)


async def _upsert(
    conn: Connection, folded: Mapping[bytes, Sighting[FindingRecord]], services: Services, ledger: Ledger
) -> None:
    values = [_row(fingerprint, each, services) for fingerprint, each in folded.items()]
    for row in await conn.fetch(_UPSERT, *columns(values)):
        if not row["is_new"]:
            ledger.envelopes.append(vulnerability_reopened(row))
            continue
        each = folded[row["fingerprint"]]
        ledger.found(each.oldest)
        ledger.envelopes.append(vulnerability_detected(each.oldest, row["id"], row["asset_id"], each.record))


async def _close(conn: Connection, jobs: Sequence[MergeJob], ledger: Ledger) -> None:
    rows: list[tuple[object, ...]] = []
    for job in jobs:
        looked = check_coverage(job.coverage) if speaks_of_absence(job) else None
        if looked is not None:
            ids = (job.workspace_id, job.asset_id, job.tool_id)
            rows.append((*ids, looked.scope, _json(looked.checks), job.observed_at))
    if rows:
        resolved = await conn.fetch(_CLOSE, *columns(rows), MISSES_TO_CLOSE)
        ledger.envelopes += map(vulnerability_resolved, resolved)


def _rank(record: FindingRecord) -> tuple[object, ...]:
    return (record.url, record.severity.value, record.name, record.evidence or "")


def _row(fingerprint: bytes, sighting: Sighting[FindingRecord], services: Services) -> tuple[object, ...]:
    record, job = sighting.record, sighting.newest
    service_id = None if job.asset_id is None else services.get((job.asset_id, record.port))
    return (
        job.workspace_id,
        job.asset_id,
        service_id,
        sighting.oldest.run_id,
        job.tool_id,
        record.check,
        record.name,
        record.severity.value,
        record.url,
        fingerprint,
        record.description,
        None if record.evidence is None else scrub_text(record.evidence),
        record.remediation,
        _json(record.references),
        _json(record.cwe),
        sighting.oldest.observed_at,
        job.observed_at,
    )


def _json(texts: Sequence[str]) -> str:
    return orjson.dumps(texts).decode()
