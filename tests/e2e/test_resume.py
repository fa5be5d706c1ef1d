"""Runs whose workflow is gone go on from their rows; runs that are cancelled end at once and for good."""

from collections.abc import AsyncIterator
from uuid import UUID

import psutil
import pytest
import pytest_asyncio

from runlane import names
from tests.e2e.installation import Installation, open_installation, until

pytestmark = pytest.mark.e2e

DEAD_WITHIN_S = 60.0
"""How soon it is on a quiet machine is measured by `./dev chaos --times`."""


@pytest_asyncio.fixture(scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    async with open_installation(tmp_path_factory.mktemp("resume"), {}) as opened:
        yield opened


async def test_run_whose_workflow_was_terminated_is_resumed_by_command(installation: Installation) -> None:
    run_id = await installation.begin_and_reach_middle("resume")
    workflow = installation.temporal.get_workflow_handle(names.run_workflow_id(run_id))

    await workflow.terminate("somebody pressed the button")
    said = await installation.command("run", "resume", str(run_id))

    assert str(run_id) in said
    await installation.assert_found_the_truth(run_id)
    await installation.assert_at_rest(run_id)


async def test_job_that_somebody_has_locked_is_taken_once_the_lock_is_gone(
    installation: Installation,
) -> None:
    core = installation.platform.stack
    await core.stop_process("core")
    run_id = await installation.begin_scan("locked")

    async with installation.pool.acquire() as conn, conn.transaction():
        await conn.execute("SELECT 1 FROM jobs WHERE run_id = $1 FOR UPDATE", run_id)
        await core.resume_process("core")
        await until(lambda: installation.has_looked_for_work(run_id), 60)

    await until(lambda: installation.is_claimed(run_id), 60)
    await installation.command("run", "cancel", str(run_id))
    await assert_ended_by_cancel(installation, run_id)


async def test_cancelled_run_kills_its_tools_at_once(installation: Installation) -> None:
    run_id = await installation.begin_and_reach_middle("cancel")

    await installation.command("run", "cancel", str(run_id), "--reason", "enough")

    await until(installation.has_no_tools, DEAD_WITHIN_S)
    await assert_ended_by_cancel(installation, run_id)


async def test_what_a_frozen_worker_delivers_after_the_cancel_is_discarded(
    installation: Installation,
) -> None:
    run_id = await installation.begin_and_reach_middle("frozen")
    worker = psutil.Process(installation.platform.stack.pid("scan"))
    worker.suspend()
    assert await installation.is_in_the_middle(run_id)

    await installation.command("run", "cancel", str(run_id), "--reason", "enough")
    jobs = await installation.jobs(run_id)
    worker.resume()

    await until(installation.has_no_tools, DEAD_WITHIN_S)
    assert jobs["cancelled"]
    await assert_ended_by_cancel(installation, run_id)
    assert await installation.jobs(run_id) == jobs


async def assert_ended_by_cancel(installation: Installation, run_id: UUID) -> None:
    """The run is cancelled with all that had not ended, and nothing of it is left."""
    assert await installation.run_status(run_id) == "cancelled"
    assert set(await installation.jobs(run_id)) <= {"completed", "cancelled"}
    await installation.wait_workflow_ended(run_id)
    await installation.assert_at_rest(run_id)
    assert set(await installation.outcomes(run_id)) <= {"completed", "cancelled"}
