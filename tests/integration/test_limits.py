"""Limits on jobs in progress and on claims a minute, at dispatch and at claim."""

import asyncio
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from runlane.db import operation_rows
from runlane.db.acts import Act
from runlane.db.cancel import cancel_run
from runlane.db.limits import uses_of
from runlane.db.pool import Pool
from runlane.db.settle import Ending
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.lost_jobs import LostJobs
from tests.integration.scan_host import enrol

pytestmark = pytest.mark.integration


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a workspace, of a tool set, or of both."""

    workspace_id: UUID | None = None
    toolset: str | None = None
    cap: int | None = None
    rate: int | None = None

    async def set(self, pool: Pool) -> None:
        """Writes it."""
        await pool.execute(
            "INSERT INTO limits (workspace_id, toolset, max_in_progress, per_minute) VALUES ($1, $2, $3, $4)",
            self.workspace_id,
            self.toolset,
            self.cap,
            self.rate,
        )


async def begin(pool: Pool, workspace_id: UUID, settings: Settings, shape: Shape) -> LostJobs:
    """A run that is dispatched as far as its limits allow."""
    run = await dispatched_run(pool, workspace_id, shape)
    return LostJobs(pool, Storage(StorageConfig(**settings.bucket)), workspace_id, run.run_id)


async def out(pool: Pool) -> list[UUID]:
    """Batches with jobs that wait for a claim."""
    rows = await pool.fetch(
        "SELECT DISTINCT dispatch_id FROM jobs WHERE status = 'pending' AND dispatch_id IS NOT NULL"
    )
    return [row["dispatch_id"] for row in rows]


@pytest.mark.parametrize(
    ("of_workspace", "toolset"),
    [(True, None), (True, "probe"), (False, "probe")],
    ids=["ws", "both", "tools"],
)
async def test_no_more_jobs_are_dispatched_than_a_cap_has_room_for_and_the_next_follow(
    pool: Pool, workspace_id: UUID, settings: Settings, *, of_workspace: bool, toolset: str | None
) -> None:
    await Limit(workspace_id if of_workspace else None, toolset, cap=3).set(pool)
    host = await enrol(pool, workspace_id)
    world = await begin(pool, workspace_id, settings, Shape(batches=10))

    first = await out(pool)
    taken = [job for dispatch_id in first for job in await world.take(host, dispatch_id)]
    more = await world.ask()
    await host.stage(await host.delivery(first[0], []))
    await world.settle(first[:1], Ending.RELEASED)
    after = await world.next()

    assert len(first) == len(taken) == 3
    assert more.dispatches == []
    assert more.steps[0].has_more is False
    assert more.steps[0].next_due_s is not None
    assert len(after) == 1


async def test_two_claims_at_once_never_take_more_than_the_cap_between_them(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    hosts = [await enrol(pool, workspace_id) for _ in range(6)]
    world = await begin(pool, workspace_id, settings, Shape(batches=6, jobs_each=4))
    await Limit(workspace_id, cap=5).set(pool)  # once all of them are out already

    answers = await asyncio.gather(
        *(world.take(host, i) for host, i in zip(hosts, await out(pool), strict=True))
    )

    assert sum(len(jobs) for jobs in answers) == 5
    assert await pool.fetchval("SELECT count(*) FROM jobs WHERE status = 'in_progress'") == 5
    assert await pool.fetchval("SELECT max(free_attempts) + max(failures) FROM jobs") == 0


async def test_claims_of_the_last_minute_count_against_a_rate_even_when_they_have_ended(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    await Limit(workspace_id, rate=4).set(pool)
    host = await enrol(pool, workspace_id)
    world = await begin(pool, workspace_id, settings, Shape(batches=8))
    first = await out(pool)
    for dispatch_id in first:
        await world.complete(host, dispatch_id)

    held = await world.ask()
    await pool.execute("UPDATE limit_claims SET claimed_at = claimed_at - interval '61 seconds'")
    later = await world.ask()

    assert len(first) == 4
    assert held.dispatches == []
    assert 1 <= (held.steps[0].next_due_s or 0) <= 60
    assert len(later.dispatches) == 4


async def test_claim_that_is_repeated_is_counted_and_answered_once(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    await Limit(workspace_id, cap=4).set(pool)
    host = await enrol(pool, workspace_id)
    await begin(pool, workspace_id, settings, Shape(jobs_each=2))
    dispatch_id = (await out(pool))[0]
    key = str(uuid4())

    first, again = await asyncio.gather(*(host.claim(dispatch_id, key, 10) for _ in range(2)))

    assert first == again
    assert len(first.jobs) == await pool.fetchval("SELECT count(*) FROM limit_claims")


async def test_jobs_on_a_queue_that_nobody_serves_keep_no_room_from_others(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    world = await begin(pool, workspace_id, settings, Shape(batches=2))  # out, and nobody there
    await Limit(toolset="probe", cap=2).set(pool)
    other_id = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('other') RETURNING id")
    await enrol(pool, other_id)

    other = await dispatched_run(pool, other_id, Shape(batches=2))

    assert world.run_id != other.run_id
    assert len(other.dispatches) == 2


async def test_run_that_waits_under_a_limit_has_its_turn_before_the_one_that_held_the_room(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    await Limit(workspace_id, cap=1).set(pool)
    host = await enrol(pool, workspace_id)
    greedy = await begin(pool, workspace_id, settings, Shape(batches=5))
    (held,) = await out(pool)
    await pool.execute("UPDATE targets SET value = 'x' || value")
    waiting = await begin(pool, workspace_id, settings, Shape(batches=5))

    none = await waiting.ask()
    text = await pool.fetchval("SELECT blocked_reason FROM job_histories WHERE id = $1", waiting.run_id)
    await greedy.complete(host, held)
    yielded = await greedy.ask()
    called = await pool.fetchval("SELECT count(*) FROM commands WHERE kind = 'nudge'")
    taken = await waiting.ask()

    assert none.dispatches == yielded.dispatches == []
    assert text == "1 of 1 in progress for the workspace"
    assert called == 1
    assert len(taken.dispatches) == 1


async def test_run_that_waits_under_a_limit_is_called_when_the_one_that_held_the_room_is_cancelled(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    await Limit(workspace_id, cap=1).set(pool)
    host = await enrol(pool, workspace_id)
    greedy = await begin(pool, workspace_id, settings, Shape())
    (held,) = await out(pool)
    await greedy.take(host, held)
    await pool.execute("UPDATE targets SET value = 'x' || value")
    waiting = await begin(pool, workspace_id, settings, Shape())
    await waiting.ask()

    async with pool.acquire() as conn, conn.transaction():
        await cancel_run(conn, workspace_id, greedy.run_id, Act())
    await greedy.settle([held], Ending.CANCELLED)

    called = "SELECT nudged_at IS NOT NULL FROM job_histories WHERE id = $1"
    assert await pool.fetchval(called, waiting.run_id)
    assert len((await waiting.ask()).dispatches) == 1


async def test_run_that_waits_under_a_limit_is_called_when_a_cancel_has_yet_to_reach_what_held_the_room(
    pool: Pool, workspace_id: UUID, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_rows, "CHUNK", 1)
    await Limit(workspace_id, cap=2).set(pool)
    host = await enrol(pool, workspace_id)
    greedy = await begin(pool, workspace_id, settings, Shape(batches=2))
    held = await out(pool)
    for dispatch_id in held:
        await greedy.take(host, dispatch_id)
    await pool.execute("UPDATE targets SET value = 'x' || value")
    waiting = await begin(pool, workspace_id, settings, Shape())
    await waiting.ask()

    async with pool.acquire() as conn, conn.transaction():
        await cancel_run(conn, workspace_id, greedy.run_id, Act())
    await greedy.settle(held, Ending.CANCELLED)

    assert await pool.fetchval(
        "SELECT nudged_at IS NOT NULL FROM job_histories WHERE id = $1", waiting.run_id
    )


async def test_use_of_limits_is_told_in_the_words_of_why(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    await Limit(workspace_id, cap=3, rate=9).set(pool)
    await Limit(workspace_id, "probe", cap=2).set(pool)
    await Limit(workspace_id, "nmap", cap=1).set(pool)
    host = await enrol(pool, workspace_id)
    world = await begin(pool, workspace_id, settings, Shape(batches=3))
    for dispatch_id in await out(pool):
        await world.take(host, dispatch_id)

    async with pool.acquire() as conn:
        uses = await uses_of(conn, workspace_id, "probe")

    assert [(use.scope, use.used, use.most) for use in uses.in_progress] == [
        ("the workspace", 2, 3),
        ("the tool set probe", 2, 2),
    ]
    assert [(use.used, use.most) for use in uses.per_minute] == [(2, 9)]
