"""Shared scan workers: how much of them one workspace may hold while others wait."""

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from runlane import names
from runlane.db.pool import Pool
from runlane.db.settle import Ending
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from tests.integration.dispatched_run import DispatchedRun, Shape, dispatched_run
from tests.integration.lost_jobs import LostJobs
from tests.integration.scan_host import ScanHost, enrol

pytestmark = pytest.mark.integration


@dataclass(frozen=True, slots=True)
class Tenant:
    """A workspace with a run."""

    workspace_id: UUID
    run: DispatchedRun
    world: LostJobs

    async def claim(self, host: ScanHost, number: int) -> int:
        """Jobs that a claim of one of its batches is given."""
        return len((await host.claim(self.run.dispatches[number], str(uuid4()), 10)).jobs)


async def tenant(pool: Pool, settings: Settings, name: str, batches: int) -> Tenant:
    """A workspace that allows shared workers, with a run of so many batches."""
    workspace_id = await pool.fetchval(
        "INSERT INTO workspaces (name, allow_shared) VALUES ($1, true) RETURNING id", name
    )
    run = await dispatched_run(pool, workspace_id, Shape(batches=batches))
    storage = Storage(StorageConfig(**settings.bucket))
    return Tenant(workspace_id, run, LostJobs(pool, storage, workspace_id, run.run_id))


async def test_workspace_may_hold_every_shared_slot_until_another_one_waits(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    host = await enrol(pool, workspace_id, is_shared=True, slots=4)
    greedy = await tenant(pool, settings, "greedy", 8)
    alone = [await greedy.claim(host, number) for number in range(3)]
    modest = await tenant(pool, settings, "modest", 1)

    refused = await greedy.claim(host, 3)
    held = await greedy.world.ask()
    its_turn = await modest.claim(host, 0)
    after = await greedy.claim(host, 4)

    assert alone == [1, 1, 1]
    assert (refused, its_turn, after) == (0, 1, 1)
    assert held.dispatches == []
    assert held.steps[0].has_more is False
    assert await pool.fetchval("SELECT max(free_attempts + failures) FROM jobs") == 0


async def test_workspace_below_its_share_is_given_slots_while_others_wait(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    host = await enrol(pool, workspace_id, is_shared=True, slots=4)
    first = await tenant(pool, settings, "first", 4)
    second = await tenant(pool, settings, "second", 4)

    both = [await first.claim(host, 0), await second.claim(host, 0), await first.claim(host, 1)]
    above = await first.claim(host, 2)
    await first.world.settle(first.run.dispatches[:1], Ending.RELEASED)
    below = await first.claim(host, 3)

    assert (both, above, below) == ([1, 1, 1], 0, 1)
    assert len(second.run.dispatches) == 2  # no more than its share is queued while the other one waits


async def test_share_of_a_workspace_is_its_setting_and_one_slot_at_least(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    host = await enrol(pool, workspace_id, is_shared=True, slots=4)
    small = await tenant(pool, settings, "small", 3)
    await tenant(pool, settings, "other", 1)
    await pool.execute("UPDATE workspaces SET shared_slot_share = 0.1")

    assert [await small.claim(host, number) for number in range(2)] == [1, 0]


async def test_batches_on_shared_queues_are_shared_out_among_workspaces(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    await enrol(pool, workspace_id, is_shared=True, slots=4)
    one = await tenant(pool, settings, "one", 1)
    queue = await pool.fetchval("SELECT task_queue FROM dispatches WHERE workspace_id = $1", one.workspace_id)

    assert queue == names.shared_scan_queue("probe")
