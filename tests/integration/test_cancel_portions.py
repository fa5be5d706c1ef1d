"""A cancel of many jobs of a run or step: final at once, the jobs follow in portions, each with one event."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.client import Client

from activities.verdicts import events_of
from lanes.operations import carry_on
from runlane import names
from runlane.db import operation_rows, outbox, settle
from runlane.db.acts import Act, StepOfRun
from runlane.db.cancel import CancelResult, cancel_run, cancel_step
from runlane.db.claims import ClaimRequest, claim
from runlane.db.dispatch import Batches, NextBatches, next_batches
from runlane.db.operations import abort, advance
from runlane.db.pool import Pool
from runlane.db.views.why import why_job
from runlane.errors import Conflict
from runlane.events import Actor
from runlane.jobs import Outcome
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from runlane.waiting import Reason
from tests.conftest import Database
from tests.integration.dispatched_run import OWNER, Shape, dispatched_run
from tests.integration.run_world import RunWorld, graph
from tests.integration.scan_host import enrol
from tests.integration.test_cancel_many import run_of

pytestmark = pytest.mark.integration

CHUNK: Final = 2
ACT: Final = Act(Actor("key", "api_key"), "ops", "wrong scope")
TOLD: Final = """
SELECT count(*), count(DISTINCT subject), bool_and(attributes ->> 'cause' = $1),
       bool_and(attributes ->> 'actorid' = 'key'), bool_and(data ->> 'reason' = 'wrong scope')
FROM outbox WHERE type = 'job.cancelled'
"""
STATES: Final = "SELECT status, count(*) FROM jobs GROUP BY status"
PENDING_IN: Final = "SELECT dispatch_id FROM jobs WHERE status = 'pending' LIMIT 1"


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_rows, "CHUNK", CHUNK)


@pytest_asyncio.fixture
async def world(
    stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> AsyncIterator[RunWorld]:
    client = await Client.connect(stack.urls.temporal_address)
    storage = Storage(StorageConfig(**settings.bucket))
    made = RunWorld(pool, database.owner, client, storage, workspace_id)
    async with made.workers():
        yield made


async def cancel(pool: Pool, workspace_id: UUID, run_id: UUID) -> CancelResult:
    """Cancels a run, as a request does."""
    async with pool.acquire() as conn, conn.transaction():
        return await cancel_run(conn, workspace_id, run_id, ACT)


async def states(pool: Pool) -> dict[str, int]:
    """Jobs by status."""
    return {row[0]: row[1] for row in await pool.fetch(STATES)}


async def carry_on_to_the_end(pool: Pool) -> int:
    """Does what the lanes do; answers how many portions that took."""
    return await carry_on(pool, asyncio.Event())


async def dispatch(pool: Pool, workspace_id: UUID, run_id: UUID) -> Batches:
    """Asks for batches, as a workflow does that has not heard of the cancel."""
    workflow_id = names.run_workflow_id(run_id)
    owner = OWNER.workflow_run_id
    call = NextBatches(run_id, workspace_id, workflow_id, owner, owner, 1_000_000, {"only": 4})
    async with pool.acquire() as conn, conn.transaction():
        return await next_batches(conn, call)


async def test_large_run_is_cancelled_at_once_and_each_job_gets_one_event_whoever_dies(
    pool: Pool, workspace_id: UUID
) -> None:
    run_id = await run_of(pool, workspace_id, 7)

    first = await cancel(pool, workspace_id, run_id)
    again = await cancel(pool, workspace_id, run_id)

    assert (first.jobs, again.jobs) == (7, 0)
    assert await pool.fetchval("SELECT status FROM job_histories") == "cancelled"
    assert await states(pool) == {"cancelled": CHUNK, "pending": 7 - CHUNK}
    async with pool.acquire() as conn:  # whoever carries it on dies before the commit
        dying = conn.transaction()
        await dying.start()
        await advance(conn)
        await dying.rollback()
    await asyncio.gather(*(carry_on_to_the_end(pool) for _ in range(2)))
    assert await states(pool) == {"cancelled": 7}
    assert tuple(await pool.fetchrow(TOLD, "run") or ()) == (7, 7, True, True, True)
    assert await pool.fetchval("SELECT data -> 'jobs' FROM outbox WHERE type = 'operator.acted'") == 7
    row = await pool.fetchrow(
        "SELECT count(*), min(action), bool_and(finished_at IS NOT NULL) FROM operations"
    )
    assert tuple(row or ()) == (1, "run.cancel", True)


async def test_run_of_few_jobs_is_cancelled_in_one_transaction(pool: Pool, workspace_id: UUID) -> None:
    run_id = await run_of(pool, workspace_id, CHUNK)

    done = await cancel(pool, workspace_id, run_id)

    assert (done.jobs, await states(pool)) == (CHUNK, {"cancelled": CHUNK})
    assert await pool.fetchval("SELECT count(*) FROM operations") == 0


async def test_job_that_waits_for_its_portion_is_claimed_by_nobody_and_what_runs_is_ended_first(
    pool: Pool, workspace_id: UUID
) -> None:
    run = await dispatched_run(pool, workspace_id, Shape(batches=3, jobs_each=2))
    host = await enrol(pool, workspace_id)
    last = run.dispatches[-1]
    assert (await host.claim(last, "key", 1)).jobs

    await cancel(pool, workspace_id, run.run_id)

    assert await pool.fetchval("SELECT status FROM jobs WHERE dispatch_id = $1", last) == "cancelled"
    answers = [await host.claim(each, f"late/{each}", 1) for each in run.dispatches]
    assert not any(answer.jobs for answer in answers)
    assert (await dispatch(pool, workspace_id, run.run_id)).is_closed
    waiting = await pool.fetchval("SELECT id FROM jobs WHERE status = 'pending' LIMIT 1")
    async with pool.acquire() as conn:
        why = (await why_job(conn, workspace_id, waiting)).explanation
    assert why is not None
    assert why.reason is Reason.CANCELLED
    await carry_on_to_the_end(pool)
    assert await states(pool) == {"cancelled": 6}


async def test_step_that_is_being_cancelled_is_neither_dispatched_nor_claimed(
    pool: Pool, workspace_id: UUID
) -> None:
    run = await dispatched_run(pool, workspace_id, Shape(batches=3, jobs_each=2))
    host = await enrol(pool, workspace_id)
    await pool.execute("UPDATE jobs SET dispatch_id = NULL WHERE dispatch_id = $1", run.dispatches[0])

    async with pool.acquire() as conn, conn.transaction():
        done = await cancel_step(conn, StepOfRun(workspace_id, run.run_id, "only"), ACT)

    batches = await dispatch(pool, workspace_id, run.run_id)
    answers = [await host.claim(each, f"late/{each}", 1) for each in run.dispatches]
    assert done.jobs == 6
    assert (batches.is_closed, batches.dispatches, [step.is_live for step in batches.steps]) == (
        False,
        [],
        [False],
    )
    assert not any(answer.jobs for answer in answers)
    await carry_on_to_the_end(pool)
    assert await states(pool) == {"cancelled": 6}
    assert tuple(await pool.fetchrow(TOLD, "step") or ()) == (6, 6, True, True, True)


async def test_job_that_was_claimed_between_two_portions_is_cancelled_by_a_later_one(
    pool: Pool, workspace_id: UUID
) -> None:
    run = await dispatched_run(pool, workspace_id, Shape(batches=4))
    host = await enrol(pool, workspace_id)

    async with pool.acquire() as conn, conn.transaction(isolation="repeatable_read"):
        await conn.execute(
            "SELECT FROM jobs"
        )  # a claim that has read, before the cancel, that the run is open
        await cancel(pool, workspace_id, run.run_id)
        dispatch_id = await pool.fetchval(PENDING_IN)
        request = ClaimRequest(dispatch_id, "key", host.worker_id, host.incarnation, 1)
        (job,) = (await claim(conn, request)).jobs
    assert await states(pool) == {"cancelled": CHUNK, "in_progress": 1, "pending": 1}

    await carry_on_to_the_end(pool)

    assert await states(pool) == {"cancelled": 4}
    attempts = await pool.fetch("SELECT job_id, outcome FROM job_attempts")
    assert [tuple(row) for row in attempts] == [(job.job_id, "cancelled")]
    assert tuple(await pool.fetchrow(TOLD, "run") or ()) == (4, 4, True, True, True)


async def test_cancel_of_many_waits_for_no_merge_and_the_outcome_that_it_brings_stays(
    pool: Pool, workspace_id: UUID
) -> None:
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=4))
    host = await enrol(pool, workspace_id)
    await host.claim(run.dispatches[0], "key", 4)

    async with pool.acquire() as conn, conn.transaction():
        attempts = await settle.lock(conn, (await settle.attempts_of(conn, run.dispatches))[:CHUNK])
        await cancel(pool, workspace_id, run.run_id)
        decisions = [settle.decide(attempt, Outcome.FATAL, "no") for attempt in attempts]
        await settle.write(conn, decisions)
        await outbox.insert(conn, events_of(decisions, datetime.now(UTC)))
    await carry_on_to_the_end(pool)

    assert await states(pool) == {"cancelled": 4 - CHUNK, "failed": CHUNK}
    assert tuple(await pool.fetchrow(TOLD, "run") or ()) == (4 - CHUNK, 4 - CHUNK, True, True, True)


async def test_cancel_of_a_run_cannot_be_aborted(pool: Pool, workspace_id: UUID) -> None:
    run_id = await run_of(pool, workspace_id, 5)
    await cancel(pool, workspace_id, run_id)
    operation_id = await pool.fetchval("SELECT id FROM operations")

    with pytest.raises(Conflict) as refusal:
        async with pool.acquire() as conn, conn.transaction():
            await abort(conn, workspace_id, operation_id, Act())

    assert refusal.value.code == "operation.final"
    await carry_on_to_the_end(pool)
    assert await states(pool) == {"cancelled": 5}


async def test_run_closes_after_the_last_portion_of_its_cancelled_step(world: RunWorld) -> None:
    run_id = await world.start(graph(a=[], b=["a"]), count=7)
    await world.until("SELECT blocked_reason IS NOT NULL FROM job_histories")  # nobody serves it
    async with world.pool.acquire() as conn, conn.transaction():
        done = await cancel_step(conn, StepOfRun(world.workspace_id, run_id, "a"), ACT)
    await world.relay()
    await world.until("SELECT status = 'skipped' FROM run_steps WHERE step_id = 'b'")
    is_open = await world.value("SELECT closed_at IS NULL FROM job_histories")

    portions = await carry_on_to_the_end(world.pool)
    await world.relay()

    assert (done.jobs, is_open, portions) == (7, True, 3)
    assert await world.end_of(run_id) == "failed"
    assert await world.count_jobs(run_id) == {"cancelled": 7}
