"""Runs that new targets start: gathered, capped, and only by definitions that say so."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.client import Client

from lanes.commands import Relayed, relay_once
from runlane.db import triggers
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem
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


async def test_event_of_a_run_too_many_hops_from_a_person_starts_nothing(
    world: ApiWorld, caller: Caller
) -> None:
    await save(caller, "scan", on="target.created")
    target = UUID(await world.add_target(caller))

    async with world.pool.acquire() as conn:
        for hops in range(triggers.MAX_HOPS + 2):
            await triggers.gather(conn, caller.workspace_id, "target.created", [target], hops=hops)

    found = await world.pool.fetch("SELECT payload ->> 'hops' AS hops FROM commands WHERE kind = 'trigger'")
    assert {row["hops"] for row in found} == {"1", "2", "3"}


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
