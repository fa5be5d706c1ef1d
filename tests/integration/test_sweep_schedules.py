"""Schedules of the sweeps on a real Temporal server: made once, kept paused, seen by the doctor."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio
from temporalio.client import Client, ScheduleOverlapPolicy, ScheduleUpdate, WorkflowFailureError
from temporalio.worker import Worker

from activities.sweeps import SweepActivities
from runlane import names
from runlane.cli.errors import ExitCode
from runlane.db.pool import Pool
from runlane.db.sweeps.pruning import rules
from runlane.settings import Settings
from runlane.stack.doctor_sweeps import check_sweeps
from runlane.stack.findings import Level
from runlane.sweeps import SWEEPS, Part, Retention
from runlane.worker import RUNNER, keep_schedules
from tests.integration.sweep_world import SweepWorld, sweep_world
from tests.waiting import until
from workflows.sweep_schedules import ensure_schedules, make_missing, read_schedule, run_now, schedule_of
from workflows.sweeps import PartReport, SweepWorkflow

pytestmark = pytest.mark.integration

RULES = rules(Retention())


@pytest_asyncio.fixture
async def sweeps(settings: Settings, pool: Pool) -> AsyncIterator[SweepWorld]:
    """Schedules are gone in the end: other tests share the server."""
    async with sweep_world(settings, pool) as world:
        yield world
        for sweep in SWEEPS.values():
            await world.temporal.get_schedule_handle(names.sweep_schedule_id(sweep.name)).delete()


@asynccontextmanager
async def served(client: Client, activities: SweepActivities) -> AsyncIterator[None]:
    """Workers that do sweeps."""
    core = Worker(client, task_queue=names.CORE_QUEUE, workflows=[SweepWorkflow], workflow_runner=RUNNER)
    parts = Worker(client, task_queue=names.SWEEP_QUEUE, activities=[activities.sweep])
    async with core, parts:
        yield


async def are_there(client: Client) -> bool:
    return all([(await read_schedule(client, sweep)).is_there for sweep in SWEEPS.values()])


async def test_schedule_that_temporal_has_lost_is_made_again_and_the_others_stay(sweeps: SweepWorld) -> None:
    client = sweeps.temporal
    await ensure_schedules(client)
    await client.get_schedule_handle(names.sweep_schedule_id("jobs")).pause(note="maintenance")
    await client.get_schedule_handle(names.sweep_schedule_id("stuck")).delete()

    await make_missing(client)

    assert (await read_schedule(client, SWEEPS["stuck"])).is_there
    assert (await read_schedule(client, SWEEPS["jobs"])).is_paused


async def test_schedules_are_made_once_by_all_replicas_and_keep_an_operators_pause(
    sweeps: SweepWorld, settings: Settings
) -> None:
    client = sweeps.temporal
    missing = await check_sweeps(settings)
    replicas = [asyncio.create_task(keep_schedules(settings)) for _ in range(2)]
    await until(lambda: are_there(client))
    for replica in replicas:
        replica.cancel()
    paused = client.get_schedule_handle(names.sweep_schedule_id("jobs"))
    await paused.pause(note="maintenance")

    await ensure_schedules(client)

    states = {name: await read_schedule(client, sweep) for name, sweep in SWEEPS.items()}
    assert {name for name, state in states.items() if state.is_paused} == {"jobs"}
    assert states["jobs"].note == "maintenance"
    described = (await paused.describe()).schedule
    assert described.policy.overlap is ScheduleOverlapPolicy.SKIP
    assert described.policy.catchup_window == SWEEPS["jobs"].every
    (found,) = await check_sweeps(settings)
    assert {each.level for each in missing} == {found.level} == {Level.WARN}
    assert "paused: jobs (maintenance)" in found.detail


async def command(settings: Settings, *arguments: str) -> tuple[int, str]:
    """Runs `runlane sweep …`; answers the exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runlane.cli", "sweep", *arguments,
        env={
            "PATH": "",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "RUNLANE_TEMPORAL_ADDRESS": settings.temporal_address,
            "RUNLANE_STATE_DIR": str(settings.state_dir),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def test_sweep_begun_by_hand_says_what_it_did(sweeps: SweepWorld, settings: Settings) -> None:
    unknown, _ = await command(settings, "run", "floor")
    unmade, _ = await command(settings, "run", "rows")
    await ensure_schedules(sweeps.temporal)
    await sweeps.pool.execute(
        """INSERT INTO commands (kind, workflow_id, done_at)
           SELECT 'nudge', 'x', clock_timestamp() - interval '8 days' FROM generate_series(1, 1500)"""
    )

    async with served(sweeps.temporal, sweeps.activities):
        code, out = await command(settings, "run", "rows", "--json")
        _, listed = await command(settings, "list", "--json")

    assert (unknown, unmade, code) == (ExitCode.NOT_FOUND, ExitCode.NOT_FOUND, ExitCode.OK)
    expected = {"part": "old_rows", **asdict(PartReport(1500, 1500, 0, turns=len(RULES) + 1))}
    assert json.loads(out) == {"name": "rows", "parts": [expected]}
    rows = {row["name"]: row for row in json.loads(listed)}
    assert rows.keys() == SWEEPS.keys()
    assert rows["rows"]["parts"] == [expected]
    assert rows["jobs"]["parts"] is None


async def test_part_that_cannot_be_done_keeps_no_other_from_its_turn_and_fails_the_sweep(
    sweeps: SweepWorld, settings: Settings
) -> None:
    await ensure_schedules(sweeps.temporal)
    unknown = cast(Part, "no_such_part")  # as of a version that is not there yet
    broken = replace(SWEEPS["rows"], parts=(unknown, *SWEEPS["rows"].parts))
    schedule = sweeps.temporal.get_schedule_handle(names.sweep_schedule_id("rows"))
    await schedule.update(lambda _: ScheduleUpdate(schedule_of(broken)))

    async with served(sweeps.temporal, sweeps.activities):
        handle = sweeps.temporal.get_workflow_handle(await run_now(sweeps.temporal, broken))
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
        (said,) = await check_sweeps(settings)

    assert "no_such_part" in str(failure.value.cause)
    assert "old_rows" not in str(failure.value.cause)
    history = await handle.fetch_history()
    done = [e for e in history.events if e.HasField("activity_task_completed_event_attributes")]
    assert len(done) == len(RULES)
    assert said.detail == "not all was done the last time: rows"
