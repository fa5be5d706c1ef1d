"""Merge of pictures: what a run saw of a web service. The pictures themselves are objects, written before."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.inventory.announcements import screenshot_captured
from runlane.db.inventory.sightings import Ledger, MergeJob, chunks, columns
from runlane.db.inventory.subjects import find_services, owned, pin_assets
from runlane.db.pool import Connection
from runlane.events.inventory_payloads import AssetScreenshotCaptured
from runlane.tools.screenshot import ScreenshotRecord

_OBSERVE: Final = """
INSERT INTO screenshots AS o (workspace_id, run_id, service_id, job_id, url, object_key, size_bytes, sha256,
                              width, height, observed_at)
SELECT r.*
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::int[], $8::bytea[],
            $9::int[], $10::int[], $11::timestamptz[])
  AS r (workspace_id, run_id, service_id, job_id, url, object_key, size_bytes, sha256, width, height,
        observed_at)
ORDER BY r.run_id, r.service_id, r.job_id
ON CONFLICT (run_id, service_id, job_id) DO UPDATE SET
  url = excluded.url, object_key = excluded.object_key, size_bytes = excluded.size_bytes,
  sha256 = excluded.sha256, width = excluded.width, height = excluded.height,
  observed_at = excluded.observed_at
WHERE excluded.observed_at >= o.observed_at
RETURNING o.job_id, old.id IS NULL AS is_new
"""


async def merge_pictures(conn: Connection, jobs: Sequence[MergeJob], ledger: Ledger) -> None:
    """Merges the first picture of each job, if it is of a service of the job's own asset."""
    assets = await pin_assets(conn, jobs)
    services = await find_services(conn, jobs)
    taken: dict[UUID, tuple[MergeJob, AssetScreenshotCaptured, tuple[object, ...]]] = {}
    for chunk in chunks(jobs, ScreenshotRecord):
        for asset_id, job, record in owned(chunk, assets, ledger):
            service_id = services.get((asset_id, record.port))
            if service_id is None or job.job_id in taken:
                ledger.left_out(job)
            else:
                said = AssetScreenshotCaptured(service_id=service_id, asset_id=asset_id, run_id=job.run_id)
                taken[job.job_id] = (job, said, _row(job, service_id, record))
    if not taken:
        return
    for row in await conn.fetch(_OBSERVE, *columns([values for _, _, values in taken.values()])):
        if row["is_new"]:
            job, said, _ = taken[row["job_id"]]
            ledger.found(job)
            ledger.envelopes.append(screenshot_captured(job, said))


def _row(job: MergeJob, service_id: UUID, record: ScreenshotRecord) -> tuple[object, ...]:
    key = names.picture_key(job.workspace_id, job.run_id, job.job_id, job.attempt)
    ids = (job.workspace_id, job.run_id, service_id, job.job_id)
    size = (len(record.png), record.sha256, record.width, record.height)
    return (*ids, record.url, key, *size, job.observed_at)
