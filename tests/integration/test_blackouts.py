"""Blackout windows: what they cover waits until they close, and says so; removed, it goes on at once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import pytest_asyncio

from lanes.blackouts import interrupt_all
from runlane import names
from runlane.blackouts import Once, Policy
from runlane.db import interruptions
from runlane.db.acts import Act
from runlane.db.blackouts import NewWindow, add_window, hold_dispatched, remove_window
from runlane.db.dispatch import Batches, NextBatches, next_batches
from runlane.db.groups import Members, add_members, create_group, remove_members
from runlane.db.pool import Pool
from runlane.db.views.why import why_job
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, assert_problem, open_api
from tests.integration.dispatched_run import OWNER, DispatchedRun, Shape, dispatched_run
from tests.integration.scan_host import Done, enrol
from tests.waiting import until

pytestmark = pytest.mark.integration

NOW = datetime.now(UTC)
OPEN = Once(NOW - timedelta(hours=1), NOW.replace(microsecond=0) + timedelta(days=2))


async def add(pool: Pool, workspace_id: UUID, target_id: UUID | None = None, when: Once = OPEN) -> UUID:
    async with pool.acquire() as conn, conn.transaction():
        row = await add_window(conn, NewWindow(workspace_id, when, target_id), Act(name="me", reason="sale"))
    return UUID(str(row["id"]))


async def look(pool: Pool, workspace_id: UUID, run: DispatchedRun, number: int) -> Batches:
    """The run's workflow asks for batches."""
    call = NextBatches(
        run_id=run.run_id,
        workspace_id=workspace_id,
        workflow_id=names.run_workflow_id(run.run_id),
        workflow_run_id=OWNER.workflow_run_id,
        owner=OWNER.workflow_run_id,
        call_number=number,
        rooms={"only": 10},
    )
    async with pool.acquire() as conn, conn.transaction():
        return await next_batches(conn, call)


async def test_window_holds_what_was_dispatched_until_it_is_removed(pool: Pool, workspace_id: UUID) -> None:
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=2))
    host = await enrol(pool, workspace_id)
    window_id = await add(pool, workspace_id)

    assert (await host.claim(run.dispatches[0], "key", 10)).jobs == ()
    held = await look(pool, workspace_id, run, 1_000_001)
    reason = await pool.fetchval("SELECT blocked_reason FROM job_histories")
    async with pool.acquire() as conn:
        why = await why_job(conn, workspace_id, await pool.fetchval("SELECT min(id::text)::uuid FROM jobs"))

    assert held.dispatches == []
    assert held.steps[0].is_live
    assert (held.steps[0].next_due_s or 0) > timedelta(days=1).total_seconds()
    text = f"blackout until {OPEN.ends_at:%Y-%m-%d %H:%M:%S} UTC: sale"
    assert (reason, why.text) == (text, text)

    async with pool.acquire() as conn, conn.transaction():
        await remove_window(conn, workspace_id, window_id, Act())
    again = await look(pool, workspace_id, run, 1_000_002)

    assert sum(batch.size for batch in again.dispatches) == 2
    assert await pool.fetchval("SELECT blocked_reason FROM job_histories") is None
    assert len((await host.claim(again.dispatches[0].dispatch_id, "other", 10)).jobs) > 0


async def test_window_of_one_target_or_of_another_time_lets_others_go_on(
    pool: Pool, workspace_id: UUID
) -> None:
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=2))
    host = await enrol(pool, workspace_id)
    await add(pool, workspace_id, await pool.fetchval("SELECT id FROM targets WHERE value = 'a.test'"))
    await add(pool, workspace_id, when=Once(OPEN.ends_at, OPEN.ends_at + timedelta(days=1)))

    answer = await host.claim(run.dispatches[0], "key", 10)

    assert [job.spec["host"] for job in answer.jobs] == ["b.test"]
    assert await pool.fetchval("SELECT due_at FROM jobs WHERE dispatch_id IS NULL") == OPEN.ends_at


@pytest.mark.parametrize("about", ["group", "rule", "tag"])
async def test_window_of_a_group_or_tag_holds_what_is_in_it_and_frees_it(
    pool: Pool, workspace_id: UUID, about: str
) -> None:
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=2))
    host = await enrol(pool, workspace_id)
    await pool.execute("UPDATE targets SET tags = '{shop,eu}' WHERE value = 'a.test'")
    async with pool.acquire() as conn, conn.transaction():
        tags = ["shop", "eu"] if about == "rule" else []
        group = await create_group(conn, workspace_id, "shops", tags)
        if about == "group":
            members = Members(values=["a.test"])
            await add_members(conn, workspace_id, UUID(str(group["id"])), members)
        wanted = NewWindow(
            workspace_id,
            OPEN,
            group=None if about == "tag" else "shops",
            tag="shop" if about == "tag" else None,
        )
        row = await add_window(conn, wanted, Act(name="me"))

    answer = await host.claim(run.dispatches[0], "key", 10)
    held = await pool.fetchval("SELECT due_at FROM jobs WHERE dispatch_id IS NULL")
    async with pool.acquire() as conn, conn.transaction():
        await remove_window(conn, workspace_id, UUID(str(row["id"])), Act())
    again = await look(pool, workspace_id, run, 1_000_001)

    assert [job.spec["host"] for job in answer.jobs] == ["b.test"]
    assert held == OPEN.ends_at
    assert sum(batch.size for batch in again.dispatches) == 1


async def test_job_that_is_put_off_while_its_window_is_removed_is_due_at_once(
    pool: Pool, workspace_id: UUID
) -> None:
    """A job waited for a window that was gone: who removed it did not see what was just being put off."""
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=2))
    window_id = await add(pool, workspace_id)

    async def remove() -> None:
        async with pool.acquire() as conn, conn.transaction():
            await remove_window(conn, workspace_id, window_id, Act())

    async with pool.acquire() as conn, conn.transaction():
        await hold_dispatched(conn, workspace_id, run.dispatches[0])
        removing = asyncio.create_task(remove())
        await until(lambda: removing.done() or is_waited_for(pool))
    await removing
    again = await look(pool, workspace_id, run, 1_000_001)

    assert sum(batch.size for batch in again.dispatches) == 2


async def is_waited_for(pool: Pool) -> bool:
    """Whether somebody waits for a row that somebody else holds."""
    return bool(
        await pool.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    )


async def test_job_whose_target_left_the_group_is_due_when_the_window_is_removed(
    pool: Pool, workspace_id: UUID
) -> None:
    """It waited for the end of a window that was gone."""
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=2))
    members = Members(values=["a.test", "b.test"])
    async with pool.acquire() as conn, conn.transaction():
        group_id = UUID(str((await create_group(conn, workspace_id, "shops", []))["id"]))
        await add_members(conn, workspace_id, group_id, members)
        row = await add_window(conn, NewWindow(workspace_id, OPEN, group="shops"), Act())
        await hold_dispatched(conn, workspace_id, run.dispatches[0])

    async with pool.acquire() as conn, conn.transaction():
        await remove_members(conn, workspace_id, group_id, members)
        await remove_window(conn, workspace_id, UUID(str(row["id"])), Act())
    again = await look(pool, workspace_id, run, 1_000_001)

    assert sum(batch.size for batch in again.dispatches) == 2


@pytest.mark.parametrize("shape", ["stream", "many"])
async def test_window_that_cancels_gives_back_what_runs_uncharged_until_it_closes(
    pool: Pool, workspace_id: UUID, shape: str
) -> None:
    await pool.execute("UPDATE tools SET shape = $1 WHERE id = 'noop'", shape)
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=3))
    host = await enrol(pool, workspace_id)
    jobs = {str(job.spec["host"]): job for job in (await host.claim(run.dispatches[0], "key", 10)).jobs}
    await host.stage(await host.delivery(run.dispatches[0], [(jobs["c.test"], Done())]))
    await pool.execute("UPDATE targets SET tags = '{shop}' WHERE value <> 'b.test'")
    async with pool.acquire() as conn, conn.transaction():
        wanted = NewWindow(workspace_id, OPEN, tag="shop", policy=Policy.CANCEL)
        await add_window(conn, wanted, Act(name="me"))

    given_back = [await interrupt_all(pool), await interrupt_all(pool)]
    late = await host.stage(await host.delivery(run.dispatches[0], [(jobs["a.test"], Done())]))

    # one program for all would go on with all: what it does for others is given back too, and is due at once
    assert given_back == [1 if shape == "stream" else 2, 0]
    assert late.accepted == []
    row = await pool.fetchrow("SELECT * FROM jobs WHERE id = $1", jobs["a.test"].job_id)
    assert row is not None
    assert (row["status"], row["due_at"], row["dispatch_id"], row["worker_id"]) == (
        "pending", OPEN.ends_at, None, None,
    )  # fmt: skip
    assert (row["attempt"], row["failures"], row["free_attempts"]) == (1, 0, 0)
    attempt = await pool.fetchrow("SELECT * FROM job_attempts WHERE job_id = $1", jobs["a.test"].job_id)
    assert attempt is not None
    assert (attempt["outcome"], attempt["charged"]) == ("released", False)
    statuses = {each["id"]: each["status"] for each in await pool.fetch("SELECT id, status FROM jobs")}
    assert statuses[jobs["c.test"].job_id] == "in_progress"
    assert statuses[jobs["b.test"].job_id] == ("in_progress" if shape == "stream" else "pending")
    is_due = "SELECT due_at <= clock_timestamp() FROM jobs WHERE id = $1"
    assert await pool.fetchval(is_due, jobs["b.test"].job_id)
    released = await pool.fetchrow("SELECT attributes FROM outbox WHERE type = 'job.released'")
    assert released is not None
    assert released["attributes"]["cause"] == "blackout"


async def test_second_window_does_not_fail_when_the_first_gave_back_more_than_a_chunk(
    pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruptions, "CHUNK", 1)
    await pool.execute("UPDATE tools SET shape = 'many' WHERE id = 'noop'")
    run = await dispatched_run(pool, workspace_id, Shape(batches=2, jobs_each=2))
    host = await enrol(pool, workspace_id)
    for dispatch in run.dispatches:
        await host.claim(dispatch, f"key-{dispatch}", 10)
    async with pool.acquire() as conn, conn.transaction():
        await add_window(conn, NewWindow(workspace_id, OPEN, policy=Policy.CANCEL), Act())
        await add_window(conn, NewWindow(workspace_id, OPEN, tag="shop", policy=Policy.CANCEL), Act())

    # a batch that one program does is given back as a whole, so that a chunk may be larger than was asked for
    assert await interrupt_all(pool) == 4
    assert await pool.fetchval("SELECT count(*) FROM jobs WHERE status = 'pending'") == 4


@pytest.mark.parametrize("policy", [Policy.FINISH, Policy.CANCEL])
async def test_only_an_open_window_that_cancels_interrupts(
    pool: Pool, workspace_id: UUID, policy: Policy
) -> None:
    run = await dispatched_run(pool, workspace_id)
    host = await enrol(pool, workspace_id)
    await host.claim(run.dispatches[0], "key", 10)
    later = Once(OPEN.ends_at, OPEN.ends_at + timedelta(days=1))
    when = OPEN if policy is Policy.FINISH else later
    async with pool.acquire() as conn, conn.transaction():
        await add_window(conn, NewWindow(workspace_id, when, policy=policy), Act())

    assert await interrupt_all(pool) == 0
    assert await pool.fetchval("SELECT status FROM jobs") == "in_progress"


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ApiWorld]:
    async with open_api(settings.model_copy(update={"temporal_address": "127.0.0.1:1"}), pool) as opened:
        yield opened


async def test_windows_over_http(world: ApiWorld, pool: Pool) -> None:
    weekly = {"weekdays": [1, 5], "begins": "22:00", "ends": "06:00", "time_zone": "Europe/Berlin"}
    async with world.caller("ours") as ours, world.caller("theirs") as theirs:
        made = await ours.http.post("/v1/blackouts", json={"weekly": weekly, "reason": "night"})
        both = {"weekly": weekly, "starts_at": "2026-12-24T12:00:00Z", "ends_at": "2026-12-25T12:00:00Z"}
        refused = await ours.http.post("/v1/blackouts", json=both)
        listed = (await ours.http.get("/v1/blackouts")).json()["items"]
        others = (await theirs.http.get("/v1/blackouts")).json()["items"]
        path = f"/v1/blackouts/{made.json()['id']}/remove"
        foreign = await theirs.http.post(path)
        removed = await ours.http.post(path)
        once = {"starts_at": "2026-12-24T12:00:00Z", "ends_at": "2026-12-25T12:00:00Z"}
        target = await world.add_target(ours)
        two = await ours.http.post("/v1/blackouts", json=once | {"target_id": target, "tag": "shop"})
        unknown = await ours.http.post("/v1/blackouts", json=once | {"group": "nobody"})
        tag = (await ours.http.post("/v1/blackouts", json=once | {"tag": "x", "policy": "cancel"})).json()

    assert_problem(two, 422, "blackout.about")
    assert_problem(unknown, 404, "group.not_found")
    assert (tag["tag"], tag["policy"], made.json()["policy"]) == ("x", "cancel", "finish")
    assert made.status_code == 201
    assert (made.json()["weekdays"], made.json()["begins"], made.json()["reason"]) == (
        [1, 5],
        "22:00:00",
        "night",
    )
    assert [row["id"] for row in listed] == [made.json()["id"]]
    assert others == []
    assert_problem(refused, 422, "blackout.when")
    assert_problem(foreign, 404, "blackout.not_found")
    assert removed.status_code == 200
    acts = await pool.fetch("SELECT data ->> 'action' AS action FROM outbox WHERE data ? 'action'")
    assert sorted(row["action"] for row in acts) == ["blackout.remove", "blackout.set", "blackout.set"]
