"""Runs that are started by the name of a saved definition, and the versions of one."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from runlane.db.pool import Pool
from tests.integration.api_world import ApiWorld, Caller, assert_problem, served
from tests.integration.test_cli_api import Terminal

pytestmark = pytest.mark.integration


async def save(caller: Caller, name: str = "look", tool: str = "dnsprobe") -> str:
    """Saves a definition of one step; returns its id."""
    body = {"definition": {"name": name, "jobs": {"look": {"run": tool}}}}
    answer = await caller.http.put("/v1/definitions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def test_run_by_name_keeps_the_version_that_it_began_with(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    definition = await save(caller)
    target = await world.add_target(caller)
    body = {"definition": "look", "targets": [target]}

    first = (await caller.http.post("/v1/runs", json=body)).json()["run_id"]
    await save(caller, tool="portprobe")
    plan = (await caller.http.post("/v1/runs?plan=true", json=body)).json()
    second = (await caller.http.post("/v1/runs", json=body)).json()["run_id"]

    shown = [(await caller.http.get(f"/v1/runs/{run}")).json() for run in (first, second)]
    assert [(run["definition_id"], run["definition_version"]) for run in shown] == [
        (definition, 1),
        (definition, 2),
    ]
    assert [run["steps"][0]["tool_id"] for run in shown] == ["dnsprobe", "portprobe"]
    assert plan["steps"][0]["tool_id"] == "portprobe"
    frozen = await pool.fetchval("SELECT definition FROM job_histories WHERE id = $1", UUID(first))
    assert frozen["jobs"]["look"]["run"] == "dnsprobe"


async def test_versions_are_listed_and_name_who_saved_them(caller: Caller) -> None:
    definition = await save(caller)
    await save(caller, tool="portprobe")

    path = f"/v1/definitions/{definition}"
    shown = (await caller.http.get(path)).json()
    versions = (await caller.http.get(f"{path}/versions")).json()["items"]

    assert (shown["version"], shown["body"]["jobs"]["look"]["run"]) == (2, "portprobe")
    assert [(each["version"], each["body"]["jobs"]["look"]["run"]) for each in versions] == [
        (2, "portprobe"),
        (1, "dnsprobe"),
    ]
    assert {each["saved_by"] for each in versions} == {"test"}


async def test_name_of_another_workspace_or_of_a_deleted_definition_is_unknown(
    world: ApiWorld, caller: Caller
) -> None:
    definition = await save(caller)
    async with world.caller("theirs") as theirs:
        body = {"definition": "look", "targets": [await world.add_target(theirs)]}
        foreign = await theirs.http.post("/v1/runs", json=body)
        hidden = [await theirs.http.get(f"/v1/definitions/{definition}{end}") for end in ("", "/versions")]
    await caller.http.post(f"/v1/definitions/{definition}/delete")
    deleted = await caller.http.post(
        "/v1/runs", json={"definition": "look", "targets": [await world.add_target(caller)]}
    )

    for answer in hidden:
        assert_problem(answer, 404, "definition.not_found")
    for answer in (foreign, deleted):
        assert_problem(answer, 422, "definition.unknown")


async def test_run_and_versions_by_name_from_the_command_line(
    world: ApiWorld, caller: Caller, tmp_path: Path
) -> None:
    await save(caller, "deep look")
    await world.add_target(caller)

    async with served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        started = await terminal.run("run", "start", "-t", "lab.test", "--definition", "deep look", "--json")
        versions = await terminal.run("definition", "versions", "deep look", "--json")
        shown = await terminal.run("definition", "show", "deep look", "--json")

    assert started.code == 0, started.err
    assert [each["version"] for each in json.loads(versions.out)["items"]] == [1]
    assert json.loads(shown.out)["body"]["name"] == "deep look"
