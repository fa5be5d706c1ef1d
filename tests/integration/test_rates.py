"""Rates across workers and jobs: shares at the claim, held back at dispatch, free again when attempts end."""

import asyncio
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from runlane import names
from runlane.db import rate_rules, rates
from runlane.db.dispatch import Batches, NextBatches, next_batches
from runlane.db.keys import NewKey, Scope, check_pepper, create_key
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.db.sweeps import pruning
from runlane.db.views.why import why_run
from runlane.definitions import parse_definition
from runlane.errors import Invalid
from runlane.sweeps import Retention
from runlane.waiting import Reason
from tests.integration.api_world import ApiWorld, Caller, assert_problem, served
from tests.integration.scan_host import ScanHost, enrol
from tests.integration.test_cli_api import Terminal

pytestmark = pytest.mark.integration


async def dispatched(
    pool: Pool, workspace_id: UUID, tool: str = "portprobe", jobs: int = 4, ports: str | None = None
) -> list[UUID]:
    """Jobs of one target, each in a batch of its own; the dispatches."""
    config = {"ports": ports} if ports else {}
    definition = parse_definition({"name": "t", "jobs": {"only": {"run": tool, "config": config}}})
    async with pool.acquire() as conn, conn.transaction():
        target_id = await conn.fetchval(
            """INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', $2) RETURNING id""",
            workspace_id,
            f"{uuid4().hex}.test",
        )
        run_id = (await start_run(conn, StartRun(workspace_id, definition, [target_id], "t"))).run_id
        await conn.execute(
            """INSERT INTO jobs (workspace_id, run_id, step_id, tool_id, toolset, category, target_id,
                                 subject_id, spec, priority, ordinal)
               SELECT $1, $2, 'only', $3, toolset, category, $4, uuidv7(),
                      '{"host": "a.test", "kind": "host"}', 2, n
               FROM tools, generate_series(1, $5) n WHERE id = $3""",
            workspace_id,
            run_id,
            tool,
            target_id,
            jobs - await conn.fetchval("SELECT count(*)::int FROM jobs WHERE run_id = $1", run_id),
        )
        rows = await conn.fetch("SELECT id FROM jobs WHERE run_id = $1 ORDER BY id", run_id)
        found = []
        for number, row in enumerate(rows):
            dispatch_id = await conn.fetchval(
                """INSERT INTO dispatches (workspace_id, run_id, step_id, workflow_id, workflow_run_id,
                                           call_number, task_queue, priority, size)
                   VALUES ($1, $2, 'only', 'run/' || $2::uuid::text, 'x', $3, $4, 2, 1)
                   RETURNING id""",
                workspace_id,
                run_id,
                number,
                names.scan_queue(workspace_id, "probe"),
            )
            await conn.execute("UPDATE jobs SET dispatch_id = $2 WHERE id = $1", row["id"], dispatch_id)
            found.append(dispatch_id)
    return found


async def set_rate(
    pool: Pool, workspace_id: UUID | None, per_second: int, target_id: UUID | None = None
) -> None:
    await pool.execute(
        "INSERT INTO rates (workspace_id, target_id, per_second) VALUES ($1, $2, $3)",
        workspace_id,
        target_id,
        per_second,
    )


async def running(pool: Pool) -> UUID:
    """The one run, which a workflow has taken up that does not know of the batches made before."""
    await pool.execute("UPDATE dispatches SET closed_at = clock_timestamp(), workflow_id = 'other'")
    run_id: UUID = await pool.fetchval(
        "UPDATE job_histories SET status = 'running', owner = 'w' RETURNING id"
    )
    return run_id


async def ask(pool: Pool, run_id: UUID, number: int) -> Batches:
    """The next batches of its step."""
    workspace_id = await pool.fetchval("SELECT workspace_id FROM job_histories WHERE id = $1", run_id)
    call = NextBatches(run_id, workspace_id, f"run/{run_id}", "w", "w", number, {"only": 16})
    async with pool.acquire() as conn, conn.transaction():
        return await next_batches(conn, call)


async def take(host: ScanHost, dispatch_id: UUID, key: str = "key") -> list[object]:
    """The shares of what is claimed."""
    answer = await host.claim(dispatch_id, f"{key}/{dispatch_id}", 10)
    return [job.spec.get("rate_per_s") for job in answer.jobs]


@pytest.mark.parametrize("scope", ["target", "workspace", "platform"])
async def test_jobs_on_many_workers_are_never_given_more_than_the_rate_together(
    pool: Pool, workspace_id: UUID, scope: str
) -> None:
    batches = await dispatched(pool, workspace_id, jobs=6)
    target_id = await pool.fetchval("SELECT DISTINCT target_id FROM jobs")
    await set_rate(
        pool,
        None if scope == "platform" else workspace_id,
        120,
        target_id if scope == "target" else None,
    )
    hosts = [await enrol(pool, workspace_id) for _ in batches]

    shares = [
        share
        for found in await asyncio.gather(*(take(host, i) for host, i in zip(hosts, batches, strict=True)))
        for share in found
    ]

    assert sorted(shares) == [20, 50, 50]  # type: ignore[type-var]  # numbers, or this fails
    assert await pool.fetchval("SELECT sum(per_second) FROM rate_shares") == 120
    waiting = await pool.fetch("SELECT dispatch_id, attempt FROM jobs WHERE status = 'pending'")
    assert {tuple(row) for row in waiting} == {(None, 0)}


async def test_lowest_of_the_rates_that_cover_a_job_counts_and_the_platforms_is_not_lifted(
    pool: Pool, workspace_id: UUID
) -> None:
    (first, second) = await dispatched(pool, workspace_id, jobs=2)
    target_id = await pool.fetchval("SELECT DISTINCT target_id FROM jobs")
    await set_rate(pool, None, 7)
    await set_rate(pool, workspace_id, 1_000)
    await set_rate(pool, workspace_id, 500, target_id)
    host = await enrol(pool, workspace_id)

    assert await take(host, first) == [7]
    assert await take(host, first) == [7]  # the same task asks again
    assert await take(host, second) == []


async def test_share_lets_a_job_end_within_its_limit_and_what_is_left_is_not_dispatched_again_and_again(
    pool: Pool, workspace_id: UUID
) -> None:
    batches = await dispatched(pool, workspace_id, jobs=4, ports="1-65535")
    await set_rate(pool, workspace_id, 1_000)
    host = await enrol(pool, workspace_id)

    shares = [await take(host, batch) for batch in batches]
    run_id = await running(pool)
    again = await ask(pool, run_id, 101)

    assert shares == [[274], [274], [274], []]  # 65,535 packets in 240 of 300 s
    assert again.dispatches == []


@pytest.mark.parametrize("scope", ["target", "workspace", "platform"])
async def test_run_whose_jobs_cannot_end_at_their_rate_is_refused_and_says_what_would_do(
    pool: Pool, workspace_id: UUID, scope: str
) -> None:
    await dispatched(pool, workspace_id)  # few ports: no rate is too low for them
    target_id = await pool.fetchval("SELECT id FROM targets")
    await set_rate(
        pool, None if scope == "platform" else workspace_id, 10, target_id if scope == "target" else None
    )
    steps = {"all": {"run": "portprobe", "config": {"ports": "1-65535"}}, "few": {"run": "portprobe"}}
    request = StartRun(workspace_id, parse_definition({"name": "t", "jobs": steps}), [target_id], "t")

    async with pool.acquire() as conn:
        with pytest.raises(Invalid) as refused:
            async with conn.transaction():
                await start_run(conn, request)
    await pool.execute("UPDATE rates SET per_second = 274")
    async with pool.acquire() as conn, conn.transaction():
        await start_run(conn, request)
    if scope == "target":  # the rate of one target is no other's
        await pool.execute("UPDATE rates SET per_second = 10")
        await dispatched(pool, workspace_id, ports="1-65535")

    assert refused.value.code == "rate.too_low"
    (told,) = refused.value.fields.items()
    assert told == (
        "jobs.all",
        "65535 packets at 10 a second take 6553 s, and a job may take 300 s: fewer ports, or a rate of 274",
    )


@pytest.mark.breaks_invariants  # attempts are ended without their jobs
async def test_share_is_free_when_its_attempt_has_ended_and_a_lost_hosts_a_moment_later(
    pool: Pool, workspace_id: UUID
) -> None:
    first, second, third, *_ = await dispatched(pool, workspace_id)
    await set_rate(pool, workspace_id, 5)
    host = await enrol(pool, workspace_id)
    await take(host, first)

    async def left() -> int:
        async with pool.acquire() as conn:
            room = await rates.room_of(conn, workspace_id, "portprobe", asking=False)
            return room.rates[workspace_id].left

    held = await take(host, second)
    during = await left()
    await pool.execute(
        """UPDATE job_attempts SET ended_at = clock_timestamp(), outcome = 'lost'
           WHERE job_id IN (SELECT job_id FROM rate_shares)"""
    )
    lingering = await left()
    await pool.execute("UPDATE job_attempts SET ended_at = ended_at - interval '31 seconds'")

    assert (held, during, lingering, await left()) == ([], 0, 0, 5)
    assert await take(host, third) == [5]
    assert await pool.fetchval("SELECT count(*) FROM rate_shares") == 1  # what no longer counts was pruned


@pytest.mark.breaks_invariants  # an attempt is ended without its job
async def test_shares_of_what_has_ended_go_after_the_last_rate_was_removed(
    pool: Pool, workspace_id: UUID
) -> None:
    first, second, *_ = await dispatched(pool, workspace_id)
    await set_rate(pool, workspace_id, 100)
    host = await enrol(pool, workspace_id)
    for dispatch_id in (first, second):
        await take(host, dispatch_id)
    await pool.execute("DELETE FROM rates")
    await pool.execute(
        """UPDATE job_attempts SET ended_at = clock_timestamp() - interval '2 days', outcome = 'completed'
           WHERE dispatch_id = $1""",
        first,
    )

    (rule,) = (rule for rule in pruning.rules(Retention()) if rule.table == "rate_shares")
    async with pool.acquire() as conn:
        pruned = await pruning.prune_rows(conn, rule, 10)

    assert pruned == 1
    left = await pool.fetchval(
        "SELECT dispatch_id FROM rate_shares s JOIN job_attempts USING (job_id, attempt)"
    )
    assert left == second  # it is in progress, and counts if there is a rate again


async def test_what_waits_for_a_rate_says_so(pool: Pool, workspace_id: UUID) -> None:
    batches = await dispatched(pool, workspace_id)
    await pool.execute("UPDATE job_histories SET status = 'running'")
    await set_rate(pool, workspace_id, 5)
    host = await enrol(pool, workspace_id)
    for dispatch_id in batches:
        await take(host, dispatch_id)

    async with pool.acquire() as conn:
        run_id = await conn.fetchval("SELECT id FROM job_histories")
        (step,) = (await why_run(conn, workspace_id, run_id)).steps

    (group,) = step.groups
    assert group.explanation.reason is Reason.RATE
    assert "5 of 5 a second given out for the workspace" in group.explanation.text


async def test_tool_that_cannot_keep_to_a_rate_is_skipped_for_what_has_one_only(
    pool: Pool, workspace_id: UUID
) -> None:
    (rated,) = await dispatched(pool, workspace_id, "screenshot", 1)
    (free,) = await dispatched(pool, workspace_id, "screenshot", 1)
    target_id = await pool.fetchval("SELECT target_id FROM jobs WHERE dispatch_id = $1", rated)
    await set_rate(pool, workspace_id, 5, target_id)
    host = await enrol(pool, workspace_id)
    await pool.execute("UPDATE workers SET toolsets = '{browser}', slots = '{\"browser\": 1}'")

    refused, taken = await take(host, rated), await take(host, free)

    assert (refused, taken) == ([], [None])
    jobs = await pool.fetch("SELECT status, reason FROM jobs ORDER BY created_at, id")
    assert [tuple(row) for row in jobs] == [("skipped", rates.UNPACED), ("in_progress", None)]


async def test_tools_that_send_nothing_and_workspaces_without_rates_pay_nothing(
    pool: Pool, workspace_id: UUID
) -> None:
    other = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('other') RETURNING id")
    await set_rate(pool, other, 1)
    (free,) = await dispatched(pool, workspace_id, jobs=1)
    (silent,) = await dispatched(pool, workspace_id, "noop", 1)
    host = await enrol(pool, workspace_id)

    taken = await take(host, free)
    await set_rate(pool, workspace_id, 1)

    assert (taken, await take(host, silent)) == ([None], [None])
    assert await pool.fetchval("SELECT count(*) FROM rate_shares") == 0


async def test_rate_is_set_once_audited_and_belongs_to_its_workspace(
    world: ApiWorld, caller: Caller, pool: Pool, tmp_path: Path
) -> None:
    target = await world.add_target(caller)
    body = {"per_second": 5, "target_id": target}
    first = await caller.http.put("/v1/rates", json=body)
    again = await caller.http.put("/v1/rates", json=body)
    both = await caller.http.put("/v1/rates", json=body | {"network_id": str(uuid4())})
    missing = await caller.http.put("/v1/rates", json={"per_second": 5, "target_id": str(uuid4())})
    async with pool.acquire() as conn, conn.transaction():
        pepper = check_pepper(world.settings.key_pepper.get_secret_value())
        key = await create_key(conn, NewKey("ops", None, [Scope.PLATFORM_ADMIN]), pepper)
    headers = {"Authorization": f"Bearer {key.plaintext}"}
    platform = await caller.http.put("/v1/platform/rates", json={"per_second": 9}, headers=headers)
    async with world.caller("theirs") as theirs:
        foreign = await theirs.http.post(f"/v1/rates/{first.json()['id']}/remove")
        seen = (await theirs.http.get("/v1/rates")).json()["items"]
    async with served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        listed = await terminal.run("rate", "list", "--json")
        removed = await terminal.run("rate", "remove", first.json()["id"], "--json")

    assert first.json() == again.json()
    assert_problem(both, 422, "request.invalid")
    assert_problem(missing, 404, "target.not_found")
    assert_problem(foreign, 404, "rate.not_found")
    assert_problem(await caller.http.post(f"/v1/rates/{platform.json()['id']}/remove"), 404, "rate.not_found")
    assert [row["id"] for row in seen] == [platform.json()["id"]]
    assert len(listed.json["items"]) == 2  # type: ignore[arg-type]  # a list
    assert removed.json["id"] == first.json()["id"]
    acts = await pool.fetch(
        """SELECT DISTINCT data ->> 'action' AS action FROM outbox
           WHERE data ? 'action' AND workspace_id = $1""",
        caller.workspace_id,
    )
    assert {row["action"] for row in acts} == {"rate.set", "rate.remove"}


async def test_last_rate_that_there_may_be_is_changed_and_no_other_is_set(
    world: ApiWorld, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace with as many rates as it may have could change none of them."""
    monkeypatch.setattr(rate_rules, "MAX_RATES", 1)
    of_target = {"target_id": await world.add_target(caller)}
    await caller.http.put("/v1/rates", json=of_target | {"per_second": 5})

    changed = await caller.http.put("/v1/rates", json=of_target | {"per_second": 6})
    more = await caller.http.put("/v1/rates", json={"per_second": 7})

    assert changed.json()["per_second"] == 6
    assert_problem(more, 409, "rate.too_many")


@pytest.mark.breaks_invariants  # attempts are ended without their jobs
async def test_no_more_is_dispatched_than_there_are_shares_and_the_next_follow(
    pool: Pool, workspace_id: UUID
) -> None:
    await dispatched(pool, workspace_id, jobs=8)
    await pool.execute("UPDATE jobs SET dispatch_id = NULL")
    run_id = await running(pool)
    await set_rate(pool, workspace_id, 110)
    host = await enrol(pool, workspace_id)

    first = await ask(pool, run_id, 101)
    asked = await ask(pool, run_id, 102)
    for dispatch in first.dispatches:
        await take(host, dispatch.dispatch_id)
    claimed = await ask(pool, run_id, 103)
    await pool.execute("UPDATE dispatches SET closed_at = clock_timestamp()")
    blocked = (await ask(pool, run_id, 104), await pool.fetchval("SELECT blocked_reason FROM job_histories"))
    await pool.execute("UPDATE job_attempts SET ended_at = clock_timestamp(), outcome = 'completed'")
    after = await ask(pool, run_id, 105)

    assert sum(dispatch.size for dispatch in first.dispatches) == 3  # 50, 50 and 10 a second
    assert asked.dispatches == claimed.dispatches == blocked[0].dispatches == []
    assert [step.next_due_s for each in (asked, claimed) for step in each.steps] == [rates.LOOK_S] * 2
    assert "110 of 110 a second given out for the workspace" in blocked[1]
    assert sum(dispatch.size for dispatch in after.dispatches) == 3


async def test_jobs_of_a_program_that_takes_one_list_go_alone_under_a_rate(
    pool: Pool, workspace_id: UUID
) -> None:
    """They follow each other in a batch, and its last ones ran into its limit."""
    await dispatched(pool, workspace_id, tool="naabu", jobs=40)
    await pool.execute("UPDATE jobs SET dispatch_id = NULL")
    run_id = await running(pool)
    await set_rate(pool, workspace_id, 1_000)
    await enrol(pool, workspace_id, toolset="projectdiscovery")

    found = await ask(pool, run_id, 101)

    assert {dispatch.size for dispatch in found.dispatches} == {1}
