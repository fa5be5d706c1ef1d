"""Projects over the API, and the runs that their new assets and findings start."""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from lanes.evaluations import evaluate
from lanes.projects import ProjectsSink
from runlane.db import gathering
from runlane.db.acts import Act
from runlane.db.cancel import cancel_run
from runlane.db.gathering import Finder
from runlane.db.pool import Pool
from runlane.events import BusEvent, Envelope
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem, served
from tests.integration.merge_world import START
from tests.integration.test_cli_api import Terminal
from tests.integration.test_triggers import end_runs, hops_of, relay, save

pytestmark = pytest.mark.integration

ROOT = "/v1/projects"
DOMAIN = {"kind": "domain", "value": "shop.test"}


async def project(caller: Caller, name: str = "shop", *rules: dict[str, str]) -> dict[str, object]:
    """Makes a project."""
    answer = await caller.http.post(ROOT, json={"name": name, "rules": list(rules or (DOMAIN,))})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def evaluate_all(pool: Pool) -> None:
    """Compares all assets with all projects that are due."""
    while await evaluate(pool):
        pass


async def find(pool: Pool, target: str, *values: str, run_id: UUID | None = None) -> list[UUID]:
    """Writes new assets of a target, as a run has found them."""
    rows = await pool.fetch(
        """INSERT INTO assets (workspace_id, target_id, run_id, value, first_seen, last_seen)
           SELECT t.workspace_id, t.id, $2, v, $3, $3 FROM targets t, unnest($4::text[]) v WHERE t.id = $1
           RETURNING id""",
        UUID(target), run_id, START, list(values),
    )  # fmt: skip
    return [row["id"] for row in rows]


def sent(caller: Caller, event: str, run_id: UUID | None = None, **ids: object) -> Envelope:
    """An event as the bus has it."""
    data = {name: str(value) for name, value in ids.items()} | ({"run_id": str(run_id)} if run_id else {})
    return Envelope(uuid4(), event, caller.workspace_id, "asset/x", dict(data))


async def hand(pool: Pool, events: Sequence[Envelope]) -> None:
    """Hands events to the sink, as one turn of the lane would."""
    async with pool.acquire() as conn, conn.transaction():
        now = await conn.fetchval("SELECT clock_timestamp()")
        await ProjectsSink().handle(conn, [BusEvent(event, at, now) for at, event in enumerate(events, 1)])


async def told(pool: Pool, prefix: str = "project.") -> list[tuple[str, str]]:
    """Events of projects in the outbox: type and name, in their order."""
    rows = await pool.fetch(
        "SELECT type, data ->> 'name' AS name FROM outbox WHERE starts_with(type, $1) ORDER BY id", prefix
    )
    return [(row["type"], row["name"]) for row in rows]


async def finding(pool: Pool, caller: Caller, asset_id: UUID, severity: str = "high") -> UUID:
    """Writes an open finding on an asset."""
    found: UUID = await pool.fetchval(
        """INSERT INTO vulnerabilities (workspace_id, asset_id, check_id, name, severity, fingerprint,
                                        first_seen, last_seen)
           VALUES ($1, $2, 'x', 'x', $3, sha256($2::uuid::text::bytea), $4, $4) RETURNING id""",
        caller.workspace_id, asset_id, severity, START,
    )  # fmt: skip
    return found


async def test_project_is_made_changed_and_deleted_with_its_version_and_leaves_a_trail(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    target = await world.add_target(caller, "shop.test")
    await find(pool, target, "shop.test", "www.shop.test", "shop.test.evil.test", "myshop.test")
    made = await project(caller, "shop", DOMAIN, {"kind": "domain", "value": "*.Shop.test"})
    await evaluate_all(pool)

    shown = await caller.http.get(f"{ROOT}/{made['id']}")
    page = (await caller.http.get(f"{ROOT}/{made['id']}/assets", params={"limit": 1, "sort": "value"})).json()
    rest = await caller.http.get(
        f"{ROOT}/{made['id']}/assets", params={"limit": 5, "sort": "value", "after": page["next"]}
    )
    body = {"name": "shops", "rules": [{"kind": "domain", "value": "www.shop.test"}]}
    stale = await caller.http.patch(f"{ROOT}/{made['id']}", json=body, headers={"If-Match": '"7"'})
    edited = await caller.http.patch(f"{ROOT}/{made['id']}", json=body, headers={"If-Match": '"1"'})
    await evaluate_all(pool)
    after = (await caller.http.get(f"{ROOT}/{made['id']}/assets")).json()["items"]
    deleted = await caller.http.post(f"{ROOT}/{made['id']}/delete")

    assert (shown.json()["rules"], shown.json()["assets"]) == ([DOMAIN], 2)
    assert shown.headers["ETag"] == '"1"'
    assert [each["value"] for each in page["items"] + rest.json()["items"]] == ["shop.test", "www.shop.test"]
    assert_problem(stale, 412, "etag.stale")
    assert (edited.json()["name"], edited.json()["version"]) == ("shops", 2)
    assert [each["value"] for each in after] == ["www.shop.test"]
    assert deleted.json()["assets"] == 1
    assert_problem(await caller.http.get(f"{ROOT}/{made['id']}"), 404, "project.not_found")
    assert await pool.fetchval("SELECT count(*) FROM project_assets") == 0
    assert await told(pool) == [
        ("project.created", "shop"), ("project.assets.added", "shop"), ("project.updated", "shops"),
        ("project.assets.removed", "shops"), ("project.deleted", "shops"),
    ]  # fmt: skip


async def test_everything_that_is_wrong_with_a_project_is_said_at_once(caller: Caller) -> None:
    rules = [
        DOMAIN,
        {"kind": "target", "value": str(uuid4())},
        {"kind": "group", "value": "none"},
        {"kind": "cidr", "value": "10.0.0.1/8"},
        {"kind": "port", "value": "0"},
    ]
    refused = await caller.http.post(ROOT, json={"name": "x", "rules": rules})

    problem = assert_problem(refused, 422, "project.rules")
    assert problem["fields"].keys() == {f"rules.{number}.value" for number in range(1, 5)}  # type: ignore[attr-defined]
    assert_problem(await caller.http.post(ROOT, json={"name": "x", "rules": []}), 422, "project.rules")
    await project(caller, "taken")
    assert_problem(
        await caller.http.post(ROOT, json={"name": "taken", "rules": [DOMAIN]}), 409, "project.duplicate"
    )


async def test_group_that_a_project_is_about_cannot_be_deleted_and_its_members_are_in(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await find(pool, await world.add_target(caller, "shop.test"), "a.shop.test")
    await find(pool, await world.add_target(caller, "other.test"), "a.other.test")
    group = (await caller.http.post("/v1/groups", json={"name": "shops"})).json()
    made = await project(caller, "grouped", {"kind": "group", "value": "shops"})
    await evaluate_all(pool)
    await caller.http.post(f"/v1/groups/{group['id']}/members", json={"values": ["shop.test"]})
    changed = sent(caller, "asset_group.updated")

    await hand(pool, [changed])
    await evaluate_all(pool)

    (inside,) = (await caller.http.get(f"{ROOT}/{made['id']}/assets")).json()["items"]
    assert inside["value"] == "a.shop.test"
    assert_problem(await caller.http.post(f"/v1/groups/{group['id']}/delete"), 409, "group.in_use")


async def test_new_assets_start_one_run_of_each_project_that_says_which_one_it_is_for(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings
) -> None:
    await save(caller, "any", on="project.assets.added")
    await save(caller, "named", on=[{"event": "project.assets.added", "projects": "shop"}])
    await save(caller, "other", on=[{"event": "project.assets.added", "projects": ["unknown"]}])
    one = await project(caller, "shop")
    two = await project(caller, "tagged", {"kind": "tag", "value": "lab"})
    target = await world.add_target(caller, "shop.test")
    await pool.execute("UPDATE targets SET tags = '{lab}'")
    found = await find(pool, target, "www.shop.test", "a.shop.test")

    await hand(pool, [sent(caller, "asset.discovered", asset_id=each) for each in found])
    await hand(pool, [sent(caller, "asset.discovered", asset_id=each) for each in found])
    await relay(world, settings)
    await relay(world, settings)
    await end_runs(world)

    rows = await pool.fetch("SELECT name, project_id, hops, created_by FROM job_histories")
    assert {(row["name"], str(row["project_id"])) for row in rows} == {
        ("any", one["id"]), ("any", two["id"]), ("named", one["id"])
    }  # fmt: skip
    assert len(rows) == 3
    assert {(row["hops"], row["created_by"]) for row in rows} == {(1, "event project.assets.added")}
    assert sorted(await told(pool, "project.run.")) == [
        ("project.run.completed", "shop"), ("project.run.completed", "shop"),
        ("project.run.completed", "tagged"), ("project.run.started", "shop"),
        ("project.run.started", "shop"), ("project.run.started", "tagged"),
    ]  # fmt: skip
    assert sorted(await told(pool, "project.trigger.")) == [
        ("project.trigger.matched", "shop"), ("project.trigger.matched", "shop"),
        ("project.trigger.matched", "tagged"),
    ]  # fmt: skip
    assert await told(pool, "project.assets.") == [
        ("project.assets.added", "shop"), ("project.assets.added", "tagged")
    ]  # fmt: skip


async def test_run_that_adds_assets_to_its_own_project_starts_itself_three_times_and_then_says_so(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings
) -> None:
    await save(caller, "again", on="project.assets.added")
    await project(caller)
    target = await world.add_target(caller, "shop.test")
    run_id: UUID | None = None

    for turn in range(6):
        (found,) = await find(pool, target, f"a{turn}.shop.test", run_id=run_id)
        await hand(pool, [sent(caller, "asset.discovered", run_id, asset_id=found)])
        await relay(world, settings)
        newest = await pool.fetchval("SELECT id FROM job_histories ORDER BY hops DESC LIMIT 1")
        run_id = newest

    assert sorted(await hops_of(world)) == [1, 2, 3]
    stopped = await pool.fetchval("SELECT data FROM outbox WHERE type = 'workflow.trigger.stopped' LIMIT 1")
    assert (stopped["cause"], stopped["reason"]) == ("project.assets.added", "hop_limit")


async def test_change_of_rules_by_a_person_starts_runs_on_what_runs_far_away_have_found(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings
) -> None:
    await save(caller, "scan", on="project.assets.added")
    target = await world.add_target(caller, "shop.test")
    run = UUID(await world.start_run(caller, target))
    await pool.execute("UPDATE job_histories SET hops = 3")
    await find(pool, target, "www.shop.test", run_id=run)
    await project(caller)

    await evaluate_all(pool)
    await find(pool, target, "later.shop.test", run_id=run)
    await pool.execute("UPDATE projects SET due_at = clock_timestamp()")
    await evaluate_all(pool)

    rows = await pool.fetch("SELECT DISTINCT hops FROM gathered_targets ORDER BY hops")
    assert [row["hops"] for row in rows] == [1, 4]


async def test_finding_in_a_project_starts_the_definitions_that_name_it_and_others_do_not(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings
) -> None:
    event = "vulnerability.detected"
    await save(caller, "inside", on=[{"event": event, "projects": ["shop"], "severity": ["high"]}])
    await save(caller, "light", on=[{"event": event, "projects": ["shop"], "severity": ["low"]}])
    made = await project(caller)
    target = await world.add_target(caller, "shop.test")
    assets = await find(pool, target, "www.shop.test", "elsewhere.test")
    findings = [await finding(pool, caller, asset) for asset in assets]

    async with pool.acquire() as conn, conn.transaction():
        finder = Finder(caller.workspace_id, uuid4(), "webcheck")
        merged = [sent(caller, event, vulnerability_id=findings[0], asset_id=assets[0], severity="high")]
        await gathering.gather_found(conn, finder, merged)
    assert await pool.fetchval("SELECT count(*) FROM gathered_targets") == 0  # that is the lane's
    await hand(
        pool,
        [
            sent(caller, event, vulnerability_id=found, asset_id=asset)
            for found, asset in zip(findings, assets, strict=True)
        ],
    )
    await relay(world, settings)

    (row,) = await pool.fetch("SELECT id, name, project_id, created_by FROM job_histories")
    assert (row["name"], str(row["project_id"])) == ("inside", made["id"])
    assert row["created_by"] == "event vulnerability.detected"
    shown = (await caller.http.get(f"/v1/runs/{row['id']}")).json()
    assert shown["project_id"] == made["id"]
    matched = await pool.fetch("SELECT data FROM outbox WHERE type = 'project.trigger.matched'")
    assert [(each["data"]["cause"], each["data"]["name"]) for each in matched] == [(event, "shop")]
    async with pool.acquire() as conn, conn.transaction():
        await cancel_run(conn, caller.workspace_id, row["id"], Act())
    assert await told(pool, "project.run.") == [("project.run.failed", "shop")]
    again = await caller.http.post(f"/v1/runs/{row['id']}/rerun")
    assert again.status_code == 202, again.text
    assert await pool.fetchval("SELECT count(*) FROM job_histories WHERE project_id IS NOT NULL") == 2


async def test_project_that_is_deleted_starts_nothing_any_more(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings
) -> None:
    await save(caller, "scan", on="project.assets.added")
    made = await project(caller)
    (found,) = await find(pool, await world.add_target(caller, "shop.test"), "www.shop.test")
    await hand(pool, [sent(caller, "asset.discovered", asset_id=found)])

    await caller.http.post(f"{ROOT}/{made['id']}/delete")
    await hand(pool, [sent(caller, "asset.discovered", asset_id=found)])
    await relay(world, settings)

    assert await pool.fetchval("SELECT count(*) FROM job_histories") == 0
    assert await pool.fetchval("SELECT count(*) FROM gathered_targets") == 0


async def test_project_is_made_listed_changed_and_deleted_from_the_command_line(
    world: ApiWorld, caller: Caller, tmp_path: Path
) -> None:
    async with served(world.app) as url:
        await _use(Terminal(url, caller.key, tmp_path, world.settings))


async def _use(terminal: Terminal) -> None:
    made = await terminal.run("project", "create", "shop", "--rule", "domain=shop.test", "--rule", "port=443")
    listed = await terminal.run("project", "list", "--json")
    edited = await terminal.run("project", "edit", "shop", "--rule", "tag=shop", "--json")
    shown = await terminal.run("project", "show", "shop")
    inside = await terminal.run("project", "assets", "shop", "--json")
    wrong = await terminal.run("project", "edit", "shop", "--rule", "shop.test")
    deleted = await terminal.run("project", "delete", "shop")

    assert [each.code for each in (made, listed, edited, shown, inside, deleted)] == [0] * 6, edited.err
    assert '"name":"shop"' in listed.out
    assert '"version":2' in edited.out
    assert "tag=shop" in shown.out
    assert wrong.code == 2
