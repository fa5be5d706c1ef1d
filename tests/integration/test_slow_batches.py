"""A job that lasts for hours: what its batch has found otherwise does not wait for it."""

from dataclasses import replace
from uuid import UUID

import pytest

from runlane.jobs import Outcome
from runlane.sweeps import Part, Report
from tests.conftest import Database
from tests.integration.run_world import Gate, RunWorld, graph
from tests.integration.scan_host import Done
from tests.integration.sweep_world import SweepWorld
from tests.waiting import until
from workflows.dispatching import Limits

pytestmark = pytest.mark.integration

IN_ONE = Limits(least_batch=2)
IN_A_SHARD = Limits(least_batch=2, budget=1, window=1, open_shards=1)

AGE_BATCHES = "UPDATE dispatches SET created_at = created_at - interval '10 min'"
AGE_STAGED = "UPDATE job_attempts SET staged_at = staged_at - interval '5 min' WHERE staged_at IS NOT NULL"


@pytest.fixture
def world(sweeps: SweepWorld, database: Database, workspace_id: UUID) -> RunWorld:
    return RunWorld(sweeps.pool, database.owner, sweeps.temporal, sweeps.buckets.results, workspace_id)


@pytest.mark.parametrize(("limits", "jobs"), [(IN_ONE, 2), (IN_A_SHARD, 4)], ids=["run", "shard"])
async def test_result_beside_a_job_that_lasts_is_merged_before_that_job_ends(
    sweeps: SweepWorld, world: RunWorld, limits: Limits, jobs: int
) -> None:
    gate = Gate()
    world = replace(world, limits=limits)
    async with world.workers(), world.host(gate.tool) as host:
        run_id = await world.start(graph(a=[]), count=jobs)
        await until(lambda: len(host.jobs) == jobs)
        batch = UUID(host.batches[-1].dispatch_id)
        await host.stage(await host.delivery(batch, [(host.jobs[-1], Done())]))

        young = await sweeps.sweep(Part.SLOW_BATCHES)
        await world.pool.execute(AGE_BATCHES)
        await world.pool.execute(AGE_STAGED)
        asked = await sweeps.sweep(Part.SLOW_BATCHES)
        await sweeps.relay()
        await world.until("SELECT count(*) = 1 FROM jobs WHERE status = 'completed'")
        counts = await world.count_jobs(run_id)
        again = await sweeps.sweep(Part.SLOW_BATCHES)
        is_open = await world.value("SELECT closed_at IS NULL FROM dispatches WHERE id = $1", batch)

        gate.open()
        status = await world.end_of(run_id)

    assert (young, asked, again) == (Report(), Report(1, 1), Report())
    assert counts == {"completed": 1, "in_progress": jobs - 1}
    assert is_open
    assert status == "completed"
    assert await world.row("SELECT count(*), max(attempt) FROM job_attempts") == (jobs, 1)


async def test_job_that_failed_beside_one_that_lasts_is_tried_again_meanwhile(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    gate = Gate()
    world = replace(world, limits=IN_ONE)
    async with world.workers(), world.host(gate.tool) as host:
        run_id = await world.start(graph(a=[]), count=2)
        await until(lambda: len(host.jobs) == 2)
        failed = Done(Outcome.TOOL_FAILED, error="no luck")
        await host.stage(await host.delivery(UUID(host.batches[0].dispatch_id), [(host.jobs[1], failed)]))
        await world.pool.execute(AGE_BATCHES)
        await world.pool.execute(AGE_STAGED)

        await sweeps.sweep(Part.SLOW_BATCHES)
        await sweeps.relay()
        await world.until("SELECT count(*) = 1 FROM jobs WHERE failures = 1 AND status = 'pending'")
        await world.end_back_off(run_id)
        await world.until("SELECT count(*) = 1 FROM jobs WHERE status = 'completed'")
        counts = await world.count_jobs(run_id)

        gate.open()
        status = await world.end_of(run_id)

    assert counts == {"completed": 1, "in_progress": 1}
    assert status == "completed"
