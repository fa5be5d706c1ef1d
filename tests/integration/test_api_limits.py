"""Limits and shares over HTTP and on the command line: set once, audited, refused by a code."""

import asyncio
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from runlane.db.claims import ClaimRequest, claim
from runlane.db.keys import NewKey, Scope, check_pepper, create_key
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from tests.integration.api_world import ApiWorld, Caller, assert_problem, served
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.scan_host import enrol
from tests.integration.test_cli_api import Terminal

pytestmark = pytest.mark.integration

RUN = {"definition": {"name": "test", "jobs": {"a": {"run": "noop"}}}}


async def claimed(pool: Pool, workspace_id: UUID, shape: Shape) -> None:
    """A run of which everything that may be is in progress."""
    host = await enrol(pool, workspace_id)
    for dispatch_id in (await dispatched_run(pool, workspace_id, shape)).dispatches:
        async with pool.acquire() as conn, conn.transaction():
            await claim(conn, ClaimRequest(dispatch_id, str(uuid4()), host.worker_id, host.incarnation, 10))


async def test_limit_is_set_once_audited_and_shown_with_what_is_used_of_it(
    caller: Caller, pool: Pool
) -> None:
    await claimed(pool, caller.workspace_id, Shape(batches=3))
    body = {"toolset": "probe", "max_in_progress": 5, "reason": "small network"}

    first = await caller.http.put("/v1/limits", json=body)
    again = await caller.http.put("/v1/limits", json=body)
    changed = await caller.http.put("/v1/limits", json={"toolset": "probe", "max_in_progress": 9})
    listed = (await caller.http.get("/v1/limits")).json()["items"]
    removed = await caller.http.post(f"/v1/limits/{listed[0]['id']}/remove")

    assert first.status_code == again.status_code == changed.status_code == removed.status_code == 200
    assert first.json()["id"] == again.json()["id"]
    assert [(row["toolset"], row["in_progress"], row["max_in_progress"]) for row in listed] == [
        ("probe", 3, 9)
    ]
    assert (await caller.http.get("/v1/limits")).json()["items"] == []
    acts = await pool.fetch("SELECT data ->> 'action' AS action FROM outbox WHERE data ? 'action'")
    assert [row["action"] for row in acts] == ["limit.set", "limit.set", "limit.remove"]


async def test_limit_that_says_nothing_or_belongs_to_others_is_refused(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    ours = (await caller.http.put("/v1/limits", json={"per_minute": 5})).json()
    everywhere = await pool.fetchval(
        "INSERT INTO limits (toolset, max_in_progress) VALUES ('probe', 7) RETURNING id"
    )

    assert_problem(await caller.http.put("/v1/limits", json={}), 422, "limit.empty")
    unknown = await caller.http.put("/v1/limits", json={"toolset": "none", "per_minute": 5})
    assert_problem(unknown, 422, "toolset.unknown")
    assert_problem(await caller.http.post(f"/v1/limits/{everywhere}/remove"), 404, "limit.not_found")
    assert_problem(
        await caller.http.put("/v1/platform/limits", json={"toolset": "probe", "per_minute": 1}),
        403,
        "key.scope",
    )
    async with world.caller("theirs") as theirs:
        assert_problem(await theirs.http.post(f"/v1/limits/{ours['id']}/remove"), 404, "limit.not_found")
        seen = (await theirs.http.get("/v1/limits")).json()["items"]
    assert [row["id"] for row in seen] == [str(everywhere)]


async def test_tool_set_is_limited_everywhere_by_a_platform_key(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    async with pool.acquire() as conn, conn.transaction():
        pepper = check_pepper(world.settings.key_pepper.get_secret_value())
        key = await create_key(conn, NewKey("ops", None, [Scope.PLATFORM_ADMIN]), pepper)
    headers = {"Authorization": f"Bearer {key.plaintext}"}

    answer = await caller.http.put(
        "/v1/platform/limits", json={"toolset": "probe", "max_in_progress": 2}, headers=headers
    )
    await claimed(pool, caller.workspace_id, Shape(batches=3))

    assert answer.json()["workspace_id"] is None
    listed = (await caller.http.get("/v1/limits")).json()["items"]
    assert [(row["in_progress"], row["max_in_progress"]) for row in listed] == [(2, 2)]


async def test_run_too_many_is_refused_and_taken_once_another_has_ended(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await pool.execute("UPDATE workspaces SET max_open_runs = 2 WHERE id = $1", caller.workspace_id)
    body = RUN | {"targets": [await world.add_target(caller)]}

    answers = await asyncio.gather(*(caller.http.post("/v1/runs", json=body) for _ in range(5)))
    taken = [answer.json() for answer in answers if answer.status_code == 202]
    refused = [answer for answer in answers if answer.status_code != 202]
    await caller.http.post(f"/v1/runs/{taken[0]['run_id']}/cancel")
    later = await caller.http.post("/v1/runs", json=body)

    assert (len(taken), later.status_code) == (2, 202)
    assert_problem(refused[0], 409, "run.too_many_open")
    assert "2 runs of the workspace are open" in refused[0].json()["detail"]


async def test_open_runs_of_other_workspaces_do_not_count(pool: Pool, workspace_id: UUID) -> None:
    await pool.execute("UPDATE workspaces SET max_open_runs = 1")
    other_id = await pool.fetchval(
        "INSERT INTO workspaces (name, max_open_runs) VALUES ('o', 1) RETURNING id"
    )
    definition = parse_definition({"name": "test", "jobs": {"a": {"run": "noop"}}})

    for each in (workspace_id, other_id):
        async with pool.acquire() as conn, conn.transaction():
            target_id = await conn.fetchval(
                "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'a.test')"
                " RETURNING id",
                each,
            )
            await start_run(conn, StartRun(each, definition, [target_id], "test"))

    assert await pool.fetchval("SELECT count(*) FROM job_histories") == 2


async def test_limits_and_shares_are_set_on_the_command_line(
    world: ApiWorld, caller: Caller, tmp_path: Path
) -> None:
    async with served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        put = await terminal.run("limit", "set", "--toolset", "probe", "--in-progress", "4", "--json")
        listed = await terminal.run("limit", "list")
        removed = await terminal.run("limit", "remove", "--toolset", "probe")
        rules = await terminal.run(
            "workspace", "set", "ours", "--allow-shared", "--shared-share", "0.25", "--json"
        )

    assert put.json["max_in_progress"] == 4
    assert "probe" in listed.out
    assert removed.code == 0
    assert rules.json == {"allow_shared": True, "shared_slot_share": 0.25, "max_open_runs": 100}
