"""Sweeps that get work going again: silent workers, lost workflows and nudges, jobs without owner."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from activities.results import EndedBatch, SettleInput
from runlane import names
from runlane.db import nudges
from runlane.db.acts import Act, StepOfRun
from runlane.db.cancel import cancel_run, cancel_step
from runlane.db.claims import ClaimedJob
from runlane.db.pool import Pool
from runlane.db.remerge import remerge_job
from runlane.db.runs import close_run, close_step
from runlane.db.settle import MAX_MERGE_FAILURES, Ending
from runlane.db.sweeps import runs
from runlane.db.sweeps.silent_workers import note_replica
from runlane.errors import Conflict
from runlane.jobs import RunVerb
from runlane.settings import Settings
from runlane.sweeps import Part, Report
from tests.conftest import Database
from tests.integration.api_world import open_api
from tests.integration.dispatched_run import DispatchedRun, Shape, dispatched_run
from tests.integration.run_world import Gate, RunWorld, graph
from tests.integration.scan_host import Done, ScanHost, enrol
from tests.integration.sweep_world import SweepWorld
from tests.waiting import WAIT_S, until
from workflows.dispatching import Limits

pytestmark = pytest.mark.integration

AGE_RUN = "UPDATE job_histories SET created_at = created_at - $2::interval WHERE id = $1"


@pytest.fixture
def world(sweeps: SweepWorld, database: Database, workspace_id: UUID) -> RunWorld:
    """A workspace; the test brings the workers."""
    return RunWorld(sweeps.pool, database.owner, sweeps.temporal, sweeps.buckets.results, workspace_id)


def completed(step_id: str, job: ClaimedJob) -> Done:
    return Done()


async def see_streams(pool: Pool, *, for_s: float = 120) -> None:
    """A replica of the API has confirmed its streams for so long."""
    async with pool.acquire() as conn:
        await note_replica(conn, "replica", for_s)


async def silence(pool: Pool, host: ScanHost) -> None:
    """Nobody has heard of a worker for more than a minute."""
    await pool.execute(
        """UPDATE workers SET stream_seen_at = stream_seen_at - interval '70 s',
                              beat_at = beat_at - interval '70 s' WHERE id = $1""",
        host.worker_id,
    )


async def age(pool: Pool, run_id: UUID, by: timedelta) -> None:
    await pool.execute(AGE_RUN, run_id, by)


async def several(world: RunWorld, count: int) -> list[UUID]:
    """So many runs, each on a target of its own."""
    run_ids = []
    for _ in range(count):
        run_ids.append(await world.begin(graph(a=[])))
        await world.pool.execute("UPDATE targets SET value = id::text")
    return run_ids


async def claimed(host: ScanHost, run: DispatchedRun) -> list[ClaimedJob]:
    """The jobs of all batches of a run, in the hands of one worker."""
    jobs: list[ClaimedJob] = []
    for dispatch_id in run.dispatches:
        jobs += (await host.claim(dispatch_id, str(dispatch_id), 100)).jobs
    return jobs


async def events_of(pool: Pool, event: str) -> int:
    found: int = await pool.fetchval("SELECT count(*) FROM outbox WHERE type = $1", event)
    return found


async def test_silent_worker_is_taken_off_line_and_its_job_is_done_by_another(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    gate = Gate()
    async with world.workers(), world.host(gate.tool, slots=1) as host:
        run_id = await world.start(graph(a=[]))
        await gate.entered()
        await silence(world.pool, host)
        await see_streams(world.pool)

        report = await sweeps.sweep(Part.SILENT_WORKERS)
        again = await sweeps.sweep(Part.SILENT_WORKERS)
        await sweeps.relay()
        async with world.host(completed):
            status = await world.end_of(run_id)
        gate.open()

    assert (report, again) == (Report(1, 1), Report())
    assert status == "completed"
    assert await events_of(world.pool, "worker.timed_out") == 1
    assert await world.row("SELECT attempt, failures, free_attempts FROM jobs") == (2, 0, 1)


@pytest.mark.parametrize("steady_s", [None, 20.0], ids=["no replica", "replica just back"])
async def test_silence_says_nothing_of_workers_while_no_api_was_there_to_hear_them(
    sweeps: SweepWorld, world: RunWorld, steady_s: float | None
) -> None:
    host = await enrol(world.pool, world.workspace_id)
    await silence(world.pool, host)
    if steady_s is not None:
        await see_streams(world.pool, for_s=steady_s)

    report = await sweeps.sweep(Part.SILENT_WORKERS)

    assert report == Report()
    assert await world.value("SELECT status FROM workers") == "online"


async def test_replica_of_the_api_says_that_it_hears_workers(sweeps: SweepWorld, settings: Settings) -> None:
    async with open_api(settings, sweeps.pool):
        await until(lambda: sweeps.pool.fetchval("SELECT seen_at >= steady_since FROM api_replicas"))


async def test_open_run_whose_workflow_was_terminated_is_started_again(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    async with world.workers():
        lost, healthy, young = await several(world, 3)
        await sweeps.relay()
        for run_id in (lost, young):
            await world.handle(run_id).terminate("test")
        for run_id in (lost, healthy):
            await age(world.pool, run_id, timedelta(minutes=2))

        report = await sweeps.sweep(Part.LOST_WORKFLOWS)
        again = await sweeps.sweep(Part.LOST_WORKFLOWS)
        relayed = await sweeps.relay()
        async with world.host(completed):
            status = await world.end_of(lost)
            await world.end_of(healthy)

    assert (report, again) == (Report(2, 1), Report(1, 0))
    assert relayed == 1
    assert status == "completed"
    assert await world.value("SELECT status FROM job_histories WHERE id = $1", young) != "completed"


async def test_nudge_that_got_lost_is_repeated_after_half_a_minute(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    run_id = await world.begin(graph(a=[]))
    async with world.pool.acquire() as conn, conn.transaction():
        await nudges.nudge(conn, [names.run_workflow_id(run_id)])
    told = "UPDATE commands SET done_at = clock_timestamp() WHERE kind = 'nudge'"
    late = "UPDATE job_histories SET nudged_at = nudged_at - interval '31 s'"

    await world.pool.execute(late)
    untold = await sweeps.sweep(Part.LATE_NUDGES)
    await world.pool.execute(told)
    first = await sweeps.sweep(Part.LATE_NUDGES)
    await world.pool.execute(told)
    at_once = await sweeps.sweep(Part.LATE_NUDGES)

    assert [untold.changed, first.changed, at_once.changed] == [0, 1, 0]
    assert await world.value("SELECT count(*) FROM commands WHERE kind = 'nudge'") == 2


async def test_jobs_that_no_workflow_waits_for_are_merged_if_staged_and_else_released(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    host = await enrol(world.pool, world.workspace_id)
    run = await dispatched_run(world.pool, world.workspace_id, Shape(batches=3, jobs_each=1))
    first, *_ = await claimed(host, DispatchedRun(run.run_id, run.dispatches[:2]))
    await host.stage(await host.delivery(run.dispatches[0], [(first, Done())]))
    await world.pool.execute("UPDATE dispatches SET closed_at = clock_timestamp() - interval '3 min'")

    report = await sweeps.sweep(Part.ORPHANED_JOBS)
    again = await sweeps.sweep(Part.ORPHANED_JOBS)

    assert (report, again) == (Report(3, 3), Report())
    rows = await world.pool.fetch("SELECT status, attempt, dispatch_id IS NULL FROM jobs ORDER BY 1, 2")
    assert [tuple(row) for row in rows] == [
        ("completed", 1, False),
        ("pending", 0, True),
        ("pending", 1, True),
    ]
    assert await world.value("SELECT nudged_at IS NOT NULL FROM job_histories")


async def test_run_goes_on_after_one_of_its_shards_was_terminated_with_a_job_in_progress(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    small = replace(world, limits=Limits(window=1, budget=1, open_shards=1))
    taken: list[UUID] = []
    entered = asyncio.Event()

    async def tool(step_id: str, job: ClaimedJob) -> Done:
        taken.append(job.job_id)
        if len(taken) == 2:
            entered.set()
            await asyncio.Event().wait()
        return Done()

    async with small.workers(), small.host(tool):
        run_id = await small.start(graph(a=[]), count=3)
        await asyncio.wait_for(entered.wait(), WAIT_S)
        shard = names.shard_workflow_id(run_id, "a", 0)
        await sweeps.temporal.get_workflow_handle(shard).terminate("test")
        await small.until("SELECT closed_at IS NOT NULL FROM run_shards WHERE workflow_id = $1", shard)
        young = await sweeps.sweep(Part.ORPHANED_JOBS)
        await small.pool.execute("UPDATE run_shards SET closed_at = closed_at - interval '3 min'")

        report = await sweeps.sweep(Part.ORPHANED_JOBS)
        await small.relay()
        status = await small.end_of(run_id)

    assert (young, report) == (Report(), Report(1, 1))
    assert status == "completed"
    assert await small.count_jobs(run_id) == {"completed": 3}
    assert await small.value("SELECT attempt FROM jobs WHERE id = $1", taken[1]) == 2


async def test_jobs_of_a_worker_that_is_gone_are_looked_after_by_their_workflow(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    host = await enrol(world.pool, world.workspace_id)
    await claimed(host, await dispatched_run(world.pool, world.workspace_id))
    owned = await sweeps.sweep(Part.ORPHANED_JOBS)
    await world.pool.execute("UPDATE workers SET status = 'offline'")

    report = await sweeps.sweep(Part.ORPHANED_JOBS)

    assert (owned, report) == (Report(), Report(1, 1))
    assert await world.value("SELECT status FROM jobs") == "in_progress"
    assert await world.value("SELECT nudged_at IS NOT NULL FROM job_histories")


async def merge_fails(sweeps: SweepWorld, world: RunWorld, hosts: int = 1) -> DispatchedRun:
    """A run whose jobs have failed because their results could not be merged."""
    host = await enrol(world.pool, world.workspace_id)
    run = await dispatched_run(world.pool, world.workspace_id, Shape("dnsprobe", jobs_each=hosts))
    jobs = await claimed(host, run)
    said = [(job, Done(records=[{"name": f"bad.{job.spec['host']}"}])) for job in jobs]
    await host.stage(await host.delivery(run.dispatches[0], said))
    await world.pool.execute("UPDATE job_attempts SET merge_failures = $1", MAX_MERGE_FAILURES - 1)
    async with world.broken_merge():
        batch = SettleInput([EndedBatch(str(run.dispatches[0]), Ending.ENDED)])
        await sweeps.settle(batch)
    return run


async def test_failed_merge_is_run_again_in_its_open_step_once_and_keeps_its_charges(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    run = await merge_fails(sweeps, world)

    report = await sweeps.sweep(Part.FAILED_MERGES)
    again = await sweeps.sweep(Part.FAILED_MERGES)

    assert (report, again) == (Report(1, 1), Report())
    rows = await world.pool.fetch(
        """SELECT run_id = $1, status, retryable, generation, failures, failures_before, retry_of IS NOT NULL
           FROM jobs ORDER BY generation""",
        run.run_id,
    )
    assert [tuple(row) for row in rows] == [
        (True, "failed", False, 0, 1, 0, False),
        (True, "pending", False, 1, 0, 1, True),
    ]
    assert await events_of(world.pool, "job.reset_stuck") == 1


async def test_failed_merges_of_a_closed_run_are_run_again_in_one_new_run_by_two_sweeps_at_once(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    run = await merge_fails(sweeps, world, hosts=3)
    async with world.pool.acquire() as conn, conn.transaction():
        await close_step(conn, run.run_id, "only")
        await close_run(conn, run.run_id, RunVerb.FAIL)

    reports = await asyncio.gather(*(sweeps.sweep(Part.FAILED_MERGES) for _ in range(2)))
    (new,) = [
        row["id"]
        for row in await world.pool.fetch("SELECT id FROM job_histories WHERE rerun_of = $1", run.run_id)
    ]
    async with world.workers(), world.host(completed):
        await sweeps.relay()
        status = await world.end_of(new)

    assert sum(report.changed for report in reports) == 3
    assert status == "completed"
    assert await world.count_jobs(run.run_id) == {"failed": 3}
    assert await world.count_jobs(new) == {"completed": 3}
    assert await world.row("SELECT trigger, status FROM job_histories WHERE id = $1", new) == (
        "sweep",
        "completed",
    )


async def test_sweep_and_merge_by_hand_hold_no_job_whose_run_another_holds(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    run = await merge_fails(sweeps, world)
    job_id: UUID = await world.pool.fetchval("SELECT id FROM jobs")

    async def merged() -> None:
        async with world.pool.acquire() as conn, conn.transaction():
            await remerge_job(conn, world.workspace_id, job_id, Act())

    async with world.pool.acquire() as conn, conn.transaction():
        await conn.execute("SELECT FROM job_histories WHERE id = $1 FOR NO KEY UPDATE", run.run_id)
        others = [asyncio.create_task(each) for each in (sweeps.sweep(Part.FAILED_MERGES), merged())]
        await world.until(
            "SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock'"
        )
        await conn.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE NOWAIT", job_id)
    ends = await asyncio.gather(*others, return_exceptions=True)

    assert {type(end) for end in ends} in (
        {Report, Conflict},
        {Report, type(None)},
    )  # the second finds it done
    assert await world.value("SELECT count(*) FROM jobs") == 2


@pytest.mark.parametrize("step_id", [None, "only"], ids=["run", "step"])
async def test_failed_merge_of_what_a_person_has_cancelled_is_not_run_again(
    sweeps: SweepWorld, world: RunWorld, step_id: str | None
) -> None:
    run = await merge_fails(sweeps, world)
    async with world.pool.acquire() as conn, conn.transaction():
        if step_id is None:
            await cancel_run(conn, world.workspace_id, run.run_id)
        else:
            await cancel_step(conn, StepOfRun(world.workspace_id, run.run_id, step_id))

    report = await sweeps.sweep(Part.FAILED_MERGES)

    assert report == Report()
    assert await world.value("SELECT count(*) FROM jobs") == 1


@pytest.mark.parametrize(
    "why",
    [
        "UPDATE jobs SET failures_before = 3",
        "UPDATE jobs SET target_id = NULL",
        "UPDATE targets SET deleted_at = clock_timestamp()",
        "UPDATE jobs SET retryable = false",
    ],
    ids=["budget spent", "no target", "target deleted", "not retryable"],
)
async def test_failed_job_without_budget_or_asset_is_left_alone_by_every_sweep(
    sweeps: SweepWorld, world: RunWorld, why: str
) -> None:
    await merge_fails(sweeps, world)
    await world.pool.execute(why)
    before = await world.row("SELECT xmin::text, status FROM jobs")

    reports = [await sweeps.sweep(Part.FAILED_MERGES) for _ in range(2)]

    assert reports == [Report(), Report()]
    assert await world.row("SELECT xmin::text, status FROM jobs") == before


async def test_stalled_runs_are_asked_to_advance_and_others_are_not(
    sweeps: SweepWorld, world: RunWorld
) -> None:
    stalled, busy, fresh, ancient = await several(world, 4)
    for run_id in (stalled, fresh, ancient):
        await world.pool.execute("DELETE FROM jobs WHERE run_id = $1", run_id)
    for run_id in (stalled, busy):
        await age(world.pool, run_id, timedelta(minutes=3))
    await age(world.pool, ancient, timedelta(days=8))

    report = await sweeps.sweep(Part.STALLED_RUNS)

    assert report == Report(1, 1)
    assert await world.value("SELECT id FROM job_histories WHERE nudged_at IS NOT NULL") == stalled


async def test_stalled_sweep_takes_fifty_runs_at_most(sweeps: SweepWorld, world: RunWorld) -> None:
    await world.pool.execute(
        """INSERT INTO job_histories (workspace_id, name, definition, created_at)
           SELECT $1, 'r', '{}', clock_timestamp() - interval '1 h' FROM generate_series(1, 60)""",
        world.workspace_id,
    )

    first, second = await sweeps.sweep(Part.STALLED_RUNS), await sweeps.sweep(Part.STALLED_RUNS)

    assert first == Report(runs.STALLED_AT_ONCE, runs.STALLED_AT_ONCE)
    assert second.examined == runs.STALLED_AT_ONCE
