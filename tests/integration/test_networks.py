"""Internal networks as people see them: made, changed, deleted; targets in them, and moved between them."""

import asyncio
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import httpx2
import pytest

from runlane import names
from runlane.db.admit import admit_chunk
from runlane.db.keys import NewKey, Scope, create_key
from runlane.db.pool import Pool
from tests.integration.api_world import ApiWorld, Caller, assert_problem, served
from tests.integration.scan_host import enrol
from tests.integration.test_cli_api import Terminal
from tests.waiting import until

pytestmark = pytest.mark.integration

SITE = "10.1.0.0/16"
ACTS = """
SELECT data ->> 'action' AS action, count(*)::int AS times FROM outbox WHERE data ? 'action'
GROUP BY 1 ORDER BY 1
"""
LOOK = {"name": "look", "jobs": {"ports": {"run": "portprobe"}}}
STATES = "SELECT network_id, dispatch_id IS NOT NULL AS is_queued, status FROM jobs"


async def network(caller: Caller, name: str = "site", *cidrs: str) -> str:
    """Makes a network; returns its id."""
    answer = await caller.http.post("/v1/networks", json={"name": name, "cidrs": cidrs or [SITE]})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def target(caller: Caller, value: str, network: str | None) -> httpx2.Response:
    """Adds a target."""
    return await caller.http.post("/v1/targets", json={"value": value, "network": network})


async def move(caller: Caller, target_id: str, network: str | None) -> httpx2.Response:
    """Moves a target."""
    return await caller.http.post(f"/v1/targets/{target_id}/network", json={"network": network})


async def run_about(caller: Caller, target_id: str) -> str:
    """Starts a run of one step about a target; returns its id."""
    answer = await caller.http.post("/v1/runs", json={"definition": LOOK, "targets": [target_id]})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


async def test_network_is_made_changed_and_deleted(caller: Caller, pool: Pool) -> None:
    made = await caller.http.post("/v1/networks", json={"name": "site", "cidrs": ["FD00::/48", SITE]})
    path = f"/v1/networks/{made.json()['id']}"
    edited = await caller.http.patch(
        path, json={"cidrs": ["10.1.0.0/24"]}, headers={"If-Match": made.headers["etag"]}
    )
    stale = await caller.http.patch(path, json={"name": "x"}, headers={"If-Match": made.headers["etag"]})
    blind = await caller.http.patch(path, json={"name": "x"})
    listed = (await caller.http.get("/v1/networks?sort=name")).json()["items"]
    deleted = await caller.http.post(f"{path}/delete", json={"reason": "sold"})
    gone = await caller.http.get(path)

    assert (made.json()["cidrs"], made.headers["etag"]) == ([SITE, "fd00::/48"], '"1"')
    assert (edited.json()["cidrs"], edited.headers["etag"]) == (["10.1.0.0/24"], '"2"')
    assert_problem(stale, 412, "etag.stale")
    assert_problem(blind, 428, "etag.required")
    assert [(each["name"], each["cidrs"]) for each in listed] == [("site", ["10.1.0.0/24"])]
    assert deleted.status_code == 200
    assert_problem(gone, 404, "network.not_found")
    assert [tuple(row) for row in await pool.fetch(ACTS)] == [
        ("network.create", 1),
        ("network.delete", 1),
        ("network.save", 1),
    ]


async def test_network_that_is_none_is_refused_with_its_reason(world: ApiWorld, caller: Caller) -> None:
    await network(caller)
    same_range = await caller.http.post("/v1/networks", json={"name": "other site", "cidrs": [SITE]})

    cases: list[tuple[dict[str, object], int, str]] = [
        ({"name": "site", "cidrs": [SITE]}, 409, "network.duplicate"),
        ({"name": "wide", "cidrs": ["0.0.0.0/0"]}, 422, "network.cidr"),
        ({"name": "cloud", "cidrs": ["169.254.169.254/32"]}, 422, "network.cidr"),
        ({"name": "twice", "cidrs": [SITE, "10.1.7.0/24"]}, 422, "network.overlap"),
        ({"name": "none", "cidrs": []}, 422, "request.invalid"),
        ({"name": str(uuid4()), "cidrs": [SITE]}, 422, "name.ambiguous"),
    ]
    async with world.caller_of(caller.workspace_id, [Scope.TARGETS_READ, Scope.TARGETS_WRITE]) as reader:
        forbidden = await reader.http.post("/v1/networks", json={"name": "mine", "cidrs": [SITE]})
        seen = await reader.http.get("/v1/networks")

    assert same_range.status_code == 201
    for body, status, code in cases:
        assert_problem(await caller.http.post("/v1/networks", json=body), status, code)
    assert_problem(forbidden, 403, "key.scope")
    assert len(seen.json()["items"]) == 2


async def test_network_is_not_deleted_while_something_refers_to_it(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    site = await network(caller)
    path = f"/v1/networks/{site}/delete"
    pepper = world.app.state.resources.pepper
    targeted = (await target(caller, "10.1.2.3", "site")).json()["id"]
    host = await enrol(pool, caller.workspace_id, network_id=UUID(site))
    async with pool.acquire() as conn, conn.transaction():
        new = NewKey("edge", caller.workspace_id, [Scope.WORKER_JOIN], network_id=UUID(site))
        key = await create_key(conn, new, pepper)
    rate = (await caller.http.put("/v1/rates", json={"network_id": site, "per_second": 9})).json()["id"]

    refusals = [await caller.http.post(path)]
    await pool.execute("UPDATE targets SET deleted_at = clock_timestamp() WHERE id = $1", UUID(targeted))
    refusals.append(await caller.http.post(path))
    await pool.execute("UPDATE workers SET status = 'offline' WHERE id = $1", host.worker_id)
    assert (await caller.http.post(f"/v1/workers/{host.worker_id}/delete")).status_code == 200
    refusals.append(await caller.http.post(path))
    await pool.execute("UPDATE api_keys SET revoked_at = clock_timestamp() WHERE id = $1", key.key_id)
    refusals.append(await caller.http.post(path))
    await caller.http.post(f"/v1/rates/{rate}/remove")

    users = ["target 10.1.2.3", "worker test host", "key edge", "rate"]
    for refusal, user in zip(refusals, users, strict=True):
        assert user in str(assert_problem(refusal, 409, "network.in_use")["detail"])
    assert (await caller.http.post(path)).status_code == 200
    assert (await caller.http.get(f"/v1/workers/{host.worker_id}")).json()["deleted_at"]


async def test_same_address_in_two_networks_is_two_targets(caller: Caller, pool: Pool) -> None:
    here, there = await network(caller, "here"), await network(caller, "there")

    answers = [await target(caller, "10.1.2.3", each) for each in ("here", there, "here")]
    outside = await target(caller, "10.1.2.3", None)
    public = await target(caller, "93.184.216.34", "here")
    name = await target(caller, "db.corp.test", "here")
    unknown = await target(caller, "10.1.2.3", "nowhere")
    imported = await caller.http.post(
        "/v1/targets/import", json={"format": "csv", "text": "10.1.2.3\n10.1.2.4", "network": "there"}
    )
    listed = (await caller.http.get("/v1/targets?network=there&sort=value")).json()["items"]

    assert [answer.status_code for answer in answers] == [201, 201, 409]
    assert_problem(answers[2], 409, "target.duplicate")
    assert_problem(outside, 422, "target.address_refused")
    assert_problem(public, 422, "target.address_refused")
    assert_problem(unknown, 404, "network.not_found")
    assert (name.json()["network_id"], answers[1].json()["network_id"]) == (here, there)
    assert (imported.json()["added"], imported.json()["known"]) == (1, 1)
    assert [each["value"] for each in listed] == ["10.1.2.3", "10.1.2.4"]
    assert (
        await pool.fetchval(
            "SELECT count(*)::int FROM outbox WHERE type = 'target.created' AND data ->> 'network_id' = $1",
            there,
        )
        == 2
    )


async def test_network_of_another_workspace_is_nobodys(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    async with world.caller("theirs") as theirs:
        foreign = await network(theirs, "theirs")
    ours = await world.add_target(caller, "ours.test")

    answers = [
        await target(caller, "10.1.2.3", foreign),
        await target(caller, "10.1.2.3", "theirs"),
        await move(caller, ours, foreign),
        await caller.http.post("/v1/targets/import", json={"text": "", "network": foreign}),
        await caller.http.get(f"/v1/targets?network={foreign}"),
        await caller.http.put("/v1/rates", json={"network_id": foreign, "per_second": 9}),
    ]

    for answer in answers:
        assert_problem(answer, 404, "network.not_found")
    key = NewKey("edge", caller.workspace_id, [Scope.WORKER_JOIN], network_id=UUID(foreign))
    async with pool.acquire() as conn:
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await create_key(conn, key, world.app.state.resources.pepper)


async def test_cidrs_are_not_taken_from_under_a_target(caller: Caller) -> None:
    site = await network(caller)
    await target(caller, "10.1.2.0/24", "site")

    async def change(*cidrs: str) -> httpx2.Response:
        version = (await caller.http.get(f"/v1/networks/{site}")).headers["etag"]
        return await caller.http.patch(
            f"/v1/networks/{site}", json={"cidrs": cidrs}, headers={"If-Match": version}
        )

    assert_problem(await change("10.1.2.0/25"), 409, "network.in_use")
    assert (await change("10.1.2.0/23")).status_code == 200


async def test_jobs_that_wait_move_with_their_target(caller: Caller, pool: Pool) -> None:
    here, there = await network(caller, "here"), await network(caller, "there")
    moved = (await target(caller, "10.1.2.3", "here")).json()["id"]
    run = await run_about(caller, moved)
    await pool.execute(
        """WITH d AS (
             INSERT INTO dispatches (workspace_id, run_id, step_id, workflow_id, workflow_run_id, call_number,
                                     task_queue, priority, size)
             SELECT workspace_id, run_id, step_id, 'run/' || run_id, 'x', 1, $1, 2, 1 FROM jobs
             RETURNING id, run_id)
           UPDATE jobs j SET dispatch_id = d.id FROM d WHERE j.run_id = d.run_id""",
        names.scan_queue(caller.workspace_id, "probe", UUID(here)),
    )

    answers = [await move(caller, moved, "there") for _ in range(2)]

    assert [answer.json()["network_id"] for answer in answers] == [there, there]
    assert [tuple(row) for row in await pool.fetch(STATES)] == [(UUID(there), False, "pending")]
    assert await pool.fetchval("SELECT nudged_at IS NOT NULL FROM job_histories WHERE id = $1", UUID(run))
    assert ("target.network", 1) in [tuple(row) for row in await pool.fetch(ACTS)]


async def test_job_of_a_moved_target_is_run_again_where_the_target_is_now(caller: Caller, pool: Pool) -> None:
    await network(caller, "here")
    there = await network(caller, "there")
    moved = (await target(caller, "10.1.2.3", "here")).json()["id"]
    await run_about(caller, moved)
    job = (await caller.http.get("/v1/jobs")).json()["items"][0]["id"]
    await caller.http.post(f"/v1/jobs/{job}/cancel")

    assert (await move(caller, moved, "there")).status_code == 200
    again = await caller.http.post(f"/v1/jobs/{job}/rerun")

    assert again.is_success, again.text
    assert await pool.fetchval("SELECT network_id FROM jobs WHERE retry_of = $1", UUID(job)) == UUID(there)


async def test_target_with_jobs_in_progress_is_not_moved(caller: Caller, pool: Pool) -> None:
    here = await network(caller, "here")
    await network(caller, "there")
    busy = (await target(caller, "10.1.2.3", "here")).json()["id"]
    await run_about(caller, busy)
    host = await enrol(pool, caller.workspace_id, network_id=UUID(here))
    dispatch_id = await pool.fetchval(
        """INSERT INTO dispatches (workspace_id, run_id, step_id, workflow_id, workflow_run_id, call_number,
                                   task_queue, priority, size)
           SELECT workspace_id, run_id, step_id, 'run/' || run_id, 'x', 1, 'q', 2, 1 FROM jobs RETURNING id"""
    )
    await pool.execute("UPDATE jobs SET dispatch_id = $1", dispatch_id)
    assert (await host.claim(dispatch_id, "key", 1)).jobs

    assert_problem(await move(caller, busy, "there"), 409, "target.busy")
    assert [tuple(row) for row in await pool.fetch(STATES)] == [(UUID(here), True, "in_progress")]


async def test_move_beside_a_merge_holds_nothing_that_the_merge_waits_for(caller: Caller, pool: Pool) -> None:
    await network(caller, "here")
    await network(caller, "there")
    moved = (await target(caller, "10.1.2.3", "here")).json()["id"]
    await run_about(caller, moved)

    async with pool.acquire() as merger, merger.transaction():
        await merger.execute("SELECT FROM jobs FOR UPDATE")  # first the jobs, then what they are about
        moving = asyncio.create_task(move(caller, moved, "there"))
        await until(lambda: _waits_or_ended(pool, moving))
        await merger.execute("SELECT FROM targets FOR KEY SHARE")

    assert_problem(await moving, 409, "target.busy")
    assert (await move(caller, moved, "there")).status_code == 200


async def _waits_or_ended(pool: Pool, task: "asyncio.Task[httpx2.Response]") -> bool:
    return task.done() or await _waits(pool)


async def test_target_is_not_moved_to_where_it_may_not_be(caller: Caller) -> None:
    await network(caller, "here")
    await network(caller, "there")
    await network(caller, "elsewhere", "10.9.0.0/16")
    inside = (await target(caller, "10.1.2.3", "here")).json()["id"]
    await target(caller, "10.1.2.3", "there")

    assert_problem(await move(caller, inside, None), 422, "target.address_refused")
    assert_problem(await move(caller, inside, "elsewhere"), 422, "target.address_refused")
    assert_problem(await move(caller, inside, "there"), 409, "target.duplicate")
    assert_problem(await move(caller, str(uuid4()), "there"), 404, "target.not_found")


async def test_admission_beside_a_move_admits_no_job_for_the_old_place(caller: Caller, pool: Pool) -> None:
    await network(caller, "here")
    there = await network(caller, "there")
    moved = (await target(caller, "10.1.2.3", "here")).json()["id"]
    run = UUID(await run_about(caller, moved))
    await pool.execute("DELETE FROM jobs")
    await pool.execute("UPDATE run_steps SET admit_cursor = NULL, admitted_at = NULL, jobs_total = 0")

    async with pool.acquire() as admitter:
        async with admitter.transaction():
            assert (await admit_chunk(admitter, run, "ports")).jobs == 1
            moving = asyncio.create_task(move(caller, moved, "there"))
            await until(lambda: _waits(pool))
        answer = await moving

    assert answer.status_code == 200, answer.text
    assert [tuple(row) for row in await pool.fetch(STATES)] == [(UUID(there), False, "pending")]


async def _waits(pool: Pool) -> bool:
    return bool(await pool.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))


async def test_networks_are_managed_from_the_command_line(
    world: ApiWorld, caller: Caller, tmp_path: Path
) -> None:
    async with served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        made = await terminal.run("network", "create", "site", SITE, "--json")
        edited = await terminal.run("network", "edit", "site", "--cidr", "10.1.0.0/17")
        shown = await terminal.run("network", "show", "site")
        added = await terminal.run("target", "add", "10.1.2.3", "--network", "site")
        listed = await terminal.run("target", "list", "--network", "site", "--json")
        key = await terminal.run(
            "key", "create", "edge", "-w", str(caller.workspace_id), "--network", "site", "--json"
        )
        moved = await terminal.run("target", "move", "@last", "--no-network")
        refused = await terminal.run("network", "delete", "site")

    assert [done.code for done in (made, edited, shown, added, listed, key)] == [0] * 6, key.err
    assert "10.1.0.0/17" in edited.out + edited.err
    assert "10.1.0.0/17" in shown.out
    assert "10.1.2.3" in listed.out
    assert (moved.code != 0, "target.address_refused" in moved.err) == (True, True)
    assert (refused.code != 0, "network.in_use" in refused.err) == (True, True)
