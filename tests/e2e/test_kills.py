"""`kill -9` of every process in the middle of a scan: the scan completes as if nothing had happened."""

from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from tests.e2e.installation import Installation, open_installation, until

pytestmark = pytest.mark.e2e

EVERY = ["scan", "core", "temporal", "postgres", "results", "lanes", "valkey", "api", "gateway"]


@pytest_asyncio.fixture(scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    """One for all tests here: an installation that was killed before must take it as well as a fresh one."""
    settings = {"RUNLANE_WORKER_HEARTBEAT_S": "5"}
    async with open_installation(tmp_path_factory.mktemp("kills"), settings) as opened:
        yield opened


@pytest.mark.parametrize("process", EVERY)
async def test_scan_survives_the_kill_of(process: str, installation: Installation) -> None:
    run_id = await installation.begin_and_reach_middle(process)

    await installation.kill(process)

    await installation.assert_found_the_truth(run_id)
    await installation.assert_at_rest(run_id)


async def test_scan_survives_the_kill_of_everything_at_once(installation: Installation) -> None:
    run_id = await installation.begin_and_reach_middle("everything")

    await installation.kill(*EVERY)

    await installation.assert_found_the_truth(run_id)
    await installation.assert_at_rest(run_id)


async def test_merge_is_done_by_another_when_its_worker_is_killed_in_it(installation: Installation) -> None:
    run_id = await installation.begin_and_reach_middle("merge")
    every_job = "SELECT 1 FROM jobs WHERE run_id = $1 AND status = 'in_progress' FOR UPDATE"

    async with installation.stuck("runlane-results", every_job, run_id):
        await installation.kill("results")

    await installation.assert_found_the_truth(run_id)
    await installation.assert_at_rest(run_id)


async def test_core_that_is_killed_in_a_transaction_leaves_nothing_half_done(
    installation: Installation,
) -> None:
    run_id = await installation.begin_and_reach_middle("transaction")
    every_step = "SELECT 1 FROM run_steps WHERE run_id = $1 FOR UPDATE"

    async with installation.stuck("runlane-core", every_step, run_id):
        await installation.kill("core")

    await installation.assert_found_the_truth(run_id)
    await installation.assert_at_rest(run_id)


async def test_batches_are_started_anew_when_the_launcher_of_tools_is_killed(
    installation: Installation,
) -> None:
    run_id = await installation.begin_and_reach_middle("launcher")
    scan_worker = psutil.Process(installation.platform.stack.pid("scan"))
    (launcher,) = scan_worker.children()

    launcher.kill()

    await installation.assert_found_the_truth(run_id)
    await installation.assert_at_rest(run_id)
    assert scan_worker.is_running()
    assert await installation.outcomes(run_id) == {
        "completed": sum((await installation.jobs(run_id)).values())
    }


async def test_database_restart_leaves_nobody_deaf(installation: Installation) -> None:
    listeners = await hearing(installation)

    await installation.kill("postgres")

    async def hear_again() -> bool:
        return await hearing(installation) == listeners

    assert {"runlane-api-system", "runlane-commands", "runlane-gateway"} <= listeners
    await until(hear_again, 60)


async def hearing(installation: Installation) -> set[str]:
    """Programs with a connection that only listens."""
    rows = await installation.pool.fetch(
        "SELECT application_name FROM pg_stat_activity WHERE state = 'idle' AND query LIKE 'LISTEN %'"
    )
    return {row["application_name"] for row in rows} - {"runlane-relay"}  # which works on the same connection
