"""Schedules as people use them: edited, fired by hand, about groups, tags and saved definitions."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import httpx2
import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.schedules import FireOutcome
from runlane.settings import Settings
from tests.integration.api_world import assert_problem
from tests.integration.schedule_world import ScheduleWorld, is_found, schedule_world, served
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ScheduleWorld]:
    async with schedule_world(settings, pool) as opened:
        yield opened


async def test_edit_needs_the_version_that_was_read_and_temporal_follows(world: ScheduleWorld) -> None:
    schedule = await world.create(overlap="buffer_one")
    await world.create("other")
    path = f"/v1/schedules/{schedule}"
    read = await world.caller.http.get(path)

    async def edit(tag: str | None, **body: object) -> httpx2.Response:
        headers = {} if tag is None else {"If-Match": tag}
        return await world.caller.http.patch(path, json=body, headers=headers)

    blind = await edit(None, cron="@daily")
    edited = await edit(read.headers["etag"], every_s=7200, name="often", priority="high")
    stale = await edit(read.headers["etag"], cron="@daily")
    faulty = await edit(edited.headers["etag"], cron="61 * * * *", groups=["unknown"])
    taken = await edit(edited.headers["etag"], name="other")
    await world.relay()

    for answer, status, code in (
        (blind, 428, "etag.required"),
        (stale, 412, "etag.stale"),
        (faulty, 422, "schedule.invalid"),
        (taken, 409, "schedule.duplicate"),
    ):
        assert_problem(answer, status, code)
    assert faulty.json()["fields"].keys() == {"cron", "groups"}
    shown = edited.json()
    assert (shown["name"], shown["spec"]["cron"], shown["spec"]["every_s"]) == ("often", None, 7200)
    assert (shown["run"]["targets"], shown["run"]["priority"]) == ([world.target], "high")
    assert shown["version"] == read.json()["version"] + 1
    assert (await world.told(schedule)).spec.intervals[0].every == timedelta(hours=2)
    expected_at = await world.api.pool.fetchval(
        "SELECT expected_at FROM schedules WHERE id = $1", UUID(schedule)
    )
    assert expected_at.isoformat().replace("+00:00", "Z") == shown["next_fires"][0]


async def test_fire_now_is_in_the_ledger_with_who_wanted_it_also_while_paused(world: ScheduleWorld) -> None:
    schedule = await world.create(overlap="skip")
    await world.act(schedule, "pause")
    path = f"/v1/schedules/{schedule}/run"
    once = {"Idempotency-Key": "now"}

    fired = (await world.caller.http.post(path, json={"reason": "audit"}, headers=once)).json()
    again = (await world.caller.http.post(path, json={"reason": "audit"}, headers=once)).json()
    open_one = (await world.caller.http.post(path)).json()
    async with world.api.caller("theirs") as theirs:
        foreign = await theirs.http.post(path)

    assert fired == again
    assert (fired["outcome"], fired["asked_by"]) == ("ran", "test")
    assert (open_one["outcome"], open_one["run_id"]) == ("skipped", None)
    assert_problem(foreign, 404, "schedule.not_found")
    ledger = await world.ledger(schedule)
    assert [(entry["outcome"], entry["run_id"]) for entry in ledger] == [
        ("ran", fired["run_id"]),
        ("skipped", None),
    ]
    run = (await world.caller.http.get(f"/v1/runs/{fired['run_id']}")).json()
    assert (run["trigger"], run["created_by"]) == ("schedule", "test")
    assert await world.events("operator.acted") == ["operator.acted"] * 2


async def test_fire_now_that_has_to_wait_runs_when_the_run_before_it_has_ended(world: ScheduleWorld) -> None:
    schedule = await world.create(overlap="buffer_one")
    path = f"/v1/schedules/{schedule}/run"
    first = (await world.caller.http.post(path)).json()
    second = (await world.caller.http.post(path)).json()

    async def outcomes() -> list[object]:
        return [entry["outcome"] for entry in await world.ledger(schedule)]

    async with served(world):
        await world.relay()
        await world.caller.http.post(f"/v1/runs/{first['run_id']}/cancel")
        await world.relay()
        await until(lambda: is_found(outcomes, ["ran", "ran"]))

    assert second["outcome"] == "buffered"
    assert [entry["asked_by"] for entry in await world.ledger(schedule)] == ["test", "test"]


async def test_schedule_on_a_group_and_a_tag_runs_on_what_is_in_them_when_it_fires(
    world: ScheduleWorld,
) -> None:
    http = world.caller.http
    group = (await http.post("/v1/groups", json={"name": "shops", "tags": ["shop"]})).json()["id"]
    schedule = await world.create(targets=[], groups=["shops"], tags=["lab"], overlap="allow")
    await http.patch(f"/v1/groups/{group}", json={"name": "stores"}, headers={"If-Match": '"1"'})
    used = await http.post(f"/v1/groups/{group}/delete")

    empty = await world.fire(schedule, 0)
    body = {"text": "a.test,shop\nb.test,lab\nc.test,other", "format": "csv"}
    await http.post("/v1/targets/import", json=body)
    filled = await world.fire(schedule, 1)

    assert_problem(used, 409, "group.in_use")
    assert empty.outcome is FireOutcome.SKIPPED
    assert str(empty.reason).startswith("run.no_target")
    rows = await world.api.pool.fetch(
        "SELECT t.value FROM run_targets r JOIN targets t ON t.id = r.target_id WHERE run_id = $1 ORDER BY 1",
        filled.run_id,
    )
    assert [row["value"] for row in rows] == ["a.test", "b.test"]


async def test_schedule_of_a_saved_definition_runs_its_newest_version(world: ScheduleWorld) -> None:
    def saved(tool: str) -> dict[str, object]:
        return {"definition": {"name": "look", "jobs": {"a": {"run": tool}}}}

    await world.caller.http.put("/v1/definitions", json=saved("dnsprobe"))
    schedule = await world.create(definition="look", overlap="allow")
    first = await world.fire(schedule, 0)
    await world.caller.http.put("/v1/definitions", json=saved("portprobe"))
    second = await world.fire(schedule, 1)

    versions = [
        await world.api.pool.fetchval(
            "SELECT definition_version FROM job_histories WHERE id = $1", each.run_id
        )
        for each in (first, second)
    ]
    assert versions == [1, 2]
