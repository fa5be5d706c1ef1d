"""Runs that events start: gathered, capped, filtered, and only by definitions that say so."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.results import EndedBatch, ResultActivities, SettleInput
from lanes.commands import Relayed, relay_once
from runlane.db import gathering
from runlane.db.acts import Act
from runlane.db.definitions import save_definition
from runlane.db.gathering import MAX_HOPS, Finder
from runlane.db.pool import Pool
from runlane.db.runs import Owner, close_run, load
from runlane.definitions import parse_definition
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import VulnerabilityDetected
from runlane.jobs import RunVerb
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from tests.integration.api_world import ApiWorld, Caller, assert_problem
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.scan_host import Done, enrol
from workflows.dispatching import Limits

pytestmark = pytest.mark.integration

STEP = {"look": {"run": "dnsprobe"}}


@pytest_asyncio.fixture
async def caller(world: ApiWorld) -> AsyncIterator[Caller]:
    async with world.caller("ours") as ours:
        yield ours


async def save(caller: Caller, name: str, **keys: object) -> str:
    """Saves a definition; returns its id."""
    body = {"definition": {"name": name, "jobs": STEP, **keys}}
    answer = await caller.http.put("/v1/definitions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def relay(world: ApiWorld, settings: Settings) -> Relayed:
    """One round of the relay once everything gathered is due."""
    await world.pool.execute("UPDATE gathered_targets SET gathered_at = gathered_at - interval '1 hour'")
    await world.pool.execute("UPDATE commands SET due_at = clock_timestamp() WHERE kind = 'trigger'")
    client = await Client.connect(settings.temporal_address)
    return await relay_once(world.pool, client, Limits())


async def test_new_targets_start_one_run_of_each_matching_definition_that_says_its_cause(
    world: ApiWorld, caller: Caller, settings: Settings
) -> None:
    first, second = (
        await save(caller, "first", on="target.created"),
        await save(caller, "second", on=["target.created"]),
    )
    await save(caller, "other")
    gone = await save(caller, "gone", on="target.created")
    async with world.caller("theirs") as theirs:
        await save(theirs, "foreign", on="target.created")
    targets = {await world.add_target(caller, f"t{number}.lab.test") for number in range(3)}
    await caller.http.post(f"/v1/definitions/{gone}/delete")

    await relay(world, settings)
    await relay(world, settings)

    rows = await world.pool.fetch("SELECT * FROM job_histories")
    assert {row["definition_id"] for row in rows} == {UUID(first), UUID(second)}
    assert {row["workspace_id"] for row in rows} == {caller.workspace_id}
    assert len(rows) == 2
    for row in rows:
        assert (row["trigger"], row["created_by"], row["hops"]) == ("event", "event target.created", 1)
        shown = (await caller.http.get(f"/v1/runs/{row['id']}")).json()
        assert set(shown["targets"]) == targets


async def test_import_of_many_targets_is_one_run_of_those_that_are_new(
    world: ApiWorld, caller: Caller, settings: Settings
) -> None:
    await world.add_target(caller, "known.lab.test")
    await save(caller, "scan", on="target.created")
    text = "value\nknown.lab.test\n" + "".join(f"t{number}.lab.test\n" for number in range(50))
    imported = await caller.http.post("/v1/targets/import", json={"text": text, "format": "csv"})

    await relay(world, settings)

    assert imported.json()["added"] == 50, imported.text
    assert await world.pool.fetchval("SELECT count(*) FROM job_histories") == 1
    assert await world.pool.fetchval("SELECT count(*) FROM run_targets") == 50


async def test_targets_after_a_triggered_run_are_gathered_anew(
    world: ApiWorld, caller: Caller, settings: Settings
) -> None:
    await save(caller, "scan", on="target.created")
    await world.add_target(caller, "a.lab.test")
    await relay(world, settings)
    await world.add_target(caller, "b.lab.test")

    await relay(world, settings)

    assert await world.pool.fetchval("SELECT count(*) FROM job_histories") == 2


async def test_what_was_gathered_for_a_definition_that_no_event_starts_any_more_starts_nothing_later(
    world: ApiWorld, caller: Caller, settings: Settings
) -> None:
    await save(caller, "watch", on=["target.created"])
    await world.add_target(caller, "before.test")
    await save(caller, "watch")
    await save(caller, "watch", on=["target.created"])
    await world.add_target(caller, "after.test")

    await relay(world, settings)
    await relay(world, settings)

    rows = await world.pool.fetch("SELECT t.value FROM run_targets r JOIN targets t ON t.id = r.target_id")
    assert [row["value"] for row in rows] == ["after.test"]


async def test_triggered_run_without_room_waits_until_there_is_some(
    world: ApiWorld, caller: Caller, settings: Settings
) -> None:
    await save(caller, "scan", on="target.created")
    run = await world.start_run(caller, await world.add_target(caller))
    await world.pool.execute("UPDATE workspaces SET max_open_runs = 1")

    full = await relay(world, settings)
    await caller.http.post(f"/v1/runs/{run}/cancel")
    await relay(world, settings)

    assert full.failed == 1
    assert await world.pool.fetchval("SELECT count(*) FROM job_histories WHERE trigger = 'event'") == 1


async def test_event_of_a_run_too_many_hops_from_a_person_starts_nothing_and_says_so(
    world: ApiWorld, caller: Caller, settings: Settings
) -> None:
    await save(caller, "scan", on="target.created")
    target = UUID(await world.add_target(caller))

    async with world.pool.acquire() as conn:
        for hops in range(MAX_HOPS + 2):
            await gathering.gather(conn, caller.workspace_id, "target.created", [target], hops=hops)
    await relay(world, settings)

    assert sorted(await hops_of(world)) == [1, 2, 3]
    stopped = await world.pool.fetch("SELECT data FROM outbox WHERE type = 'workflow.trigger.stopped'")
    assert [(row["data"]["name"], row["data"]["reason"], row["data"]["targets"]) for row in stopped] == [
        ("scan", "hop_limit", 1)
    ]
    assert await world.pool.fetchval("SELECT count(*) FROM gathered_targets") == 0


async def test_definition_that_starts_itself_stops_at_the_hop_limit_and_says_so(
    world: ApiWorld, caller: Caller, settings: Settings
) -> None:
    await save(caller, "again", on=[{"event": "workflow.run.completed", "definitions": "again"}])
    await save(caller, "other", on=[{"event": "workflow.run.completed", "definitions": ["unknown"]}])
    body = {"definition": "again", "targets": [await world.add_target(caller)]}
    await caller.http.post("/v1/runs", json=body)

    while await end_runs(world):
        await relay(world, settings)

    assert sorted(await hops_of(world)) == [0, 1, 2, 3]
    stopped = await world.pool.fetchval("SELECT data FROM outbox WHERE type = 'workflow.trigger.stopped'")
    assert (stopped["name"], stopped["cause"], stopped["reason"]) == (
        "again", "workflow.run.completed", "hop_limit",
    )  # fmt: skip


async def test_finding_starts_the_definitions_whose_filters_it_fits(
    world: ApiWorld, caller: Caller, settings: Settings
) -> None:
    event = "vulnerability.detected"
    fitting = {
        "plain": event,
        "grave": {"event": event, "severity": ["high", "critical"]},
        "tool": {"event": event, "tools": ["webcheck", "nuclei"]},
        "tag": {"event": event, "tags": ["shop"], "severity": "high"},
        "group": {"event": event, "groups": ["shops"]},
    }
    others = {
        "light": {"event": event, "severity": "low"},
        "scanner": {"event": event, "tools": ["nuclei"]},
        "untagged": {"event": event, "tags": ["lab"]},
        "elsewhere": {"event": event, "groups": ["labs"]},
        "asset": "asset.discovered",
    }
    for name, on in (fitting | others).items():
        await save(caller, name, on=[on])
    await caller.http.post("/v1/groups", json={"name": "shops", "tags": ["shop"]})
    await caller.http.post("/v1/groups", json={"name": "labs", "tags": ["lab"]})
    target = await world.add_target(caller)
    await world.pool.execute("UPDATE targets SET tags = '{shop}'")
    run_id = UUID(await world.start_run(caller, target))
    asset_id = await world.pool.fetchval("SELECT id FROM assets")
    await world.pool.execute("DELETE FROM gathered_targets")

    finder = Finder(caller.workspace_id, run_id, "webcheck")
    async with world.pool.acquire() as conn, conn.transaction():
        await gathering.gather_found(conn, finder, [_finding(caller, asset_id)])
    await relay(world, settings)

    rows = await world.pool.fetch("SELECT name, hops FROM job_histories WHERE trigger = 'event'")
    assert {row["name"] for row in rows} == fitting.keys()
    assert {row["hops"] for row in rows} == {1}
    causes = await world.pool.fetch("SELECT DISTINCT created_by FROM job_histories WHERE trigger = 'event'")
    assert [row["created_by"] for row in causes] == [f"event {event}"]


async def test_merge_notes_what_it_found_with_the_run_and_tool_that_found_it(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    run = await dispatched_run(pool, workspace_id, Shape("dnsprobe"))
    on = {"ours": ["dnsprobe"], "theirs": ["subfinder"]}
    for name, tools in on.items():
        entry = {"event": "asset.discovered", "tools": tools}
        definition = parse_definition({"name": name, "on": [entry], "jobs": STEP})
        async with pool.acquire() as conn, conn.transaction():
            await save_definition(conn, workspace_id, definition, Act())
    host = await enrol(pool, workspace_id)
    (job,) = (await host.claim(run.dispatches[0], "key", 1)).jobs
    found = Done(records=[{"name": "app.a.test"}, {"name": "www.a.test"}])
    await host.stage(await host.delivery(run.dispatches[0], [(job, found)]))

    results = ResultActivities(pool, Storage(StorageConfig(**settings.bucket)))
    batches = SettleInput([EndedBatch(str(run.dispatches[0]))])
    await ActivityEnvironment().run(results.settle_batches, batches)

    rows = await pool.fetch(
        """SELECT d.name, g.event, g.hops, g.run_id, t.value FROM gathered_targets g
           JOIN workflow_definitions d ON d.id = g.definition_id JOIN targets t ON t.id = g.target_id"""
    )
    assert [tuple(row) for row in rows] == [("ours", "asset.discovered", 1, run.run_id, "a.test")]


async def test_trigger_that_is_refused_for_good_says_so_and_lets_go(
    world: ApiWorld, caller: Caller, settings: Settings
) -> None:
    await save(caller, "scan", on="target.created")
    await world.add_target(caller)
    await world.pool.execute("UPDATE workflow_definitions SET body = jsonb_set(body, '{jobs}', '{}')")

    await relay(world, settings)

    stopped = await world.pool.fetchval("SELECT data FROM outbox WHERE type = 'workflow.trigger.stopped'")
    assert (stopped["cause"], stopped["reason"]) == ("target.created", "definition.invalid")
    assert await world.pool.fetchval("SELECT count(*) FROM gathered_targets") == 0


def _finding(caller: Caller, asset_id: UUID) -> Envelope:
    payload = VulnerabilityDetected(
        vulnerability_id=uuid4(), asset_id=asset_id, check_id="x", severity="high", url=None
    )
    return envelope(
        EVENT_CATALOG.vulnerability.detected,
        payload,
        workspace_id=caller.workspace_id,
        subject="vulnerability/x",
    )


async def hops_of(world: ApiWorld) -> list[int]:
    """Distances of all runs from a person."""
    return [row["hops"] for row in await world.pool.fetch("SELECT hops FROM job_histories")]


async def end_runs(world: ApiWorld) -> int:
    """Ends all open runs as if they had nothing to do; answers how many."""
    rows = await world.pool.fetch("SELECT id FROM job_histories WHERE closed_at IS NULL")
    for row in rows:
        async with world.pool.acquire() as conn, conn.transaction():
            await load(conn, row["id"], Owner("workflow", datetime.now(UTC)))
            await conn.execute("DELETE FROM jobs WHERE run_id = $1", row["id"])
            await conn.execute("UPDATE run_steps SET status = 'completed', closed_at = clock_timestamp()")
            await close_run(conn, row["id"], RunVerb.COMPLETE)
    return len(rows)


async def test_definitions_of_another_workspace_are_not_there(world: ApiWorld, caller: Caller) -> None:
    definition = await save(caller, "scan")

    async with world.caller("theirs") as theirs:
        listed = (await theirs.http.get("/v1/definitions")).json()["items"]
        deleted = await theirs.http.post(f"/v1/definitions/{definition}/delete")

    assert listed == []
    assert_problem(deleted, 404, "definition.not_found")
    assert len((await caller.http.get("/v1/definitions")).json()["items"]) == 1


async def test_definition_saved_again_is_a_new_version_and_faults_are_said_at_once(
    caller: Caller,
) -> None:
    await save(caller, "scan")
    await save(caller, "scan", on="target.created")

    (listed,) = (await caller.http.get("/v1/definitions")).json()["items"]
    bad = {"definition": {"name": "bad", "on": "target.abolished", "jobs": {"a": {"run": "nothing"}}}}
    refused = assert_problem(await caller.http.put("/v1/definitions", json=bad), 422, "definition.invalid")
    builtin = {"definition": {"name": "domain_discovery", "jobs": STEP}}

    assert (listed["version"], listed["body"]["on"]) == (2, ["target.created"])
    assert refused["fields"].keys() == {"on", "jobs.a.run"}  # type: ignore[attr-defined]
    assert_problem(await caller.http.put("/v1/definitions", json=builtin), 409, "definition.builtin")
