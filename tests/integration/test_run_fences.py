"""Fences of a run's rows: what a superseded workflow, a repeated call or a stale worker may not do."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowFailureError

from activities.results import EndedBatch, ResultActivities, SettleInput
from runlane import names
from runlane.db.acts import Act, StepOfRun
from runlane.db.admit import admit_chunk
from runlane.db.cancel import cancel_step
from runlane.db.dispatch import Batches, NextBatches, next_batches
from runlane.db.pool import Pool
from runlane.db.priorities import prioritise_step
from runlane.db.runs import Owner, load
from runlane.db.settle import Ending
from runlane.db.staging import Staged, stage
from runlane.errors import Conflict
from runlane.jobs import Priority
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.integration.run_world import RunWorld, graph
from tests.integration.scan_host import Done, ScanHost, enrol
from tests.waiting import until

pytestmark = pytest.mark.integration

NOW = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)
FIRST = Owner("first", NOW)
SECOND = Owner("second", NOW + timedelta(seconds=1))


@pytest_asyncio.fixture
async def world(
    stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> RunWorld:
    """A workspace without any process: the test makes each call itself."""
    client = await Client.connect(stack.urls.temporal_address)
    return RunWorld(pool, database.owner, client, Storage(StorageConfig(**settings.bucket)), workspace_id)


async def adopt(world: RunWorld, run_id: UUID, owner: Owner) -> list[UUID]:
    """Begins to drive a run; answers the batches that are to be settled first."""
    async with world.pool.acquire() as conn, conn.transaction():
        return (await load(conn, run_id, owner)).orphans


def call_of(
    world: RunWorld, run_id: UUID, owner: Owner, number: int = 1, *, room: int = 10, least: int = 1
) -> NextBatches:
    """A call for batches of the step `a`."""
    return NextBatches(
        run_id=run_id,
        workspace_id=world.workspace_id,
        workflow_id=names.run_workflow_id(run_id),
        workflow_run_id=owner.workflow_run_id,
        owner=owner.workflow_run_id,
        call_number=number,
        rooms={"a": room},
        least_batch=least,
    )


async def ask(world: RunWorld, call: NextBatches) -> Batches:
    """Makes one call in a transaction of its own."""
    async with world.pool.acquire() as conn, conn.transaction():
        return await next_batches(conn, call)


async def claimed_pair(world: RunWorld) -> tuple[ScanHost, UUID]:
    """A host with one batch of two jobs in progress, and the batch's dispatch."""
    run_id = await world.begin(graph("dnsprobe", a=[]), count=2)
    host = await enrol(world.pool, world.workspace_id)
    await adopt(world, run_id, FIRST)
    (dispatch,) = (await ask(world, call_of(world, run_id, FIRST, least=2))).dispatches
    answer = await host.claim(dispatch.dispatch_id, "first", slots=2)
    host.jobs.extend(answer.jobs)
    return host, dispatch.dispatch_id


async def is_waiting_for_a_lock(world: RunWorld) -> bool:
    """Whether a connection to this database waits for another one."""
    waiting: bool = await world.pool.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock')"
    )
    return waiting


async def test_late_call_of_a_superseded_workflow_takes_no_rows(world: RunWorld) -> None:
    run_id = await world.begin(graph(a=[]), count=2)
    await adopt(world, run_id, FIRST)
    await adopt(world, run_id, SECOND)

    late = await ask(world, call_of(world, run_id, FIRST))

    assert late == Batches(is_closed=False, is_superseded=True)
    assert await world.value("SELECT count(*) FROM dispatches") == 0
    assert await world.value("SELECT bool_and(dispatch_id IS NULL) FROM jobs")
    assert len((await ask(world, call_of(world, run_id, SECOND))).dispatches) == 2


@pytest.mark.parametrize("losses", [0, 2], ids=["any", "suspect"])
async def test_job_that_rests_is_not_dispatched_before_it_is_due(world: RunWorld, losses: int) -> None:
    run_id = await world.begin(graph(a=[]))
    await world.pool.execute(
        "UPDATE jobs SET losses = $1, due_at = clock_timestamp() + interval '1 hour'", losses
    )
    await adopt(world, run_id, FIRST)

    early = await ask(world, call_of(world, run_id, FIRST))
    await world.pool.execute("UPDATE jobs SET due_at = clock_timestamp()")
    due = await ask(world, call_of(world, run_id, FIRST, number=2))

    assert (early.dispatches, len(due.dispatches)) == ([], 1)
    assert early.steps[0].next_due_s is not None


async def test_dispatch_does_not_wait_for_an_act_that_may_wait_for_its_jobs(world: RunWorld) -> None:
    """A cancel holds the run and wants its jobs; dispatch holds jobs and wants to say why the run waits."""
    run_id = await world.begin(graph(a=[]), count=2)
    await adopt(world, run_id, FIRST)
    reason = "SELECT blocked_reason FROM job_histories"

    async with world.pool.acquire() as conn, conn.transaction():
        await conn.execute("SELECT FROM job_histories WHERE id = $1 FOR NO KEY UPDATE", run_id)
        meanwhile = await asyncio.wait_for(ask(world, call_of(world, run_id, FIRST)), 60)
    assert len(meanwhile.dispatches) == 2
    assert await world.value(reason) is None

    await ask(world, call_of(world, run_id, FIRST, 2))
    assert await world.value(reason) is not None


async def test_workflow_that_began_earlier_cannot_adopt_the_run_back(world: RunWorld) -> None:
    run_id = await world.begin(graph(a=[]))
    await adopt(world, run_id, SECOND)

    with pytest.raises(Conflict) as refused:
        await adopt(world, run_id, FIRST)

    assert refused.value.code == "run.superseded"
    assert await world.value("SELECT owner FROM job_histories") == "second"


async def test_adoption_waits_for_a_call_of_the_earlier_workflow_and_frees_what_it_took(
    world: RunWorld,
) -> None:
    run_id = await world.begin(graph(a=[]), count=2)
    await adopt(world, run_id, FIRST)

    async with world.pool.acquire() as conn, conn.transaction():
        taken = await next_batches(conn, call_of(world, run_id, FIRST))
        adopting = asyncio.create_task(adopt(world, run_id, SECOND))
        await until(lambda: is_waiting_for_a_lock(world))
        is_adopted_early = adopting.done()
    await adopting

    assert len(taken.dispatches) == 2
    assert not is_adopted_early
    assert await world.value("SELECT bool_and(closed_at IS NOT NULL) FROM dispatches")
    assert await world.value("SELECT bool_and(dispatch_id IS NULL) FROM jobs")


async def test_acts_on_a_run_do_not_wait_for_a_merge_that_writes_about_it(world: RunWorld) -> None:
    run_id = await world.begin(graph(a=[], b=["a"]), count=2)
    async with world.pool.acquire() as merging, merging.transaction():
        for table in ("job_histories", "run_steps"):  # held by rows that refer to them
            await merging.execute(f"SELECT FROM {table} FOR KEY SHARE")
        async with world.pool.acquire() as conn, conn.transaction():
            await conn.execute("SET LOCAL lock_timeout = '5s'")
            await load(conn, run_id, FIRST)
            await admit_chunk(conn, run_id, "a")
            prioritised = await prioritise_step(
                conn, StepOfRun(world.workspace_id, run_id, "a"), Priority.HIGH, Act()
            )
            cancelled = await cancel_step(conn, StepOfRun(world.workspace_id, run_id, "a"))

    assert (prioritised.jobs, cancelled.jobs) == (2, 2)


async def test_call_that_is_repeated_with_its_number_is_answered_the_same(world: RunWorld) -> None:
    run_id = await world.begin(graph(a=[]), count=5)
    await enrol(world.pool, world.workspace_id)
    await adopt(world, run_id, FIRST)

    first = await ask(world, call_of(world, run_id, FIRST, 1, room=2))
    again = await ask(world, call_of(world, run_id, FIRST, 1, room=2))
    following = await ask(world, call_of(world, run_id, FIRST, 2, room=2))

    assert again.dispatches == first.dispatches
    assert len(first.dispatches) == len(following.dispatches) == 2
    assert await world.value("SELECT count(*) FROM dispatches") == 4
    assert await world.value("SELECT count(*) FROM jobs WHERE dispatch_id IS NULL") == 1


async def test_calls_at_the_same_time_never_share_a_row(world: RunWorld) -> None:
    run_id = await world.begin(graph(a=[]), count=40)
    await enrol(world.pool, world.workspace_id)
    await adopt(world, run_id, FIRST)

    calls = [call_of(world, run_id, FIRST, number) for number in range(1, 7)]
    answers = await asyncio.gather(*(ask(world, call) for call in calls))

    sizes = [dispatch.size for answer in answers for dispatch in answer.dispatches]
    taken = await world.value("SELECT count(*) FROM jobs WHERE dispatch_id IS NOT NULL")
    assert sum(sizes) == taken
    assert await world.value(
        "SELECT bool_and(d.size = n) FROM dispatches d JOIN (SELECT dispatch_id, count(*) n"
        " FROM jobs GROUP BY 1) j ON j.dispatch_id = d.id"
    )


async def test_result_of_another_life_of_the_worker_is_refused(world: RunWorld) -> None:
    host, dispatch_id = await claimed_pair(world)
    reborn = replace(host, incarnation=uuid4())
    said = [(job, Done(records=[{"name": "ghost.h1.lab.test"}])) for job in host.jobs]

    staged = await reborn.stage(await reborn.delivery(dispatch_id, said))

    assert staged == Staged([], [job.job_id for job in host.jobs])
    assert await world.value("SELECT count(*) FROM job_results") == 0


async def test_delivery_that_is_repeated_is_answered_like_the_first(world: RunWorld) -> None:
    host, dispatch_id = await claimed_pair(world)
    delivery = await host.delivery(dispatch_id, [(job, Done(records=[{}])) for job in host.jobs])

    first = await host.stage(delivery)
    again = await host.stage(delivery)

    assert first == again == Staged([job.job_id for job in host.jobs], [])
    assert await world.value("SELECT count(*) FROM job_results") == 1


async def test_member_staged_while_its_batch_is_settled_as_lost_is_settled_again(world: RunWorld) -> None:
    host, dispatch_id = await claimed_pair(world)
    staged, silent = host.jobs
    delivery = await host.delivery(
        dispatch_id, [(staged, Done(records=[{"name": f"app.{staged.spec['host']}"}]))]
    )
    results = ResultActivities(world.pool, world.storage)
    batch = EndedBatch(str(dispatch_id), Ending.LOST)

    async with world.pool.acquire() as conn, conn.transaction():
        await stage(conn, delivery)
        settling = asyncio.create_task(results.settle_batches(SettleInput([batch])))
        await until(lambda: is_waiting_for_a_lock(world))
    first = await settling
    second = await results.settle_batches(SettleInput(first.again))

    assert (first.again, second.again) == ([batch], [])
    rows = await world.pool.fetch("SELECT job_id, outcome FROM job_attempts")
    assert {row["job_id"]: row["outcome"] for row in rows} == {
        staged.job_id: "completed",
        silent.job_id: "lost",
    }
    assert f"app.{staged.spec['host']}" in await world.assets()


async def test_run_cancelled_in_temporal_before_its_first_read_is_cancelled(
    world: RunWorld,
) -> None:
    run_id = await world.start(graph(a=[]), count=2)
    await world.handle(run_id).cancel()

    async with world.workers():
        with pytest.raises(WorkflowFailureError):
            await world.end_of(run_id)

    assert await world.value("SELECT status FROM job_histories") == "cancelled"
    assert await world.count_jobs(run_id) == {"cancelled": 2}
