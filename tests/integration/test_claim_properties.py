"""What holds for any mix of jobs, workers, networks, shared flags, pauses and limits, on the real database.

A plain model reads the rows and says what each claim has to answer; racing claims must stay inside of it.
"""

import asyncio
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runlane import names
from runlane.db.dispatch import NextBatches, next_batches
from runlane.db.pool import Pool
from tests.integration.claim_scene import SCENES, Scene, ScenePlan, limit_room, live_networks, shared_room

pytestmark = pytest.mark.integration

ON_DATABASE = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CLAIMS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 6), st.booleans()), min_size=1, max_size=8
)
"""Worker, dispatch, slots, and whether another worker claims the same at the same time."""


@ON_DATABASE
@given(plan=SCENES, size=st.integers(1, 6), claims=CLAIMS)
async def test_claim_gives_the_first_jobs_that_may_be_given_and_no_more(
    pool: Pool, plan: ScenePlan, size: int, claims: list[tuple[int, int, int, bool]]
) -> None:
    scene = Scene(pool, plan)
    await scene.set_up()
    dispatches = await scene.dispatch_all(size)
    given_out: set[tuple[UUID, int]] = set()

    for worker, dispatch, slots, is_raced in claims:
        one, two = worker % len(scene.workers), (worker + 1) % len(scene.workers)
        dispatch_id = dispatches[dispatch % len(dispatches)]
        home = scene.workspaces.index(
            await pool.fetchval("SELECT workspace_id FROM dispatches WHERE id = $1", dispatch_id)
        )
        expected = await scene.expected(one, dispatch_id, slots)
        bounds = [await scene.raced(racer, dispatch_id, slots) for racer in (one, two)]
        key = str(uuid4())
        racers = [(one, key), (two, str(uuid4()))] if is_raced else [(one, key)]
        answers = await asyncio.gather(
            *(scene.claim(racer, dispatch_id, slots, its_key) for racer, its_key in racers)
        )
        again = await scene.claim(one, dispatch_id, slots, key)
        scene.count(home, answers)

        got = [[job.job_id for job in answer.jobs] for answer in answers]
        assert again.jobs == answers[0].jobs
        if not is_raced:
            assert got == [expected]
        else:
            assert all(bound.allows(answer) for bound, answer in zip(bounds, got, strict=True))
            assert not set(got[0]) & set(got[1])
            # one that may take nothing gives the batch up, perhaps before the other one comes
            assert not all(bound.most for bound in bounds) or any(got)
        assert await scene.room(home) >= 0
        taken = {(job.job_id, job.attempt) for answer in answers for job in answer.jobs}
        assert not taken & given_out
        given_out |= taken


@ON_DATABASE
@given(plan=SCENES, room=st.integers(1, 6), least=st.integers(1, 4))
async def test_dispatch_takes_the_first_jobs_that_somebody_may_take_and_no_more_than_limits_allow(
    pool: Pool, plan: ScenePlan, room: int, least: int
) -> None:
    scene = Scene(pool, plan)
    await scene.set_up()
    for home, run_id in enumerate(scene.runs):
        live = await live_networks(scene, home)
        waiting = await pool.fetch(
            """SELECT id, network_id, priority FROM jobs WHERE run_id = $1
               ORDER BY priority, created_at, id""",
            run_id,
        )
        served = [row["id"] for row in waiting if not live or row["network_id"] in live]
        call = NextBatches(
            run_id=run_id,
            workspace_id=scene.workspaces[home],
            workflow_id=names.run_workflow_id(run_id),
            workflow_run_id=f"workflow of {run_id}",
            owner="me",
            call_number=1,
            rooms={"a": room},
            least_batch=least,
        )

        async with pool.acquire() as conn, conn.transaction():
            asked = await next_batches(conn, call)
        async with pool.acquire() as conn, conn.transaction():
            repeated = await next_batches(conn, call)

        rows = await pool.fetch(
            """SELECT j.id, j.network_id, j.priority, d.id AS dispatch_id, d.task_queue
               FROM jobs j JOIN dispatches d ON d.id = j.dispatch_id
               WHERE j.run_id = $1 ORDER BY j.priority, j.created_at, j.id""",
            run_id,
        )
        assert repeated.dispatches == asked.dispatches
        assert len(asked.dispatches) <= room
        if plan.is_paused[home]:
            assert not rows
            continue
        assert [row["id"] for row in rows] == served[: len(rows)]
        for dispatch in asked.dispatches:
            members = [row for row in rows if row["dispatch_id"] == dispatch.dispatch_id]
            assert len({(row["network_id"], row["priority"]) for row in members}) == 1
            assert len(members) == dispatch.size
        if live:
            assert len(rows) <= max(0, await limit_room(scene, home))
        if served and await limit_room(scene, home) > 0 and await shared_room(scene, home):
            assert rows
        assert plan.allow_shared[home] or not any(
            row["task_queue"] == names.shared_scan_queue("probe") for row in rows
        )
