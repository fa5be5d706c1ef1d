"""Workers of the SDK behind the gateway: what they need is let through, and a pushed cancel arrives."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
import structlog.testing
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from runlane import names
from runlane.db.pool import Pool
from runlane.settings import Settings
from runlane.stack.doctor_gateway import check_gateway
from runlane.stack.findings import Level
from tests.integration.gateway_host import present_host
from tests.integration.tls_front import tls_in_front_of
from tests.integration.worker_world import World, core_of, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


async def test_scan_worker_makes_no_call_that_is_refused(world: World) -> None:
    """A new version of the SDK may make other calls; this tells which."""
    with structlog.testing.capture_logs() as logs:
        async with core_of(world.settings), world.scan_worker():
            run_id = await world.start_run(3)
            assert await world.closed(run_id) == "completed"

    assert [each for each in logs if each["event"] == "call_refused"] == []
    assert await world.attempts(run_id) == {"completed": 3}


async def test_run_goes_on_when_the_gateway_is_back(world: World) -> None:
    async with core_of(world.settings), world.scan_worker():
        run_id = await world.start_run(3, {"sleep_ms": 3_000})
        await until(lambda: world.has_status(run_id, "in_progress", 3))

        await world.stop_gateway()
        await until(lambda: world.has_staged(run_id, 3))
        await world.start_gateway()

        assert await world.closed(run_id) == "completed"
    assert await world.attempts(run_id) == {"completed": 3}


async def test_scan_worker_reaches_a_gateway_behind_tls(world: World) -> None:
    async with core_of(world.settings), tls_in_front_of(world.settings.gateway_port, world.folder) as front:
        worker = await world.spawn_scan_worker(
            RUNLANE_SCAN_TEMPORAL_ADDRESS=front.address, SSL_CERT_FILE=str(front.authority)
        )
        run_id = await world.start_run(1)
        assert await world.closed(run_id) == "completed"
        worker.terminate()
        await worker.wait()


async def test_doctor_tells_the_gateway_from_temporal_itself(world: World) -> None:
    async def level(address: str) -> Level:
        settings = world.settings.model_copy(update={"scan_temporal_address": address})
        (check,) = await check_gateway(settings)
        return check.level

    assert await level("") is Level.OK
    assert await level(world.settings.temporal_address) is Level.FAIL
    assert await level("127.0.0.1:1") is Level.WARN


@workflow.defn(sandboxed=False)
class CancelsSilence:
    """Starts an activity that never beats, and cancels it when told to."""

    def __init__(self) -> None:
        self._is_enough = False

    @workflow.run
    async def run(self, queue: str) -> None:
        """Ends when the activity has."""
        silence = workflow.start_activity(
            "silence",
            task_queue=queue,
            start_to_close_timeout=timedelta(minutes=5),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.wait_condition(lambda: self._is_enough)
        silence.cancel()
        await asyncio.wait([silence])

    @workflow.signal
    def enough(self) -> None:
        """Cancels the activity."""
        self._is_enough = True


async def test_cancel_is_pushed_to_an_activity_that_never_beats(world: World) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def silence() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    direct = await Client.connect(world.settings.temporal_address)
    core = f"test-{uuid4()}"
    async with present_host(world) as host:
        behind = await Client.connect(
            world.settings.gateway_address,
            api_key=host.token,
            tls=False,
            rpc_metadata={names.GATEWAY_INCARNATION_KEY: host.incarnation},
        )
        async with (
            Worker(behind, task_queue=host.queue, activities=[silence]),
            Worker(
                direct,
                task_queue=core,
                workflows=[CancelsSilence],
                workflow_runner=UnsandboxedWorkflowRunner(),
            ),
        ):
            handle = await direct.start_workflow(
                CancelsSilence.run, host.queue, id=f"silence/{uuid4()}", task_queue=core
            )
            async with asyncio.timeout(60):
                await begun.wait()
                await handle.signal(CancelsSilence.enough)
                await cancelled.wait()
                await handle.result()
