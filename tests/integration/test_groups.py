"""Groups and tags: what is in them, and runs about them, however many targets that are."""

import asyncio
import json
from pathlib import Path
from uuid import UUID, uuid4

import httpx2
import pytest

from runlane.db.acts import Act
from runlane.db.admit import admit_chunk
from runlane.db.groups import delete_group
from runlane.db.pool import Pool
from runlane.db.schedules import NewSchedule, create_schedule
from runlane.db.starting import ADMITTED_AT_ONCE
from runlane.db.workspaces import create_workspace
from runlane.errors import Invalid
from tests.integration.api_world import ApiWorld, Caller, assert_problem, served
from tests.integration.test_cli_api import Terminal
from tests.waiting import until

pytestmark = pytest.mark.integration

MANY = 100_000

LOOK = {"name": "look", "jobs": {"names": {"run": "dnsprobe"}, "ports": {"run": "portprobe"}}}
"""One step over targets, one over their assets."""


SPEC = {
    "cron": "@daily", "every_s": None, "time_zone": "UTC", "jitter_s": 0, "overlap": "skip", "catch_up_s": 60,
    "ends_at": None,
}  # fmt: skip


async def group(caller: Caller, name: str = "shops", **keys: object) -> str:
    """Makes a group; returns its id."""
    answer = await caller.http.post("/v1/groups", json={"name": name, **keys})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def change(caller: Caller, group_id: str, how: str = "", **members: object) -> dict[str, object]:
    """Adds or removes members; returns the group."""
    answer = await caller.http.post(f"/v1/groups/{group_id}/members{how}", json=members)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def tagged(caller: Caller, *lines: str) -> None:
    """Imports targets with tags, as lines of a CSV."""
    body = {"text": "\n".join(lines), "format": "csv"}
    answer = await caller.http.post("/v1/targets/import", json=body)
    assert answer.json()["faults"] == [], answer.text


async def values(caller: Caller, path: str) -> list[str]:
    """Spellings of the targets that a list has."""
    return [each["value"] for each in (await caller.http.get(path)).json()["items"]]


async def targets_of(caller: Caller, pool: Pool, **body: object) -> list[str]:
    """Starts a run; returns the spellings of its targets."""
    answer = await caller.http.post("/v1/runs", json={"definition": LOOK, **body})
    assert answer.status_code == 202, answer.text
    rows = await pool.fetch(
        """SELECT t.value FROM run_targets r JOIN targets t ON t.id = r.target_id
           WHERE r.run_id = $1 ORDER BY 1""",
        UUID(answer.json()["run_id"]),
    )
    return [row["value"] for row in rows]


async def is_done_or(task: asyncio.Task[httpx2.Response], pool: Pool, condition: str) -> bool:
    """Whether a request has been answered, or a condition in the database holds."""
    return task.done() or bool(await pool.fetchval(condition))


async def test_group_holds_its_members_and_what_its_tags_take_in(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await tagged(caller, "a.test,prod eu", "b.test,prod", "c.test,prod eu", "d.test,lab")
    shops = await group(caller, tags=["prod", "eu"])
    added = await change(caller, shops, values=["D.test."], targets=[])
    again = await change(caller, shops, values=["d.test"])
    removed = await change(caller, shops, "/remove", values=["d.test", "nowhere.test"])
    await change(caller, shops, tags=["lab"])

    assert (added["changed"], again["changed"], removed["changed"]) == (1, 0, 1)
    assert (added["members"], added["targets"], removed["targets"]) == (1, 3, 2)
    assert await values(caller, f"/v1/groups/{shops}/targets?sort=value") == ["a.test", "c.test", "d.test"]
    assert await targets_of(caller, pool, groups=["shops"]) == ["a.test", "c.test", "d.test"]
    events = await pool.fetch("SELECT type FROM outbox WHERE type LIKE 'asset_group.%' ORDER BY id")
    assert [row["type"] for row in events] == ["asset_group.created", *["asset_group.updated"] * 3]


async def test_run_is_about_any_mix_of_targets_groups_and_tags_as_they_are_at_its_start(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await tagged(caller, "a.test,prod", "b.test,lab", "c.test,eu", "d.test,lab")
    single = await world.add_target(caller, "single.test")
    shops = await group(caller)
    await change(caller, shops, values=["c.test", "a.test"])
    await pool.execute("UPDATE targets SET deleted_at = clock_timestamp() WHERE value = 'd.test'")

    mixed = await targets_of(caller, pool, targets=[single], groups=[shops], tags=["lab", "prod"])
    later = await targets_of(caller, pool, groups=["shops"])

    assert mixed == ["a.test", "b.test", "c.test", "single.test"]
    assert later == ["a.test", "c.test"]


async def test_run_about_nothing_is_refused_with_its_reason(caller: Caller) -> None:
    await group(caller, "empty", tags=["nobody"])

    cases = [
        ({"groups": ["empty"]}, 422, "run.no_target"),
        ({"tags": ["nobody"]}, 422, "run.no_target"),
        ({}, 422, "run.no_target"),
        ({"groups": ["unknown"]}, 404, "group.not_found"),
        ({"targets": [str(uuid4())], "tags": ["nobody"]}, 404, "target.not_found"),
    ]

    for body, status, code in cases:
        answer = await caller.http.post("/v1/runs", json={"definition": LOOK, **body})
        assert_problem(answer, status, code)


async def test_tags_of_all_that_is_selected_change_at_once(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await tagged(caller, "a.test,prod", "b.test,lab", "c.test,other", "d.test,eu lab")
    shops = await group(caller)
    await change(caller, shops, values=["b.test", "d.test"])
    async with world.caller("theirs") as theirs:
        await tagged(theirs, "theirs.test,prod")
    body = {"tags": ["prod"], "groups": ["shops"], "add": ["eu"], "remove": ["prod", "lab"]}

    done = [(await caller.http.post("/v1/targets/tags", json=body)).json()["changed"] for _ in range(2)]
    many = [f"t{number}" for number in range(20)]
    full = await caller.http.post("/v1/targets/tags", json={"tags": ["eu"], "add": many})
    nothing = await caller.http.post("/v1/targets/tags", json={"add": ["x"]})

    assert done == [3, 0]
    assert_problem(full, 422, "targets.tags")
    assert_problem(nothing, 422, "targets.none")
    rows = await pool.fetch("SELECT value, tags FROM targets ORDER BY value")
    assert [tuple(row) for row in rows] == [
        ("a.test", ["eu"]),
        ("b.test", ["eu"]),
        ("c.test", ["other"]),
        ("d.test", ["eu"]),
        ("theirs.test", ["prod"]),
    ]


async def test_group_of_another_workspace_is_not_there_and_takes_no_foreign_target(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    ours = await world.add_target(caller, "ours.test")
    shops = await group(caller)
    async with world.caller("theirs") as theirs:
        await tagged(theirs, "theirs.test,prod")
        answers = [
            await theirs.http.get(f"/v1/groups/{shops}"),
            await theirs.http.get(f"/v1/groups/{shops}/targets"),
            await theirs.http.post(f"/v1/groups/{shops}/members", json={"tags": ["prod"]}),
            await theirs.http.post(f"/v1/groups/{shops}/members/remove", json={"tags": ["prod"]}),
            await theirs.http.patch(f"/v1/groups/{shops}", json={"name": "x"}, headers={"If-Match": '"1"'}),
            await theirs.http.post(f"/v1/groups/{shops}/delete"),
            await theirs.http.post("/v1/runs", json={"definition": LOOK, "groups": [shops]}),
        ]
        foreign = await theirs.http.post(
            f"/v1/groups/{await group(theirs)}/members", json={"targets": [ours]}
        )
        listed = (await theirs.http.get("/v1/groups")).json()["items"]

    for answer in answers:
        assert_problem(answer, 404, "group.not_found")
    assert_problem(foreign, 404, "target.not_found")
    assert [each["id"] != shops for each in listed] == [True]
    await change(caller, shops, tags=["prod"])
    assert await pool.fetchval("SELECT count(*) FROM target_group_members") == 0


async def test_edit_needs_the_version_that_was_read_and_renames_what_refers_to_it(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await tagged(caller, "a.test,prod")
    shops = await group(caller)
    await group(caller, "other")
    path = f"/v1/groups/{shops}"
    tag = (await caller.http.get(path)).headers["etag"]
    window = {"starts_at": "2099-01-01T00:00Z", "ends_at": "2099-01-02T00:00Z", "group": "shops"}
    made = await caller.http.post("/v1/blackouts", json=window)

    blind = await caller.http.patch(path, json={"tags": ["prod"]})
    edited = await caller.http.patch(
        path, json={"name": "stores", "tags": ["prod"]}, headers={"If-Match": tag}
    )
    stale = await caller.http.patch(path, json={"tags": []}, headers={"If-Match": tag})
    taken = await caller.http.patch(
        path, json={"name": "other"}, headers={"If-Match": edited.headers["etag"]}
    )
    used = await caller.http.post(f"{path}/delete")
    await caller.http.post(f"/v1/blackouts/{made.json()['id']}/remove")
    deleted = await caller.http.post(f"{path}/delete")

    assert_problem(blind, 428, "etag.required")
    assert_problem(stale, 412, "etag.stale")
    assert_problem(taken, 409, "group.duplicate")
    assert_problem(used, 409, "group.in_use")
    assert (edited.json()["name"], edited.json()["targets"], edited.headers["etag"]) == ("stores", 1, '"2"')
    assert made.json()["group_id"] == shops
    assert deleted.status_code == 200
    assert await values(caller, "/v1/targets") == ["a.test"]


async def test_name_that_could_be_taken_for_an_id_is_refused_wherever_names_are_given(
    caller: Caller, pool: Pool
) -> None:
    """A group that was called as another one's id is would be scanned in its place."""
    shops = await group(caller)
    schedule = {"definition": "domain_discovery", "groups": [shops], "cron": "@daily"}

    for name in (shops, shops.upper(), shops.replace("-", ""), "@last"):
        definition = {"definition": {**LOOK, "name": name}}
        edited = await caller.http.patch(
            f"/v1/groups/{shops}", json={"name": name}, headers={"If-Match": '"1"'}
        )
        for answer in (
            edited,
            await caller.http.post("/v1/groups", json={"name": name}),
            await caller.http.put("/v1/definitions", json=definition),
            await caller.http.post("/v1/schedules", json={"name": name, **schedule}),
        ):
            assert_problem(answer, 422, "name.ambiguous")
        async with pool.acquire() as conn, conn.transaction():
            with pytest.raises(Invalid):
                await create_workspace(conn, name)


async def test_group_is_not_deleted_while_a_schedule_or_window_about_it_is_made(
    caller: Caller, pool: Pool
) -> None:
    shops, stores = await group(caller), await group(caller, "stores")
    run: dict[str, object] = {
        "definition": LOOK, "groups": ["shops"], "targets": [], "tags": [], "config": {}, "priority": "high",
    }  # fmt: skip
    wanted = NewSchedule(caller.workspace_id, "nightly", run, SPEC)
    window = {"starts_at": "2099-01-01T00:00Z", "ends_at": "2099-01-02T00:00Z", "group": "stores"}
    waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"

    async with pool.acquire() as conn, conn.transaction():
        await create_schedule(conn, wanted, Act())
        deleting = asyncio.create_task(caller.http.post(f"/v1/groups/{shops}/delete"))
        await until(lambda: is_done_or(deleting, pool, waits))
    async with pool.acquire() as conn, conn.transaction():
        await delete_group(conn, caller.workspace_id, UUID(stores))
        making = asyncio.create_task(caller.http.post("/v1/blackouts", json=window))
        await until(lambda: is_done_or(making, pool, waits))

    assert_problem(await deleting, 409, "group.in_use")
    assert_problem(await making, 404, "group.not_found")


async def test_run_of_100000_targets_is_rows_and_is_prepared_chunk_by_chunk(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await pool.execute(
        """INSERT INTO targets (workspace_id, kind, value, tags)
           SELECT $1, 'domain', 'h' || n || '.lab.test', '{big}' FROM generate_series(1, $2) n""",
        caller.workspace_id,
        MANY,
    )
    shops = await group(caller, "big")
    added = await change(caller, shops, tags=["big"])

    answer = await caller.http.post("/v1/runs", json={"definition": LOOK, "groups": ["big"]})
    assert answer.status_code == 202, answer.text
    run_id = UUID(answer.json()["run_id"])
    shown = (await caller.http.get(f"/v1/runs/{run_id}")).json()
    assets = await pool.fetchval("SELECT count(*) FROM assets")
    async with pool.acquire() as conn:
        await pool.execute(  # as far as its start is concerned, all but the last chunk is done
            """UPDATE run_targets SET is_new = false WHERE run_id = $1 AND target_id NOT IN
                 (SELECT target_id FROM run_targets WHERE run_id = $1 ORDER BY target_id DESC LIMIT 1500)""",
            run_id,
        )
        chunks = [await admit_chunk(conn, run_id, "ports") for _ in range(4)]

    assert (added["changed"], added["targets"]) == (MANY, MANY)
    assert (shown["targets_total"], len(shown["targets"])) == (MANY, 1_000)
    assert assets == ADMITTED_AT_ONCE
    assert [(chunk.jobs, chunk.is_done) for chunk in chunks] == [
        (0, False), (0, False), (1_000, False), (1_000, False),
    ]  # fmt: skip
    assert await pool.fetchval("SELECT count(*) FROM run_targets WHERE is_new") == 0
    assert await pool.fetchval("SELECT max(created_at) < min(scope_as_of) FROM assets, run_steps")
    payloads = await pool.fetchval("SELECT max(length(payload::text)) FROM commands")
    assert payloads < 1_000


async def test_groups_schedules_and_windows_from_the_command_line(
    world: ApiWorld, caller: Caller, tmp_path: Path
) -> None:
    await tagged(caller, "a.test,prod", "b.test,lab", "c.test,lab")
    (tmp_path / "members.txt").write_text("b.test\n\n")

    async with served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        done = [
            await terminal.run(*command.split(), "--json")
            for command in (
                "group create shops --tag prod",
                "group add shops --file members.txt",
                "group targets shops --sort value",
                "target tag eu ^prod --group shops",
                "run start --group shops --definition domain_discovery",
                "schedule create nightly --group shops --tag lab --cron @daily",
                "schedule edit nightly --every 7200 --name often",
                "schedule run often",
                "blackout once 2099-01-01T00:00:00Z 2099-01-02T00:00:00Z --group shops --cancel",
                "group edit shops --name stores --no-tags",
                "run plan --tag lab",
            )
        ]
        nothing = await terminal.run("run", "start")

    assert [each.code for each in done] == [0] * len(done), [each.err for each in done]
    answers = [json.loads(each.out) for each in done]
    _, added, inside, retagged, _, _, edited, fired, window, renamed, plan = answers
    assert (added["changed"], added["targets"]) == (1, 2)
    assert [each["value"] for each in inside["items"]] == ["a.test", "b.test"]
    assert retagged["changed"] == 2
    assert (edited["name"], edited["spec"]["every_s"], edited["spec"]["cron"]) == ("often", 7200, None)
    assert (fired["outcome"], fired["asked_by"]) == ("ran", "test")
    assert (window["group_id"], window["policy"]) == (renamed["id"], "cancel")
    assert (renamed["name"], renamed["targets"]) == ("stores", 1)
    assert plan["steps"][0]["jobs"] == 2
    assert nothing.code == 2
