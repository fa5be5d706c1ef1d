"""A batch with true children: outcomes, limits, crashes and cancelling."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from uuid import uuid4

import pytest
import structlog.testing

from runlane.jobs import Outcome
from runlane.scan.batch import BatchSpec, StreamBatch
from runlane.scan.children import Launcher
from runlane.scan.config import ScanLimits
from runlane.scan.confine import marked_processes
from runlane.scan.wire import ClaimedJob, Member
from runlane.tools import TOOLS, Tool
from tests.waiting import WAIT_S, until


@pytest.fixture
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as launcher:
        yield launcher


def tool(**changes: object) -> Tool:
    return replace(TOOLS["noop"], **changes)  # type: ignore[arg-type] # fields of a tool


def jobs(count: int) -> tuple[ClaimedJob, ...]:
    return tuple(ClaimedJob(f"j{number}", 1, {"host": "h", "kind": "host"}) for number in range(count))


def spec(
    count: int, options: Mapping[str, object] | None = None, *, kind: Tool | None = None, **limits: int
) -> BatchSpec:
    return BatchSpec(kind or tool(), jobs(count), options or {}, f"test/{uuid4()}", ScanLimits(**limits))


def outcomes(members: list[Member]) -> dict[str, Outcome]:
    return {member.job_id: member.outcome for member in members}


def processes_of(batch: BatchSpec) -> list[int]:
    return [pid for pid, mark in marked_processes() if mark == batch.mark]


async def run(launcher: Launcher, batch_spec: BatchSpec) -> list[Member]:
    batch = StreamBatch(launcher, batch_spec, lambda: None)
    async with asyncio.timeout(WAIT_S):
        await batch.run()
    return batch.take_finished()


async def test_batch_completes_every_job_with_its_records(launcher: Launcher) -> None:
    members = await run(launcher, spec(25, {"records": 3}))

    assert outcomes(members) == {f"j{number}": Outcome.COMPLETED for number in range(25)}
    assert all(member.records == (b'{"number":0}', b'{"number":1}', b'{"number":2}') for member in members)
    assert all(member.complete and member.reachable for member in members)


async def test_member_says_what_was_run_for_it(launcher: Launcher) -> None:
    (member,) = await run(launcher, spec(1, {"sleep_ms": 1}))

    line = '{"job":"j0","target":{"host":"h","kind":"host"},"options":{"attempt":1,"sleep_ms":1}}'
    assert member.argv == ("runlane.probes.noop", line)


async def test_no_process_is_left_when_the_batch_ends(launcher: Launcher) -> None:
    batch_spec = spec(3)

    await run(launcher, batch_spec)

    assert processes_of(batch_spec) == []


async def test_failure_and_fatal_are_told_apart(launcher: Launcher) -> None:
    failed = await run(launcher, spec(1, {"fail_first": 1}))
    fatal = await run(launcher, spec(1, {"fatal": "no such thing"}))

    assert [(member.outcome, member.error) for member in failed] == [(Outcome.TOOL_FAILED, "failed as asked")]
    assert [(member.outcome, member.error) for member in fatal] == [(Outcome.FATAL, "no such thing")]


async def test_later_attempt_of_a_job_is_told_to_the_tool(launcher: Launcher) -> None:
    batch_spec = replace(
        spec(1, {"fail_first": 1}), jobs=(ClaimedJob("j0", 2, {"host": "h", "kind": "host"}),)
    )

    assert outcomes(await run(launcher, batch_spec)) == {"j0": Outcome.COMPLETED}


async def test_crash_ends_all_jobs_in_turn_and_says_why(launcher: Launcher) -> None:
    members = await run(launcher, spec(3, {"exit": 3, "stderr_bytes": 30}, kind=tool(parallelism=1)))

    assert outcomes(members) == {f"j{number}": Outcome.TOOL_FAILED for number in range(3)}
    assert members[0].error == "the tool ended early with exit code 3: " + "x" * 30


async def test_killed_child_fails_only_the_jobs_at_work(launcher: Launcher) -> None:
    batch_spec = spec(4, {"sleep_ms": 300}, kind=tool(parallelism=2))
    batch = StreamBatch(launcher, batch_spec, lambda: None)
    running = asyncio.create_task(batch.run())
    await until(lambda: bool(processes_of(batch_spec)))

    os.kill(processes_of(batch_spec)[0], signal.SIGKILL)
    await running

    assert outcomes(batch.take_finished()) == {
        "j0": Outcome.TOOL_FAILED,
        "j1": Outcome.TOOL_FAILED,
        "j2": Outcome.COMPLETED,
        "j3": Outcome.COMPLETED,
    }


async def test_frozen_child_is_killed_after_half_the_heartbeat(launcher: Launcher) -> None:
    members = await run(launcher, spec(2, {"freeze_ms": 600_000}, kind=tool(heartbeat_s=4.0)))

    assert outcomes(members) == {"j0": Outcome.TIMED_OUT, "j1": Outcome.TIMED_OUT}
    assert members[0].error == "the tool gave no life sign"


async def test_freeze_of_the_worker_itself_is_not_blamed_on_the_child(launcher: Launcher) -> None:
    batch_spec = spec(1, {"sleep_ms": 7_000}, kind=tool(heartbeat_s=8.0))
    batch = StreamBatch(launcher, batch_spec, lambda: None)
    running = asyncio.create_task(batch.run())
    await until(lambda: bool(processes_of(batch_spec)))

    time.sleep(4.5)  # noqa: ASYNC251  # the loop stands still: that is the case

    async with asyncio.timeout(WAIT_S):
        await running
    assert outcomes(batch.take_finished()) == {"j0": Outcome.COMPLETED}


async def test_slow_job_is_not_silent(launcher: Launcher) -> None:
    members = await run(launcher, spec(1, {"sleep_ms": 6_000}, kind=tool(heartbeat_s=8.0)))

    assert outcomes(members) == {"j0": Outcome.COMPLETED}


async def test_job_over_its_own_limit_fails_and_the_others_go_on(launcher: Launcher) -> None:
    members = await run(launcher, spec(2, {"sleep_ms": 60_000, "timeout_s": 0.3}, kind=tool(parallelism=1)))

    assert outcomes(members) == {"j0": Outcome.TOOL_FAILED, "j1": Outcome.TOOL_FAILED}
    assert members[0].error == "timed out after 0.3 s"


async def test_cancelled_job_is_dropped_and_its_siblings_complete(launcher: Launcher) -> None:
    batch = StreamBatch(launcher, spec(3, {"sleep_ms": 500, "records": 1}), lambda: None)
    running = asyncio.create_task(batch.run())
    await asyncio.sleep(0)

    assert batch.cancel("j1", 1)
    await running

    assert outcomes(batch.take_finished()) == {"j0": Outcome.COMPLETED, "j2": Outcome.COMPLETED}
    assert batch.open_jobs() == []


async def test_child_says_that_it_has_dropped_a_cancelled_job(launcher: Launcher) -> None:
    heard: set[str] = set()
    at_work = replace(spec(2, {"records": 1, "linger_ms": 600_000}), hear=lambda job, _: heard.add(job))
    batch = StreamBatch(launcher, at_work, lambda: None)
    running = asyncio.create_task(batch.run())
    await until(lambda: heard == {"j0", "j1"})

    with structlog.testing.capture_logs() as lines:
        assert batch.cancel("j1", 1)
        await until(lambda: "job_dropped" in {line["event"] for line in lines})

    assert batch.cancel("j0", 1)
    await running
    assert [line["job_id"] for line in lines if line["event"] == "job_dropped"] == ["j1"]


async def test_cancel_of_another_attempt_changes_nothing(launcher: Launcher) -> None:
    batch = StreamBatch(launcher, spec(1, {"sleep_ms": 100}), lambda: None)
    running = asyncio.create_task(batch.run())

    assert not batch.cancel("j0", 2)
    await running

    assert outcomes(batch.take_finished()) == {"j0": Outcome.COMPLETED}


async def test_child_dies_with_its_last_job(launcher: Launcher) -> None:
    batch_spec = spec(2, {"sleep_ms": 600_000})
    batch = StreamBatch(launcher, batch_spec, lambda: None)
    running = asyncio.create_task(batch.run())
    await until(lambda: bool(processes_of(batch_spec)))

    batch.cancel("j0", 1)
    batch.cancel("j1", 1)

    async with asyncio.timeout(WAIT_S):
        await running
    assert processes_of(batch_spec) == []
    assert batch.take_finished() == []


async def test_stopped_batch_keeps_what_had_ended_and_gives_up_the_rest(launcher: Launcher) -> None:
    finished = asyncio.Event()
    at_once = TOOLS["noop"].parallelism
    batch = StreamBatch(launcher, spec(at_once + 5, {"sleep_ms": 1_000}), finished.set)
    running = asyncio.create_task(batch.run())
    async with asyncio.timeout(WAIT_S):
        await finished.wait()

    batch.stop()
    async with asyncio.timeout(WAIT_S):
        await running

    ended, given_up = batch.take_finished(), batch.open_jobs()
    assert 1 <= len(ended) <= at_once
    assert len(ended) + len(given_up) == at_once + 5


async def test_job_that_says_too_much_is_cut_and_its_siblings_are_not(launcher: Launcher) -> None:
    members = await run(launcher, spec(2, {"records": 500}, kind=tool(parallelism=1), job_output_bytes=2_000))

    assert outcomes(members) == {"j0": Outcome.COMPLETED, "j1": Outcome.COMPLETED}
    assert all(not member.complete and 1_900 < sum(map(len, member.records)) <= 2_000 for member in members)


async def test_lost_launcher_costs_nobody_anything(launcher: Launcher) -> None:
    batch_spec = spec(2, {"sleep_ms": 400})
    batch = StreamBatch(launcher, batch_spec, lambda: None)
    running = asyncio.create_task(batch.run())
    await until(lambda: bool(processes_of(batch_spec)))

    assert launcher.pid is not None
    os.kill(launcher.pid, signal.SIGKILL)
    async with asyncio.timeout(WAIT_S):
        await running

    assert outcomes(batch.take_finished()) == {"j0": Outcome.COMPLETED, "j1": Outcome.COMPLETED}


async def test_host_that_cannot_start_the_tool_gives_its_jobs_back(launcher: Launcher) -> None:
    members = await run(launcher, spec(2, kind=tool(name="unheard-of")))

    assert outcomes(members) == {"j0": Outcome.REJECTED, "j1": Outcome.REJECTED}
