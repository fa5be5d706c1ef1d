"""Merge of port scans: open ports, the services behind them, and what each job saw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

from runlane.db.inventory.announcements import port_opened, service_discovered
from runlane.db.inventory.changes import port_closed, port_reopened, service_closed, service_reopened
from runlane.db.inventory.coverage import MISSES_TO_CLOSE, port_coverage, speaks_of_absence
from runlane.db.inventory.sightings import Ledger, MergeJob, Sighting, chunks, columns, fold
from runlane.db.inventory.subjects import given_addresses, pin_assets
from runlane.db.pool import Connection
from runlane.events.payloads import AssetServiceDiscovered
from runlane.tools.ports_scanner import PortRecord

_UPSERT_PORTS: Final = """
WITH merged AS (
  INSERT INTO ports AS p (workspace_id, asset_id, run_id, address, port, protocol, first_seen, last_seen)
  SELECT r.workspace_id, r.asset_id, r.run_id, r.address::inet, r.port, r.protocol, r.first_seen, r.last_seen
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::int[], $6::text[],
              $7::timestamptz[], $8::timestamptz[])
    AS r (workspace_id, asset_id, run_id, address, port, protocol, first_seen, last_seen)
  ORDER BY r.workspace_id, r.asset_id, r.address::inet, r.port, r.protocol
  ON CONFLICT (workspace_id, asset_id, address, port, protocol) DO UPDATE SET
    run_id = CASE WHEN excluded.first_seen < p.first_seen THEN excluded.run_id ELSE p.run_id END,
    first_seen = LEAST(p.first_seen, excluded.first_seen),
    last_seen = GREATEST(p.last_seen, excluded.last_seen),
    missed = CASE WHEN excluded.last_seen >= p.last_seen AND p.closed_at IS NULL
                       OR excluded.last_seen >= p.closed_at THEN 0 ELSE p.missed END,
    closed_at = CASE WHEN p.closed_at > excluded.last_seen THEN p.closed_at END
  RETURNING p.workspace_id, p.asset_id, p.address, p.port, p.protocol, p.last_seen AS at,
            old.id IS NULL AS is_new, old.closed_at IS NOT NULL AND p.closed_at IS NULL AS is_back
)
SELECT * FROM merged WHERE is_new OR is_back
"""

_UPSERT_SERVICES: Final = """
WITH merged AS (
  INSERT INTO asset_services AS s (workspace_id, asset_id, run_id, port, protocol, address, banner, is_tls,
                                   first_seen, last_seen)
  SELECT r.workspace_id, r.asset_id, r.run_id, r.port, r.protocol, r.address::inet, r.banner, r.is_tls,
         r.first_seen, r.last_seen
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::text[], $6::text[], $7::text[],
              $8::boolean[], $9::timestamptz[], $10::timestamptz[])
    AS r (workspace_id, asset_id, run_id, port, protocol, address, banner, is_tls, first_seen, last_seen)
  ORDER BY r.workspace_id, r.asset_id, r.port, r.protocol
  ON CONFLICT (workspace_id, asset_id, port, protocol) DO UPDATE SET
    run_id = CASE WHEN excluded.first_seen < s.first_seen THEN excluded.run_id ELSE s.run_id END,
    first_seen = LEAST(s.first_seen, excluded.first_seen),
    last_seen = GREATEST(s.last_seen, excluded.last_seen),
    address = CASE WHEN excluded.last_seen >= s.last_seen THEN excluded.address ELSE s.address END,
    banner = CASE WHEN excluded.last_seen >= s.last_seen THEN excluded.banner ELSE s.banner END,
    is_tls = CASE WHEN excluded.last_seen >= s.last_seen THEN excluded.is_tls ELSE s.is_tls END,
    missed = CASE WHEN excluded.last_seen >= s.last_seen AND s.closed_at IS NULL
                       OR excluded.last_seen >= s.closed_at THEN 0 ELSE s.missed END,
    closed_at = CASE WHEN s.closed_at > excluded.last_seen THEN s.closed_at END
  RETURNING s.workspace_id, s.id, s.asset_id, s.port, s.protocol, s.last_seen AS at,
            old.id IS NULL AS is_new, old.closed_at IS NOT NULL AND s.closed_at IS NULL AS is_back
)
SELECT * FROM merged WHERE is_new OR is_back
"""

_OBSERVE: Final = """
INSERT INTO port_observations AS o (workspace_id, run_id, asset_id, job_id, ports, is_complete, observed_at)
SELECT r.workspace_id, r.run_id, r.asset_id, r.job_id, r.ports::int[], r.is_complete, r.observed_at
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::boolean[], $7::timestamptz[])
  AS r (workspace_id, run_id, asset_id, job_id, ports, is_complete, observed_at)
ORDER BY r.run_id, r.asset_id, r.job_id
ON CONFLICT (run_id, asset_id, job_id) DO UPDATE SET
  ports = excluded.ports, is_complete = excluded.is_complete, observed_at = excluded.observed_at
WHERE excluded.observed_at >= o.observed_at
"""


def _closing(table: str, place: str) -> str:
    """Counts a miss of each open row of a table that scans looked for and did not see; `$7` misses close it.

    `place` says of the row `o` that the address that was looked at speaks for it.
    """
    return f"""
WITH looked AS MATERIALIZED (
  SELECT workspace_id, asset_id, address::inet AS address, protocol, ports::int4multirange AS ports,
         observed_at
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
    AS job (workspace_id, asset_id, address, protocol, ports, observed_at)
), missing AS (
  SELECT o.id, count(*)::int AS misses, max(looked.observed_at) AS observed_at
  FROM looked
  JOIN assets a ON a.workspace_id = looked.workspace_id AND a.id = looked.asset_id
  JOIN {table} o ON o.workspace_id = a.workspace_id AND o.asset_id = a.id
  WHERE o.closed_at IS NULL AND o.protocol = looked.protocol AND looked.ports @> o.port
    AND o.last_seen < looked.observed_at
    AND ({place})
  GROUP BY o.id
), counted AS (
  UPDATE {table} o
  SET missed = o.missed + m.misses,
      closed_at = CASE WHEN o.missed + m.misses >= $7 THEN m.observed_at END
  FROM missing m
  WHERE o.id = m.id
  RETURNING o.workspace_id, o.id, o.asset_id, o.address, o.port, o.protocol, o.closed_at AS at
)
SELECT c.*, a.value FROM counted c JOIN assets a ON a.workspace_id = c.workspace_id AND a.id = c.asset_id
WHERE c.at IS NOT NULL
"""


# An address that the asset no longer has is not scanned again, so a scan of one that it has speaks for it.
_AT_ADDRESS: Final = "o.address = looked.address OR a.addresses <> '{}' AND o.address <> ALL (a.addresses)"

_CLOSE_PORTS: Final = _closing("ports", _AT_ADDRESS)

_CLOSE_SERVICES: Final = _closing("asset_services", f"o.address IS NULL OR {_AT_ADDRESS}")

_Port: TypeAlias = tuple[UUID, str, int, str]
_Service: TypeAlias = tuple[UUID, int, str]


@dataclass(slots=True)
class _Place:
    """Where a job looked, as far as we know."""

    asset_id: UUID
    value: str
    addresses: frozenset[str]
    ports: set[int] = field(default_factory=set)
    """Open ports that the job saw there."""

    def holds(self, address: str) -> bool:
        """Whether a record about this address may be the asset's."""
        return not self.addresses or address in self.addresses

    def known(self, address: str) -> str | None:
        """The address if it is known to be the asset's: later jobs are sent to no other."""
        return address if address in self.addresses else None


_Seen: TypeAlias = tuple[_Place, MergeJob, PortRecord]


async def merge_ports(conn: Connection, jobs: Sequence[MergeJob], ledger: Ledger) -> None:
    """Merges open ports; a port of an asset is one service, however many addresses answer.

    Addresses of the asset are those that its name led to when it was last resolved, and the one that the job
    was given: between the two the name may have been resolved anew. What was seen at any other is left out:
    a host that is not trusted must not send later jobs to somebody else's address. If no address is known,
    the tool has resolved the name itself; then the ports are taken as told, and services keep no address.
    """
    places = await _places(conn, jobs)
    for chunk in chunks(jobs, PortRecord):
        seen: list[_Seen] = []
        for job, record in chunk:
            place = places.get(job.job_id)
            if place is not None and place.holds(record.address):
                seen.append((place, job, record))
                place.ports.add(record.port)
            else:
                ledger.left_out(job)
        if seen:
            await _upsert_ports(conn, seen, ledger)
            await _upsert_services(conn, seen, places, ledger)
            await ledger.tell()
    await _observe(conn, jobs, places)
    await _close(conn, jobs, places, ledger)


async def _places(conn: Connection, jobs: Sequence[MergeJob]) -> dict[UUID, _Place]:
    assets = await pin_assets(conn, jobs)
    given = await given_addresses(conn, jobs)
    places: dict[UUID, _Place] = {}
    for job in jobs:
        if job.asset_id is not None and (asset := assets.get(job.asset_id)) is not None:
            own = {given[job.job_id]} if job.job_id in given else set()
            places[job.job_id] = _Place(job.asset_id, asset.value, asset.addresses | own)
    return places


async def _upsert_ports(conn: Connection, seen: Sequence[_Seen], ledger: Ledger) -> None:
    keyed = (((at.asset_id, each.address, each.port, each.protocol), job, each) for at, job, each in seen)
    folded: dict[_Port, Sighting[PortRecord]] = fold(keyed, _rank)
    values = [_port_row(asset_id, each) for (asset_id, *_), each in folded.items()]
    for row in await conn.fetch(_UPSERT_PORTS, *columns(values)):
        if not row["is_new"]:
            ledger.envelopes.append(port_reopened(row))
            continue
        each = folded[row["asset_id"], str(row["address"]), row["port"], row["protocol"]]
        ledger.found(each.oldest)
        ledger.envelopes.append(port_opened(each.oldest, row["asset_id"], each.record))


async def _upsert_services(
    conn: Connection, seen: Sequence[_Seen], places: Mapping[UUID, _Place], ledger: Ledger
) -> None:
    keyed = (((at.asset_id, each.port, each.protocol), job, each) for at, job, each in seen)
    folded: dict[_Service, Sighting[PortRecord]] = fold(keyed, _rank)
    values = [_service_row(places[each.newest.job_id], each) for each in folded.values()]
    for row in await conn.fetch(_UPSERT_SERVICES, *columns(values)):
        job = folded[row["asset_id"], row["port"], row["protocol"]].oldest
        if not row["is_new"]:
            ledger.envelopes.append(service_reopened(row, places[job.job_id].value))
            continue
        payload = AssetServiceDiscovered(
            service_id=row["id"],
            asset_id=row["asset_id"],
            value=places[job.job_id].value,
            port=row["port"],
            protocol=row["protocol"],
        )
        ledger.envelopes.append(service_discovered(job, payload))


async def _observe(conn: Connection, jobs: Sequence[MergeJob], places: Mapping[UUID, _Place]) -> None:
    rows: list[tuple[object, ...]] = []
    for job in jobs:
        if (place := places.get(job.job_id)) is not None:
            literal = "{" + ",".join(map(str, sorted(place.ports))) + "}"
            ids = (job.workspace_id, job.run_id, place.asset_id, job.job_id)
            rows.append((*ids, literal, job.complete, job.observed_at))
    if rows:
        await conn.execute(_OBSERVE, *columns(rows))


async def _close(
    conn: Connection, jobs: Sequence[MergeJob], places: Mapping[UUID, _Place], ledger: Ledger
) -> None:
    rows: list[tuple[UUID, UUID, str, str, str, datetime]] = []
    for job in jobs:
        looked = port_coverage(job.coverage) if speaks_of_absence(job) else None
        place = places.get(job.job_id)
        if looked is not None and place is not None and place.holds(looked.address):
            where = (looked.address, looked.protocol, looked.multirange)
            rows.append((job.workspace_id, place.asset_id, *where, job.observed_at))
    if rows:
        ports = await conn.fetch(_CLOSE_PORTS, *columns(rows), MISSES_TO_CLOSE)
        services = await conn.fetch(_CLOSE_SERVICES, *columns(rows), MISSES_TO_CLOSE)
        ledger.envelopes += [*map(port_closed, ports), *map(service_closed, services)]


def _rank(record: PortRecord) -> tuple[object, ...]:
    return (record.banner is not None, record.address, record.banner or "", record.tls is True)


def _port_row(asset_id: UUID, sighting: Sighting[PortRecord]) -> tuple[object, ...]:
    record, job = sighting.record, sighting.newest
    ids = (job.workspace_id, asset_id, sighting.oldest.run_id)
    seen = (sighting.oldest.observed_at, job.observed_at)
    return (*ids, record.address, record.port, record.protocol, *seen)


def _service_row(place: _Place, sighting: Sighting[PortRecord]) -> tuple[object, ...]:
    record, job = sighting.record, sighting.newest
    ids = (job.workspace_id, place.asset_id, sighting.oldest.run_id)
    address = place.known(record.address)
    seen = (sighting.oldest.observed_at, job.observed_at)
    return (*ids, record.port, record.protocol, address, record.banner, record.tls, *seen)
