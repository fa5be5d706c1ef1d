"""Schedules on real servers: rows told to Temporal, and what becomes of each fire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import httpx2
import pytest
import pytest_asyncio
from temporalio.client import Client, Schedule, ScheduleBackfill, ScheduleOverlapPolicy
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.fires import FireActivities
from lanes.commands import relay_once
from runlane import names
from runlane.db import fires
from runlane.db.pool import Pool
from runlane.schedules import FireOutcome, timing_of
from runlane.settings import Settings
from runlane.sweeps import Part
from runlane.worker import RUNNER
from tests.integration.api_world import ApiWorld, Caller, assert_problem, open_api
from tests.integration.sweep_world import sweep_world
from tests.waiting import until
from workflows.dispatching import Limits
from workflows.fire import ScheduleFire
from workflows.schedules import spec_of

pytestmark = pytest.mark.integration

YEARLY = {"cron": "0 0 1 1 *", "jitter_s": 0}
"""Fires by hand only, as far as a test is concerned."""


@dataclass(frozen=True, slots=True)
class World:
    """A caller with a target, and Temporal behind."""

    api: ApiWorld
    caller: Caller
    client: Client
    target: str

    async def create(self, name: str = "nightly", **changes: object) -> str:
        """Makes a schedule; returns its id."""
        body = {"name": name, "definition": "domain_discovery", "targets": [self.target]} | YEARLY | changes
        answer = await self.caller.http.post("/v1/schedules", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def act(self, schedule: str, action: str) -> dict[str, object]:
        """Pauses, resumes or deletes."""
        answer = await self.caller.http.post(f"/v1/schedules/{schedule}/{action}", json={"reason": "test"})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def relay(self) -> None:
        """Tells Temporal all commands that are due."""
        while (await relay_once(self.api.pool, self.client, Limits())).done:
            pass

    async def told(self, schedule: str) -> Schedule:
        """A schedule as Temporal has it."""
        handle = self.client.get_schedule_handle(names.schedule_id(UUID(schedule)))
        return (await handle.describe()).schedule

    async def ledger(self, schedule: str) -> list[dict[str, object]]:
        """Fires, the oldest first."""
        answer = await self.caller.http.get(f"/v1/schedules/{schedule}/fires", params={"sort": "due_at"})
        return list(answer.json()["items"])

    async def fire(self, schedule: str, hours: int = 0) -> fires.Fired:
        """Decides the fire of an hour, as its workflow would ask."""
        due_at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours)
        async with self.api.pool.acquire() as conn, conn.transaction():
            asked = fires.Fire(UUID(schedule), due_at, f"{names.fire_workflow_id(UUID(schedule))}-{hours}")
            return await fires.fire(conn, asked)

    async def events(self, like: str) -> list[str]:
        """Types of events, in order."""
        rows = await self.api.pool.fetch("SELECT type FROM outbox WHERE type LIKE $1 ORDER BY id", like)
        return [row["type"] for row in rows]


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[World]:
    client = await Client.connect(settings.temporal_address)
    away = settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    async with open_api(away, pool) as api, api.caller("ours") as caller:
        yield World(api, caller, client, await api.add_target(caller))
    for row in await pool.fetch("SELECT id FROM schedules"):
        try:
            await client.get_schedule_handle(names.schedule_id(row["id"])).delete()
        except RPCError:
            continue


@asynccontextmanager
async def served(world: World) -> AsyncIterator[None]:
    """A worker that does fires."""
    worker = Worker(
        world.client,
        task_queue=names.CORE_QUEUE,
        workflows=[ScheduleFire],
        activities=[FireActivities(world.api.pool).decide_fire],
        workflow_runner=RUNNER,
    )
    async with worker:
        yield


async def test_schedule_is_told_to_temporal_and_follows_its_row(world: World) -> None:
    schedule = await world.create(cron="30 2 * * mon-fri", time_zone="Europe/Berlin", catch_up_s=7200)
    await world.relay()
    made = await world.told(schedule)
    await world.act(schedule, "pause")
    await world.relay()
    paused = await world.told(schedule)
    shown = (await world.caller.http.get(f"/v1/schedules/{schedule}")).json()
    await world.act(schedule, "resume")
    await world.relay()
    resumed = await world.told(schedule)
    await world.act(schedule, "delete")
    await world.relay()

    assert made.policy.catchup_window == timedelta(hours=2)
    assert (made.state.paused, paused.state.paused, resumed.state.paused) == (False, True, False)
    assert (shown["next_fires"], shown["paused_at"] is not None) == ([], True)
    with pytest.raises(RPCError):
        await world.told(schedule)
    assert await world.events("scan.schedule.%") == [
        "scan.schedule.created", "scan.schedule.updated", "scan.schedule.updated", "scan.schedule.deleted",
    ]  # fmt: skip
    gone = await world.caller.http.get(f"/v1/schedules/{schedule}")
    assert_problem(gone, 404, "schedule.not_found")


async def test_pause_that_an_operator_set_in_temporal_stays_when_the_schedule_is_told_again(
    world: World,
) -> None:
    schedule = await world.create()
    await world.relay()
    await world.client.get_schedule_handle(names.schedule_id(UUID(schedule))).pause(note="maintenance")

    await world.act(schedule, "pause")
    await world.act(schedule, "resume")
    await world.relay()

    state = (await world.told(schedule)).state
    assert (state.paused, state.note) == (True, "maintenance")


async def test_coming_fires_are_those_that_temporal_means_when_clocks_change_too(world: World) -> None:
    cases: list[tuple[dict[str, object], datetime]] = [
        ({"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}, datetime(2027, 3, 26, tzinfo=UTC)),
        ({"cron": "*/20 1,2 * * *", "time_zone": "America/New_York"}, datetime(2027, 11, 7, tzinfo=UTC)),
        ({"cron": "*/45 5-7/2 * */2 sun,wed"}, datetime(2026, 12, 1, tzinfo=UTC)),
        ({"every_s": 5400}, datetime(2026, 12, 1, tzinfo=UTC)),
    ]
    plain = {"time_zone": "UTC", "jitter_s": 0, "overlap": "skip", "catch_up_s": 60}
    for spec, start_at in cases:
        schedule = await world.create(str(uuid4()))
        await world.relay()
        timing = timing_of(plain | spec, UUID(schedule))
        wanted = replace(await world.told(schedule), spec=replace(spec_of(timing), start_at=start_at))
        handle = world.client.get_schedule_handle(f"test/{schedule}")
        await world.client.create_schedule(handle.id, wanted)
        meant = (await handle.describe()).info.next_action_times
        await handle.delete()

        assert timing.fires(start_at - timedelta(seconds=1), len(meant)) == list(meant)


async def test_fires_of_temporal_come_into_the_ledger_by_their_nominal_time_and_run_once(
    world: World,
) -> None:
    schedule = await world.create(cron="0 * * * *", overlap="buffer_one", jitter_s=600)
    await world.relay()
    handle = world.client.get_schedule_handle(names.schedule_id(UUID(schedule)))
    since, until_then = datetime(2026, 1, 1, 3, 30, tzinfo=UTC), datetime(2026, 1, 1, 6, 30, tzinfo=UTC)
    backfill = ScheduleBackfill(since, until_then, overlap=ScheduleOverlapPolicy.ALLOW_ALL)

    async def outcomes() -> list[object]:
        return [entry["outcome"] for entry in await world.ledger(schedule)]

    async with served(world):
        await handle.backfill(backfill)
        await until(lambda: _is(outcomes, ["ran", "buffered", "skipped"]))
        (ran, *_) = [entry for entry in await world.ledger(schedule) if entry["outcome"] == "ran"]
        await world.caller.http.post(f"/v1/runs/{ran['run_id']}/cancel")
        await world.relay()
        await until(lambda: _is(outcomes, ["ran", "ran", "skipped"]))
        again = await world.fire(schedule, 4)

    ledger = await world.ledger(schedule)
    assert [entry["due_at"] for entry in ledger] == [f"2026-01-01T0{hour}:00:00Z" for hour in (4, 5, 6)]
    runs = (await world.caller.http.get("/v1/runs")).json()["items"]
    assert {run["id"] for run in runs} == {entry["run_id"] for entry in ledger} - {None}
    assert {(run["trigger"], run["name"]) for run in runs} == {("schedule", "nightly")}
    assert again.outcome in {FireOutcome.RAN, FireOutcome.SKIPPED}
    assert len(runs) == 2


async def _is(read: object, expected: list[str]) -> bool:
    return sorted(await read()) == sorted(expected)  # type: ignore[operator]


async def test_two_tellings_of_one_fire_start_one_run(world: World) -> None:
    schedule = await world.create()

    first, second = await asyncio.gather(world.fire(schedule), world.fire(schedule))

    assert first == second
    assert first.outcome is FireOutcome.RAN
    assert await world.api.pool.fetchval("SELECT count(*) FROM job_histories") == 1


async def test_cancel_other_ends_the_run_before_and_allow_lets_both_be(world: World) -> None:
    replacing = await world.create("replacing", overlap="cancel_other")
    both = await world.create("both", overlap="allow")

    fired = [await world.fire(schedule, hour) for schedule in (replacing, both) for hour in (0, 1)]

    status = {
        row["id"]: row["status"] for row in await world.api.pool.fetch("SELECT id, status FROM job_histories")
    }
    assert [status[each.run_id] for each in fired] == ["cancelled", "accepted", "accepted", "accepted"]


async def test_start_that_is_refused_is_skipped_with_the_reason_and_cancels_nothing(world: World) -> None:
    schedule = await world.create(overlap="cancel_other")
    first = await world.fire(schedule, 0)
    await world.api.pool.execute("UPDATE targets SET deleted_at = clock_timestamp()")

    second = await world.fire(schedule, 1)

    assert second.outcome is FireOutcome.SKIPPED
    assert second.reason is not None
    assert second.reason.startswith("run.no_target")
    status = await world.api.pool.fetchval("SELECT status FROM job_histories WHERE id = $1", first.run_id)
    assert status == "accepted"


async def test_fire_of_a_deleted_schedule_starts_nothing(world: World) -> None:
    schedule = await world.create()
    await world.act(schedule, "delete")

    fired = await world.fire(schedule)

    assert fired.outcome is None
    assert await world.api.pool.fetchval("SELECT count(*) FROM job_histories") == 0


async def test_fires_that_nobody_heard_of_are_missed_with_a_reason_and_the_schedule_is_told_again(
    world: World, settings: Settings
) -> None:
    schedule = await world.create(cron="0 * * * *", catch_up_s=60)
    await world.relay()
    await world.client.get_schedule_handle(names.schedule_id(UUID(schedule))).delete()
    await world.api.pool.execute(
        "UPDATE schedules SET expected_at = date_trunc('hour', clock_timestamp()) - interval '5 hours'"
    )

    async with sweep_world(settings, world.api.pool) as sweeps:
        report = await sweeps.sweep(Part.MISSED_FIRES)
        again = await sweeps.sweep(Part.MISSED_FIRES)
    await world.relay()

    ledger = await world.ledger(schedule)
    assert (report.changed, again.changed) == (1, 0)
    assert {entry["outcome"] for entry in ledger} == {"missed"}
    assert len(ledger) in {5, 6}
    assert all("catch-up" in str(entry["reason"]) for entry in ledger)
    assert not (await world.told(schedule)).state.paused
    assert await world.events("scan.schedule.missed") == ["scan.schedule.missed"]


async def test_fire_that_was_missed_before_one_that_ran_is_found_and_the_other_stays(
    world: World, settings: Settings
) -> None:
    schedule = await world.create(cron="0 * * * *", catch_up_s=60, ends_at="2099-01-01T00:00:00Z")
    await world.api.pool.execute("UPDATE schedules SET expected_at = '2026-01-01T00:00Z'")
    await world.api.pool.execute(
        """UPDATE schedules SET spec = spec || '{"ends_at": "2026-01-01T02:00:00Z"}'"""
    )
    await world.fire(schedule, 1)

    async with sweep_world(settings, world.api.pool) as sweeps:
        await sweeps.sweep(Part.MISSED_FIRES)

    outcomes = [entry["outcome"] for entry in await world.ledger(schedule)]
    assert outcomes == ["missed", "ran", "missed"]
    data = await world.api.pool.fetchval("SELECT data FROM outbox WHERE type = 'scan.schedule.missed'")
    assert data["fires"] == 2
    assert await world.api.pool.fetchval("SELECT expected_at FROM schedules") is None


async def test_bad_schedule_is_refused_with_all_its_faults_at_once(world: World) -> None:
    body = {
        "name": "x", "cron": "61 * * * *", "time_zone": "Mars/Olympus", "targets": [str(uuid4())],
        "definition": {"name": "x", "jobs": {"a": {"run": "nothing"}}},
    }  # fmt: skip

    answer = await world.caller.http.post("/v1/schedules", json=body)

    problem = assert_problem(answer, 422, "schedule.invalid")
    assert problem["fields"].keys() == {"cron", "time_zone", "targets", "jobs.a.run"}  # type: ignore[attr-defined]


async def test_name_is_taken_once_and_another_workspace_sees_nothing(world: World) -> None:
    schedule = await world.create()
    body = {"name": "nightly", "definition": "domain_discovery", "targets": [world.target]} | YEARLY

    twin = await world.caller.http.post("/v1/schedules", json=body)
    async with world.api.caller("theirs") as theirs:
        listed = (await theirs.http.get("/v1/schedules")).json()["items"]
        shown = await theirs.http.get(f"/v1/schedules/{schedule}")
        ledger = await theirs.http.get(f"/v1/schedules/{schedule}/fires")
        paused = await theirs.http.post(f"/v1/schedules/{schedule}/pause")
        foreign = await theirs.http.post("/v1/schedules", json=body)

    assert_problem(twin, 409, "schedule.duplicate")
    assert listed == []
    for answer in (shown, ledger, paused):
        assert_problem(answer, 404, "schedule.not_found")
    assert_problem(foreign, 422, "schedule.invalid")


async def test_edit_needs_the_version_that_was_read_and_temporal_follows(world: World) -> None:
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


async def test_fire_now_is_in_the_ledger_with_who_wanted_it_also_while_paused(world: World) -> None:
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


async def test_fire_now_that_has_to_wait_runs_when_the_run_before_it_has_ended(world: World) -> None:
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
        await until(lambda: _is(outcomes, ["ran", "ran"]))

    assert second["outcome"] == "buffered"
    assert [entry["asked_by"] for entry in await world.ledger(schedule)] == ["test", "test"]


async def test_schedule_on_a_group_and_a_tag_runs_on_what_is_in_them_when_it_fires(world: World) -> None:
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


async def test_schedule_of_a_saved_definition_runs_its_newest_version(world: World) -> None:
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
