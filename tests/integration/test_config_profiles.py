"""Profiles of options: checked when saved, laid under a step's own, frozen into the run that begins."""

from pathlib import Path

import pytest

from runlane.db.pool import Pool
from tests.integration.api_world import ApiWorld, Caller, assert_problem, served
from tests.integration.test_cli_api import Terminal

pytestmark = pytest.mark.integration

PATH = "/v1/config-profiles"
PROFILE = {"tool": "nuclei", "name": "gentle", "options": {"rate": 5, "concurrency": 2}}


def run_with(profile: str, target: str, **config: object) -> dict[str, object]:
    step = {"run": "nuclei", "config_profile": profile, "config": config}
    return {"definition": {"name": "test", "jobs": {"only": step}}, "targets": [target]}


async def test_step_has_the_options_of_its_profile_under_its_own_and_keeps_them(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    target = await world.add_target(caller)
    await caller.http.put(PATH, json=PROFILE)
    body = run_with("gentle", target, rate=9)

    plan = await caller.http.post("/v1/runs?plan=true", json=body)
    started = await caller.http.post("/v1/runs", json=body)
    await caller.http.put(PATH, json=PROFILE | {"options": {"rate": 1}})

    assert plan.json()["steps"][0]["config"] == {"rate": 9, "concurrency": 2}
    row = await pool.fetchrow(
        """SELECT s.config, h.definition FROM run_steps s JOIN job_histories h ON h.id = s.run_id
           WHERE s.run_id = $1""",
        started.json()["run_id"],
    )
    assert row is not None
    assert row["config"] == {"rate": 9, "concurrency": 2}
    assert row["definition"]["jobs"]["only"]["config"] == row["config"]


async def test_unknown_profile_is_refused_when_it_is_saved_and_when_it_is_started(
    world: ApiWorld, caller: Caller
) -> None:
    target = await world.add_target(caller)
    saved = (await caller.http.put(PATH, json=PROFILE)).json()
    body = run_with("gentle", target)
    other_tool = {"name": "test", "jobs": {"only": {"run": "httpx", "config_profile": "gentle"}}}

    fits = await caller.http.put("/v1/definitions", json={"definition": body["definition"]})
    unfit = await caller.http.put("/v1/definitions", json={"definition": other_tool})
    async with world.caller("theirs") as theirs:
        listed = (await theirs.http.get(PATH)).json()["items"]
        foreign = await theirs.http.post(f"{PATH}/{saved['id']}/delete")
    gone = await caller.http.post(f"{PATH}/{saved['id']}/delete")
    refused = await caller.http.post("/v1/runs", json=body)

    assert fits.status_code == gone.status_code == 200
    assert_problem(unfit, 422, "config_profile.unknown")
    problem = assert_problem(refused, 422, "config_profile.unknown")
    assert list(problem["fields"]) == ["jobs.only.config_profile"]  # type: ignore[call-overload]  # a mapping
    assert listed == []
    assert_problem(foreign, 404, "config_profile.not_found")


async def test_profile_is_checked_as_the_options_of_a_step_are(caller: Caller, pool: Pool) -> None:
    fine = await caller.http.put(PATH, json=PROFILE)
    again = await caller.http.put(PATH, json=PROFILE)
    unfit = await caller.http.put(PATH, json=PROFILE | {"options": {"rate": "fast", "colour": 1}})
    secret = await caller.http.put(
        PATH, json=PROFILE | {"options": {"headers": {"Cookie": "a=b"}}} | {"tool": "webprobe"}
    )
    large = await caller.http.put(
        PATH, json=PROFILE | {"options": {"words": "x" * 70_000}} | {"tool": "webprobe"}
    )
    unknown = await caller.http.put(PATH, json=PROFILE | {"tool": "nothing"})

    assert fine.json() == again.json()
    problem = assert_problem(unfit, 422, "config_profile.invalid")
    assert set(problem["fields"]) == {"options.rate", "options.colour"}  # type: ignore[call-overload]  # a mapping
    assert_problem(secret, 422, "definition.inline_secret")
    assert_problem(large, 422, "config_profile.too_large")
    assert_problem(unknown, 422, "tool.unknown")
    acts = await pool.fetch("SELECT data ->> 'action' AS action FROM outbox WHERE data ? 'action'")
    assert [row["action"] for row in acts] == ["config_profile.save"]


async def test_profile_on_the_command_line(world: ApiWorld, caller: Caller, tmp_path: Path) -> None:
    async with served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        saved = await terminal.run("config-profile", "save", "nuclei", "gentle", "--set", "rate=5", "--json")
        listed = await terminal.run("config-profile", "list", "--json")
        deleted = await terminal.run("config-profile", "delete", "@last", "--json")

    assert (saved.code, listed.code, deleted.code) == (0, 0, 0), listed.err
    assert saved.json["options"] == {"rate": 5}
    assert "gentle" in listed.out
    assert deleted.json["id"] == saved.json["id"]
