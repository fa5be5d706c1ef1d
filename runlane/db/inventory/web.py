"""Merge of web answers: the web half of services, what they run, and each answer as it was."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Final, TypeAlias
from uuid import UUID

import orjson

from runlane.db.inventory.announcements import service_discovered, technology_detected
from runlane.db.inventory.changes import service_reopened
from runlane.db.inventory.sightings import Ledger, MergeJob, Sighting, chunks, columns, fold
from runlane.db.inventory.subjects import Asset, owned, pin_assets
from runlane.db.pool import Connection
from runlane.events.payloads import AssetServiceDiscovered
from runlane.tools.http_probe import HttpRecord, Technology

CHUNK: Final = 500
"""Answers of one statement: each may hold hundreds of kilobytes of headers and names."""

_UPSERT: Final = """
INSERT INTO asset_services AS s (workspace_id, asset_id, run_id, port, protocol, scheme, url, status, title,
                                 server, tls, web_seen_at, first_seen, last_seen)
SELECT r.workspace_id, r.asset_id, r.run_id, r.port, 'tcp', r.scheme, r.url, r.status, r.title, r.server,
       r.tls::jsonb, r.last_seen, r.first_seen, r.last_seen
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::text[], $6::text[], $7::int[], $8::text[],
            $9::text[], $10::text[], $11::timestamptz[], $12::timestamptz[])
  AS r (workspace_id, asset_id, run_id, port, scheme, url, status, title, server, tls, first_seen, last_seen)
ORDER BY r.workspace_id, r.asset_id, r.port
ON CONFLICT (workspace_id, asset_id, port, protocol) DO UPDATE SET
  run_id = CASE WHEN excluded.first_seen < s.first_seen THEN excluded.run_id ELSE s.run_id END,
  first_seen = LEAST(s.first_seen, excluded.first_seen),
  last_seen = GREATEST(s.last_seen, excluded.last_seen),
  scheme = CASE WHEN s.web_seen_at > excluded.web_seen_at THEN s.scheme ELSE excluded.scheme END,
  url = CASE WHEN s.web_seen_at > excluded.web_seen_at THEN s.url ELSE excluded.url END,
  status = CASE WHEN s.web_seen_at > excluded.web_seen_at THEN s.status ELSE excluded.status END,
  title = CASE WHEN s.web_seen_at > excluded.web_seen_at THEN s.title ELSE excluded.title END,
  server = CASE WHEN s.web_seen_at > excluded.web_seen_at THEN s.server ELSE excluded.server END,
  tls = CASE WHEN s.web_seen_at > excluded.web_seen_at THEN s.tls ELSE excluded.tls END,
  web_seen_at = GREATEST(s.web_seen_at, excluded.web_seen_at),
  missed = CASE WHEN excluded.last_seen >= s.last_seen AND s.closed_at IS NULL
                     OR excluded.last_seen >= s.closed_at THEN 0 ELSE s.missed END,
  closed_at = CASE WHEN s.closed_at > excluded.last_seen THEN s.closed_at END
RETURNING s.workspace_id, s.id, s.asset_id, s.port, s.protocol, s.last_seen AS at, old.id IS NULL AS is_new,
          old.web_seen_at IS NULL AS is_first_answer,
          old.closed_at IS NOT NULL AND s.closed_at IS NULL AS is_back
"""

_OBSERVE: Final = """
INSERT INTO http_responses AS o (workspace_id, run_id, service_id, job_id, url, status, response, observed_at)
SELECT r.workspace_id, r.run_id, r.service_id, r.job_id, r.url, r.status, r.response::jsonb, r.observed_at
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::int[], $7::text[],
            $8::timestamptz[])
  AS r (workspace_id, run_id, service_id, job_id, url, status, response, observed_at)
ORDER BY r.run_id, r.service_id, r.job_id
ON CONFLICT (run_id, service_id, job_id) DO UPDATE SET
  url = excluded.url, status = excluded.status, response = excluded.response,
  observed_at = excluded.observed_at
WHERE excluded.observed_at >= o.observed_at
"""

_UPSERT_TECHNOLOGIES: Final = """
WITH merged AS (
  INSERT INTO technologies AS t (workspace_id, service_id, name, version, first_seen, last_seen)
  SELECT r.workspace_id, r.service_id, r.name, r.version, r.first_seen, r.last_seen
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[])
    AS r (workspace_id, service_id, name, version, first_seen, last_seen)
  ORDER BY r.workspace_id, r.service_id, r.name
  ON CONFLICT (workspace_id, service_id, name) DO UPDATE SET
    first_seen = LEAST(t.first_seen, excluded.first_seen),
    last_seen = GREATEST(t.last_seen, excluded.last_seen),
    version = CASE WHEN excluded.last_seen >= t.last_seen THEN excluded.version ELSE t.version END
  RETURNING t.service_id, t.name, old.id IS NULL AS is_new
)
SELECT service_id, name FROM merged WHERE is_new
"""

_Service: TypeAlias = tuple[UUID, int]
_Seen: TypeAlias = tuple[_Service, MergeJob, HttpRecord]


async def merge_web(conn: Connection, jobs: Sequence[MergeJob], ledger: Ledger) -> None:
    """Merges answers into the services of their asset; new is a service that never answered HTTP before.

    An answer of a host that is neither the asset's name nor one of its addresses is left out.
    """
    assets = await pin_assets(conn, jobs)
    for chunk in chunks(jobs, HttpRecord, CHUNK):
        seen: list[_Seen] = [
            ((asset_id, record.port), job, record) for asset_id, job, record in owned(chunk, assets, ledger)
        ]
        if seen:
            services = await _upsert(conn, fold(seen, _rank), assets, ledger)
            await _observe(conn, seen, services)
            await _upsert_technologies(conn, seen, services, ledger)
            await ledger.tell()


async def _upsert(
    conn: Connection,
    folded: Mapping[_Service, Sighting[HttpRecord]],
    assets: Mapping[UUID, Asset],
    ledger: Ledger,
) -> dict[_Service, UUID]:
    services: dict[_Service, UUID] = {}
    for row in await conn.fetch(_UPSERT, *columns([_row(key[0], each) for key, each in folded.items()])):
        key = (row["asset_id"], row["port"])
        services[key] = row["id"]
        job = folded[key].oldest
        if row["is_first_answer"]:
            ledger.found(job)
        if row["is_back"]:
            ledger.envelopes.append(service_reopened(row, assets[row["asset_id"]].value))
        if row["is_new"]:
            payload = AssetServiceDiscovered(
                service_id=row["id"],
                asset_id=row["asset_id"],
                value=assets[row["asset_id"]].value,
                port=row["port"],
                protocol="tcp",
            )
            ledger.envelopes.append(service_discovered(job, payload))
    return services


async def _observe(conn: Connection, seen: Iterable[_Seen], services: Mapping[_Service, UUID]) -> None:
    keyed = (((job.job_id, services[key]), job, record) for key, job, record in seen)
    rows: list[tuple[object, ...]] = []
    for (job_id, service_id), each in fold(keyed, _rank).items():
        job, record = each.newest, each.record
        ids = (job.workspace_id, job.run_id, service_id, job_id)
        rows.append((*ids, record.url, record.status, _response(record), job.observed_at))
    await conn.execute(_OBSERVE, *columns(rows))


async def _upsert_technologies(
    conn: Connection, seen: Iterable[_Seen], services: Mapping[_Service, UUID], ledger: Ledger
) -> None:
    keyed = (
        ((services[key], technology.name), job, technology)
        for key, job, record in seen
        for technology in record.technologies
    )
    folded: dict[tuple[UUID, str], Sighting[Technology]] = fold(keyed, _rank_technology)
    rows: list[tuple[object, ...]] = [
        (
            each.newest.workspace_id,
            service_id,
            name,
            each.record.version,
            each.oldest.observed_at,
            each.newest.observed_at,
        )
        for (service_id, name), each in folded.items()
    ]
    if not rows:
        return
    for row in await conn.fetch(_UPSERT_TECHNOLOGIES, *columns(rows)):
        each = folded[row["service_id"], row["name"]]
        ledger.envelopes.append(technology_detected(each.oldest, row["service_id"], each.record))


def _rank(record: HttpRecord) -> tuple[object, ...]:
    # of two schemes on one port the encrypted one says more
    return (record.scheme, record.url, record.status)


def _rank_technology(technology: Technology) -> tuple[object, ...]:
    return (technology.version is not None, technology.version or "")


def _row(asset_id: UUID, sighting: Sighting[HttpRecord]) -> tuple[object, ...]:
    record, job = sighting.record, sighting.newest
    tls = None if record.tls is None else _json(record.tls)
    return (
        job.workspace_id,
        asset_id,
        sighting.oldest.run_id,
        record.port,
        record.scheme,
        record.url,
        record.status,
        record.title,
        record.server,
        tls,
        sighting.oldest.observed_at,
        job.observed_at,
    )


def _response(record: HttpRecord) -> str:
    """The whole answer; without the key, which is only a hash of the URL."""
    return _json({each.name: getattr(record, each.name) for each in fields(record) if each.name != "key"})


def _json(value: object) -> str:
    """Dataclasses become objects, times ISO 8601, hashes hex."""
    return orjson.dumps(value, default=bytes.hex).decode()
