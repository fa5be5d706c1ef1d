"""Pictures that no row refers to any more leave the bucket; what is young or referred to stays."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from runlane import names
from runlane.db.pool import Pool
from runlane.stack.supervisor import Stack
from runlane.sweeps import Part
from runlane.tools import Category
from tests.integration.merge_world import World, picture
from tests.integration.sweep_world import SweepWorld
from tests.integration.test_merge_pictures import PORTS, URL

pytestmark = pytest.mark.integration


def age_picture(stack: Stack, key: str, age: timedelta) -> None:
    """Makes the object storage believe that a picture is older."""
    sidecar = stack.folder / "s3" / "data" / names.PICTURES_BUCKET / ".nanio-meta" / f"{key}.json"
    known = json.loads(sidecar.read_text())
    known["last_modified"] = (datetime.now(UTC) - age).isoformat()
    sidecar.write_text(json.dumps(known))


async def test_pictures_without_a_row_are_removed_but_young_ones_stay(
    sweeps: SweepWorld, stack: Stack, pool: Pool
) -> None:
    world = await World.make(pool)
    scan = {"port": 8080, "protocol": "tcp", "address": "127.7.0.3", "banner": None, "tls": False}
    await world.merge(PORTS, world.job(PORTS, scan))
    taken = world.job(Category.SCREENSHOT, picture(URL))
    await world.merge(Category.SCREENSHOT, taken)
    pictures = sweeps.buckets.results.of_pictures()
    await pictures.ensure_bucket()

    def key_of(job_id: UUID) -> str:
        return names.picture_key(world.workspace_id, world.run_id, job_id, 1)

    kept, orphan, young = key_of(taken.job_id), key_of(uuid4()), key_of(uuid4())
    for key in (kept, orphan, young):
        await pictures.put(key, b"x")
        age_picture(stack, key, timedelta(days=29 if key == young else 31))

    report = await sweeps.sweep(Part.PICTURES)

    assert set(await pictures.keys(f"{world.workspace_id}/")) == {kept, young}
    assert (report.changed, report.failed) == (1, 0)
