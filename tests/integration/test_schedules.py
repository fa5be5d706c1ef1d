"""Schedules on real servers: rows told to Temporal, and what becomes of each fire."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from temporalio.client import ScheduleBackfill, ScheduleOverlapPolicy
from temporalio.service import RPCError

from runlane import names
from runlane.db.pool import Pool
from runlane.schedules import FireOutcome, timing_of
from runlane.settings import Settings
from runlane.sweeps import Part
from tests.integration.api_world import assert_problem
from tests.integration.schedule_world import YEARLY, ScheduleWorld, is_found, schedule_world, served
from tests.integration.sweep_world import sweep_world
from tests.waiting import until
from workflows.schedules import spec_of

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ScheduleWorld]:
    async with schedule_world(settings, pool) as opened:
        yield opened


async def test_schedule_is_told_to_temporal_and_follows_its_row(world: ScheduleWorld) -> None:
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
    world: ScheduleWorld,
) -> None:
    schedule = await world.create()
    await world.relay()
    await world.client.get_schedule_handle(names.schedule_id(UUID(schedule))).pause(note="maintenance")

    await world.act(schedule, "pause")
    await world.act(schedule, "resume")
    await world.relay()

    state = (await world.told(schedule)).state
    assert (state.paused, state.note) == (True, "maintenance")


async def test_coming_fires_are_those_that_temporal_means_when_clocks_change_too(
    world: ScheduleWorld,
) -> None:
    cases: list[tuple[dict[str, object], datetime]] = [
        ({"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}, datetime(2027, 3, 26, tzinfo=UTC)),
        ({"cron": "*/20 1,2 * * *", "time_zone": "America/New_York"}, datetime(2027, 11, 7, tzinfo=UTC)),
        ({"cron": "*/45 5-7/2 * */2 sun,wed"}, datetime(2027, 12, 1, tzinfo=UTC)),
        ({"every_s": 5400}, datetime(2027, 12, 1, tzinfo=UTC)),
    ]
    plain = {"time_zone": "UTC", "jitter_s": 0, "overlap": "skip", "catch_up_s": 60}
    for spec, start_at in cases:
        schedule = await world.create(f"fires {uuid4()}")
        await world.relay()
        timing = timing_of(plain | spec, UUID(schedule))
        wanted = replace(await world.told(schedule), spec=replace(spec_of(timing), start_at=start_at))
        handle = world.client.get_schedule_handle(f"test/{schedule}")
        await world.client.create_schedule(handle.id, wanted)
        meant = (await handle.describe()).info.next_action_times
        await handle.delete()

        assert timing.fires(start_at - timedelta(seconds=1), len(meant)) == list(meant)


async def test_fires_of_temporal_come_into_the_ledger_by_their_nominal_time_and_run_once(
    world: ScheduleWorld,
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
        await until(lambda: is_found(outcomes, ["ran", "buffered", "skipped"]))
        (ran, *_) = [entry for entry in await world.ledger(schedule) if entry["outcome"] == "ran"]
        await world.caller.http.post(f"/v1/runs/{ran['run_id']}/cancel")
        await world.relay()
        await until(lambda: is_found(outcomes, ["ran", "ran", "skipped"]))
        again = await world.fire(schedule, 4)

    ledger = await world.ledger(schedule)
    assert [entry["due_at"] for entry in ledger] == [f"2026-01-01T0{hour}:00:00Z" for hour in (4, 5, 6)]
    runs = (await world.caller.http.get("/v1/runs")).json()["items"]
    assert {run["id"] for run in runs} == {entry["run_id"] for entry in ledger} - {None}
    assert {(run["trigger"], run["name"]) for run in runs} == {("schedule", "nightly")}
    assert again.outcome in {FireOutcome.RAN, FireOutcome.SKIPPED}
    assert len(runs) == 2


async def test_two_tellings_of_one_fire_start_one_run(world: ScheduleWorld) -> None:
    schedule = await world.create()

    first, second = await asyncio.gather(world.fire(schedule), world.fire(schedule))

    assert first == second
    assert first.outcome is FireOutcome.RAN
    assert await world.api.pool.fetchval("SELECT count(*) FROM job_histories") == 1


async def test_cancel_other_ends_the_run_before_and_allow_lets_both_be(world: ScheduleWorld) -> None:
    replacing = await world.create("replacing", overlap="cancel_other")
    both = await world.create("both", overlap="allow")

    fired = [await world.fire(schedule, hour) for schedule in (replacing, both) for hour in (0, 1)]

    status = {
        row["id"]: row["status"] for row in await world.api.pool.fetch("SELECT id, status FROM job_histories")
    }
    assert [status[each.run_id] for each in fired] == ["cancelled", "accepted", "accepted", "accepted"]


async def test_start_that_is_refused_is_skipped_with_the_reason_and_cancels_nothing(
    world: ScheduleWorld,
) -> None:
    schedule = await world.create(overlap="cancel_other")
    first = await world.fire(schedule, 0)
    await world.api.pool.execute("UPDATE targets SET deleted_at = clock_timestamp()")

    second = await world.fire(schedule, 1)

    assert second.outcome is FireOutcome.SKIPPED
    assert second.reason is not None
    assert second.reason.startswith("run.no_target")
    status = await world.api.pool.fetchval("SELECT status FROM job_histories WHERE id = $1", first.run_id)
    assert status == "accepted"


async def test_fire_of_a_deleted_schedule_starts_nothing(world: ScheduleWorld) -> None:
    schedule = await world.create()
    await world.act(schedule, "delete")

    fired = await world.fire(schedule)

    assert fired.outcome is None
    assert await world.api.pool.fetchval("SELECT count(*) FROM job_histories") == 0


async def test_fires_that_nobody_heard_of_are_missed_with_a_reason_and_the_schedule_is_told_again(
    world: ScheduleWorld, settings: Settings
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
    world: ScheduleWorld, settings: Settings
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


async def test_bad_schedule_is_refused_with_all_its_faults_at_once(world: ScheduleWorld) -> None:
    body = {
        "name": "x", "cron": "61 * * * *", "time_zone": "Mars/Olympus", "targets": [str(uuid4())],
        "definition": {"name": "x", "jobs": {"a": {"run": "nothing"}}},
    }  # fmt: skip

    answer = await world.caller.http.post("/v1/schedules", json=body)

    problem = assert_problem(answer, 422, "schedule.invalid")
    assert problem["fields"].keys() == {"cron", "time_zone", "targets", "jobs.a.run"}  # type: ignore[attr-defined]


async def test_name_is_taken_once_and_another_workspace_sees_nothing(world: ScheduleWorld) -> None:
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
