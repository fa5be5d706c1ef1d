"""Statistics and summaries as people read them, each of its own workspace only."""

from pathlib import Path

import pytest

from lanes import summaries
from runlane.db.keys import NewKey, Scope, check_pepper, create_key
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem, served
from tests.integration.inboxes import failed
from tests.integration.test_cli_api import Terminal
from tests.integration.test_projection import hand

pytestmark = pytest.mark.integration


async def test_statistics_and_summaries_are_those_of_the_own_workspace(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    target = await world.add_target(caller)
    run = await world.start_run(caller, target)
    await hand(pool, [failed(caller.workspace_id) for _ in range(3)])
    await pool.execute(
        "INSERT INTO target_summaries (workspace_id, target_id, last_run_id) VALUES ($1, $2, $3)",
        caller.workspace_id,
        target,
        run,
    )

    fresh = (await caller.http.get("/v1/workspace/summary")).json()
    await summaries.turn(pool)
    found = (await caller.http.get("/v1/statistics", params={"metric": "jobs", "days": 2})).json()["items"]
    ours = (await caller.http.get("/v1/workspace/summary")).json()
    own = (await caller.http.get(f"/v1/targets/{target}/summary")).json()

    assert [(row["metric"], row["kind"], row["value"]) for row in found] == [("jobs.failed", "counter", 3)]
    assert fresh["stale_since"] is not None
    assert (ours["targets"], ours["assets"], ours["runs_open"], ours["stale_since"]) == (1, 1, 1, None)
    assert (ours["today"]["jobs.failed"], ours["today"]["jobs.created"]) == (3, 0)
    assert own["findings"] == {"info": 0, "low": 0, "medium": 0, "high": 0, "critical": 0}
    assert (own["assets"], own["last_run"]["run_id"]) == (1, run)

    async with world.caller("theirs") as theirs:
        assert (await theirs.http.get("/v1/statistics", params={"metric": "jobs"})).json() == {"items": []}
        assert (await theirs.http.get("/v1/workspace/summary")).json()["targets"] == 0
        assert_problem(await theirs.http.get(f"/v1/targets/{target}/summary"), 404, "target.not_found")
    async with world.caller_of(caller.workspace_id, ["jobs:read"]) as other:
        assert (await other.http.get("/v1/statistics")).status_code == 403


async def test_range_is_bounded_and_metrics_are_known(caller: Caller) -> None:
    for params in ({"days": 401}, {"days": 0}, {"by": "hour"}, {"until": "never"}, {"x": 1}):
        assert_problem(await caller.http.get("/v1/statistics", params=params), 422, "request.invalid")
    unknown = await caller.http.get("/v1/statistics", params={"metric": "job"})
    assert_problem(unknown, 422, "statistic.unknown")


async def test_summaries_are_made_anew_for_a_platform_key_only(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings
) -> None:
    target = await world.add_target(caller)
    path = "/v1/platform/summaries/rebuild"
    pepper = check_pepper(settings.key_pepper.get_secret_value())
    async with pool.acquire() as conn, conn.transaction():
        key = await create_key(conn, NewKey("ops", None, [Scope.PLATFORM_ADMIN]), pepper)

    assert (await caller.http.post(path)).status_code == 403
    async with world.anybody(key.plaintext) as ops:
        for _ in range(2):
            assert (await ops.post(path)).json() == {"marked": 1}
    await summaries.turn(pool)

    own = (await caller.http.get(f"/v1/targets/{target}/summary")).json()
    assert (own["stale_since"], own["refreshed_at"] is not None) == (None, True)


async def test_person_reads_statistics_and_summaries(
    world: ApiWorld, caller: Caller, pool: Pool, tmp_path: Path
) -> None:
    target = await world.add_target(caller)
    await hand(pool, [failed(caller.workspace_id)])
    async with served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        listed = await terminal.run("stats", "jobs", "--days", "7", "--by", "month")
        rows = await terminal.run("stats", "--json")
        workspace = await terminal.run("summary")
        one = await terminal.run("summary", target, "--json")
        wrong = await terminal.run("stats", "nothing")

    assert "jobs.failed" in listed.out
    assert [row["metric"] for row in rows.json["items"]] == ["jobs.failed"]  # type: ignore[attr-defined]  # JSON
    assert "jobs.failed" in workspace.out
    assert one.json["value"] == "lab.test"
    assert (wrong.code != 0, "statistic.unknown" in wrong.err) == (True, True)
