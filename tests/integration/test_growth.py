"""Finished rows cost the hot statements nothing: buffers that they touch, as the server counts them."""

from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from benchmarks import growth
from runlane.db import claims
from runlane.db.pool import Pool
from tests.conftest import Database

pytestmark = [
    pytest.mark.integration,
    pytest.mark.breaks_invariants,  # rows are written without their events
]


async def test_claim_and_sweeps_touch_no_more_buffers_beside_100_000_finished_jobs(
    database: Database, pool: Pool, workspace_id: UUID
) -> None:
    scene = await growth.make_scene(pool, database.owner, workspace_id, live=6_000)
    without = await growth.buffers(pool, scene)

    await growth.add_finished(pool, scene, 100_000)

    grown = growth.Growth(100_000, without, await growth.buffers(pool, scene))
    assert grown.claim <= growth.MOST, grown
    assert grown.sweeps <= growth.MOST, grown


async def test_what_all_jobs_of_a_batch_have_in_common_is_read_once_a_claim(
    database: Database, pool: Pool, workspace_id: UUID
) -> None:
    scene = await growth.make_scene(pool, database.owner, workspace_id, live=300)
    whose = (scene.dispatch_id, scene.worker_id, scene.incarnation)
    async with pool.acquire() as conn:
        transaction = conn.transaction()
        await transaction.start()
        (explained,) = await conn.fetchval(
            f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {claims._CLAIM}", *whose, 100, str(uuid4()), None
        )
        await transaction.rollback()

    reads: Counter[str] = Counter()
    for node in nodes(explained["Plan"]):
        reads[node.get("Relation Name", "")] += node["Actual Loops"]
    assert reads["jobs"] > growth.BATCH
    for table in ("workers", "workspaces", "tools", "pauses", "exclusions"):
        assert reads[table] <= 1, explained


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A node of a plan and all below it."""
    yield node
    for below in node.get("Plans", ()):
        yield from nodes(below)
