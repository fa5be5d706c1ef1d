"""Finished rows cost the hot statements nothing: buffers that they touch, as the server counts them."""

from uuid import UUID

import pytest

from benchmarks import growth
from runlane.db.pool import Pool
from tests.conftest import Database

pytestmark = [
    pytest.mark.integration,
    pytest.mark.breaks_invariants,  # rows are written without their events
]


async def test_claim_and_sweeps_touch_no_more_buffers_beside_100_000_finished_jobs(
    database: Database, pool: Pool, workspace_id: UUID
) -> None:
    scene = await growth.make_scene(pool, database.owner, workspace_id, live=3_000)
    without = await growth.buffers(pool, scene)

    await growth.add_finished(pool, scene, 100_000)

    grown = growth.Growth(100_000, without, await growth.buffers(pool, scene))
    assert grown.claim <= growth.MOST, grown
    assert grown.sweeps <= growth.MOST, grown
