"""Exclusions: what they cover is admitted as skipped, never claimed, and given to the tools."""

import random
from pathlib import Path
from uuid import UUID

import pytest

from runlane.cli.answers import objects_in
from runlane.db import scope
from runlane.db.acts import Act
from runlane.db.exclusions import MAX_EXCLUSIONS, NewExclusion, add_exclusion
from runlane.db.keys import NewKey, Scope, check_pepper, create_key
from runlane.db.pool import Pool
from runlane.errors import Conflict
from runlane.tools.exclusions import ExclusionKind, parse_denied, parse_exclusion
from tests.integration.api_world import ApiWorld, assert_problem, served
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.scan_host import enrol
from tests.integration.test_cli_api import Terminal

pytestmark = pytest.mark.integration

STATES = "SELECT spec ->> 'host' AS host, status, reason FROM jobs ORDER BY 1"
EVENTS = "SELECT type FROM outbox WHERE type LIKE 'job.%' ORDER BY 1"


async def exclude(pool: Pool, wanted: NewExclusion) -> int:
    """Adds an exclusion and says how many jobs it ended."""
    async with pool.acquire() as conn, conn.transaction():
        row = await add_exclusion(conn, wanted, Act(name="me", reason="production"))
    return int(str(row["jobs"]))


async def states(pool: Pool) -> list[tuple[str, str, str | None]]:
    return [tuple(row) for row in await pool.fetch(STATES)]


async def test_excluded_targets_are_skipped_as_they_are_admitted(pool: Pool, workspace_id: UUID) -> None:
    await exclude(pool, NewExclusion(workspace_id, ExclusionKind.HOST, "A.test."))
    await exclude(pool, NewExclusion(None, ExclusionKind.DOMAIN, "b.test"))

    run = await dispatched_run(pool, workspace_id, Shape(batches=1, jobs_each=3))

    assert await states(pool) == [
        ("a.test", "skipped", "out_of_scope"),
        ("b.test", "skipped", "out_of_scope"),
        ("c.test", "pending", None),
    ]
    assert len(run.dispatches) == 1
    assert [row["type"] for row in await pool.fetch(EVENTS)] == ["job.created"] * 3 + ["job.skipped"] * 2


async def test_exclusion_that_comes_after_the_dispatch_wins_over_the_claim(
    pool: Pool, workspace_id: UUID
) -> None:
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=2))
    host = await enrol(pool, workspace_id)
    await pool.execute(  # as one that was committed while the jobs were being admitted
        "INSERT INTO exclusions (workspace_id, kind, value) VALUES ($1, 'domain', 'a.test')", workspace_id
    )

    answer = await host.claim(run.dispatches[0], "key", 10)

    assert [job.spec["host"] for job in answer.jobs] == ["b.test"]
    assert await states(pool) == [
        ("a.test", "skipped", "out_of_scope"),
        ("b.test", "in_progress", None),
    ]
    assert await pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'job.skipped'") == 1


async def test_new_exclusion_ends_what_waits_and_what_runs(pool: Pool, workspace_id: UUID) -> None:
    run = await dispatched_run(pool, workspace_id, Shape(batches=3))
    host = await enrol(pool, workspace_id)
    running = (await host.claim(run.dispatches[0], "key", 10)).jobs[0].spec["host"]

    ended = await exclude(pool, NewExclusion(workspace_id, ExclusionKind.DOMAIN, "test"))
    again = await exclude(pool, NewExclusion(workspace_id, ExclusionKind.DOMAIN, "TEST"))

    assert (ended, again) == (3, 0)
    found = {state[0]: state[1:] for state in await states(pool)}
    assert found.pop(str(running)) == ("cancelled", "out_of_scope")
    assert set(found.values()) == {("skipped", "out_of_scope")}
    assert (await host.claim(run.dispatches[1], "other", 10)).jobs == ()


async def test_exclusions_of_one_target_reach_its_jobs_only(pool: Pool, workspace_id: UUID) -> None:
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=2))
    host = await enrol(pool, workspace_id)
    target_id = await pool.fetchval("SELECT id FROM targets WHERE value = 'a.test'")
    await exclude(pool, NewExclusion(workspace_id, ExclusionKind.PORT, "22", target_id))
    await exclude(pool, NewExclusion(None, ExclusionKind.NETWORK, "192.0.2.0/24"))

    answer = await host.claim(run.dispatches[0], "key", 10)

    assert answer.options["deny"] == ["192.0.2.0/24"]
    assert {job.spec["host"]: job.spec.get("deny") for job in answer.jobs} == {
        "a.test": [":22"],
        "b.test": None,
    }


async def test_database_and_tools_judge_alike(pool: Pool, workspace_id: UUID) -> None:
    chance = random.Random(7)
    wrapped = ["::ffff:{}", "64:ff9b::{}"]
    v4 = [f"192.0.{chance.randrange(4)}.{chance.randrange(8)}" for _ in range(20)]
    places = [
        *(name for name in ("a.test", "b.a.test", "xa.test", "test", "a.test.b")),
        *v4,
        *(form.format(address) for address in v4[:6] for form in wrapped),
        *("2002:c000:0203::1", "2002:c000:203:4::", "2001:db8::7", "192.0.2.0/30", "192.0.0.0/22"),
    ]
    exclusions = [
        parse_exclusion(ExclusionKind(kind), value)
        for kind, value in (
            *(("domain", "a.test"), ("host", "test"), ("host", "2001:db8::7"), ("network", "0.0.0.0/0")),
            *(("network", "192.0.2.0/24"), ("network", "192.0.1.4/30"), ("network", "::/0")),
            *(("network", "2002:c000:200::/40"), ("network", "64:ff9b::/96")),
        )
    ]
    sql = f"""
SELECT {scope.covers("j")}
FROM (SELECT $1::uuid AS workspace_id, NULL::uuid AS target_id,
             jsonb_build_object('host', $2::text) AS spec) j,
     (SELECT $1::uuid AS workspace_id, NULL::uuid AS target_id, $3::text AS kind, $4::text AS value) x
"""  # noqa: S608

    for place in places:
        for each in exclusions:
            found = await pool.fetchval(sql, workspace_id, place, each.kind, each.value)
            assert found == parse_denied((each.text,)).has_place(place), (place, each)


async def test_exclusions_over_http_and_on_the_command_line(
    world: ApiWorld, pool: Pool, tmp_path: Path
) -> None:
    async with world.caller("ours") as ours, world.caller("theirs") as theirs, served(world.app) as url:
        terminal = Terminal(url, ours.key, tmp_path, world.settings)
        added = await terminal.run(
            "exclusion", "add", "--domain", "pay.example.com", "--reason", "fragile", "--json"
        )
        both = await terminal.run("exclusion", "add", "--domain", "a.test", "--port", "22")
        listed = await terminal.run("exclusion", "list", "--json")
        row = added.json

        bad = await ours.http.post("/v1/exclusions", json={"kind": "network", "value": "10.0.0.1/8"})
        foreign = await theirs.http.post(f"/v1/exclusions/{row['id']}/remove")
        no_target = await ours.http.post(
            "/v1/exclusions", json={"kind": "port", "value": "22", "target_id": row["id"]}
        )
        refused = await ours.http.post("/v1/platform/exclusions", json={"kind": "port", "value": "22"})
        removed = await terminal.run("exclusion", "remove", str(row["id"]), "--json")

    assert (row["kind"], row["value"], row["reason"], row["jobs"]) == (
        "domain",
        "pay.example.com",
        "fragile",
        0,
    )
    assert row["created_by"]
    assert both.code == 2
    assert [each["id"] for each in objects_in(listed.json, "items")] == [row["id"]]
    assert_problem(bad, 422, "exclusion.network")
    assert_problem(foreign, 404, "exclusion.not_found")
    assert_problem(no_target, 404, "target.not_found")
    assert_problem(refused, 403, "key.scope")
    assert removed.json["id"] == row["id"]
    acts = await pool.fetch(
        "SELECT data ->> 'action' AS action FROM outbox WHERE data ? 'action' ORDER BY id"
    )
    assert sorted(each["action"] for each in acts) == ["exclusion.remove", "exclusion.set"]


async def test_platform_exclusion_counts_everywhere_and_workspaces_cannot_lift_it(
    world: ApiWorld, pool: Pool
) -> None:
    async with pool.acquire() as conn, conn.transaction():
        pepper = check_pepper(world.settings.key_pepper.get_secret_value())
        key = await create_key(conn, NewKey("ops", None, [Scope.PLATFORM_ADMIN]), pepper)
    headers = {"Authorization": f"Bearer {key.plaintext}"}
    async with world.caller("ours") as ours:
        body = {"kind": "domain", "value": "*.mil", "reason": "law"}
        made = (await ours.http.post("/v1/platform/exclusions", json=body, headers=headers)).json()
        seen = (await ours.http.get("/v1/exclusions")).json()["items"]
        lifted = await ours.http.post(f"/v1/exclusions/{made['id']}/remove")
        target = (await ours.http.post("/v1/targets", json={"value": "base.mil"})).json()["id"]
        run = {"definition": {"name": "test", "jobs": {"a": {"run": "noop"}}}, "targets": [target]}
        plan = (await ours.http.post("/v1/runs?plan=true", json=run)).json()

    assert (made["workspace_id"], made["value"]) == (None, "mil")
    assert [each["id"] for each in seen] == [made["id"]]
    assert_problem(lifted, 404, "exclusion.not_found")
    assert [(step["jobs"], step["skipped"]) for step in plan["steps"]] == [(0, {"out_of_scope": 1})]


async def test_exclusions_are_bounded(pool: Pool, workspace_id: UUID) -> None:
    await pool.execute(
        """INSERT INTO exclusions (workspace_id, kind, value)
           SELECT $1, 'port', n::text FROM generate_series(1, $2::int) n""",
        workspace_id,
        MAX_EXCLUSIONS,
    )

    with pytest.raises(Conflict, match="500 exclusions already"):
        await exclude(pool, NewExclusion(workspace_id, ExclusionKind.PORT, "65000"))
