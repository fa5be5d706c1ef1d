"""The core worker (workflows and light activities) and the result worker (the merge)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import asyncpg
import structlog
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import PollerBehaviorAutoscaling, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.deliveries import DeliveryActivities, Outbound
from activities.fires import FireActivities
from activities.results import ResultActivities
from activities.runs import RunActivities
from activities.sweeps import Buckets, SweepActivities
from runlane import names
from runlane.backoff import Backoff
from runlane.db.pool import Pool, open_pool
from runlane.failures import DATA_CONVERTER
from runlane.keyring import Keyring
from runlane.outbound.guard import open_client
from runlane.outbound.reach import Reach
from runlane.outbound.transports import transports
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from workflows.registration import WORKFLOWS
from workflows.sweep_schedules import ensure_schedules, make_missing

log = structlog.get_logger(__name__)
ConnectedT = TypeVar("ConnectedT")

CORE_SLOTS = 32
RESULT_SLOTS = 8
SWEEP_SLOTS = 4
DELIVERY_SLOTS = 100
"""Endpoints that are delivered to at once by one process; nearly all of that time is waiting."""
SCHEDULES_LOOK_S = 300.0
POOL_SIZE = 8
GRACE = timedelta(seconds=10)
FIRST_PAUSE = timedelta(milliseconds=100)
MOST_PAUSE = timedelta(seconds=2)

RUNNER = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules("runlane", "activities")
)


async def connect_temporal(settings: Settings) -> Client:
    """Connects to Temporal, waiting for it with back-off as long as it takes."""
    return await _until_there(
        "temporal",
        lambda: Client.connect(
            settings.temporal_address, namespace=settings.temporal_namespace, data_converter=DATA_CONVERTER
        ),
    )


async def connect_database(settings: Settings, name: str) -> Pool:
    """Opens the system pool, waiting for PostgreSQL with back-off as long as it takes."""
    return await _until_there(
        "postgresql", lambda: open_pool(settings.database_system_url, size=POOL_SIZE, name=name)
    )


async def _until_there(server: str, connect: Callable[[], Awaitable[ConnectedT]]) -> ConnectedT:
    backoff = Backoff(FIRST_PAUSE, MOST_PAUSE)
    while True:
        try:
            return await connect()
        except (OSError, RuntimeError, RPCError, asyncpg.PostgresError) as error:
            pause_s = backoff.next().total_seconds()
            log.warning("server_not_there", server=server, error=str(error)[:200], retry_s=round(pause_s, 2))
            await asyncio.sleep(pause_s)


async def run_core(settings: Settings, stop: asyncio.Event) -> None:
    """Serves workflows and run activities until `stop` is set, then drains."""
    client = await connect_temporal(settings)
    pool = await connect_database(settings, "runlane-core")
    activities = RunActivities(pool, heartbeat_s=settings.worker_heartbeat_s)
    worker = Worker(
        client,
        task_queue=names.CORE_QUEUE,
        workflows=WORKFLOWS,
        activities=[*activities.all(), FireActivities(pool).decide_fire],
        workflow_runner=RUNNER,
        max_concurrent_activities=CORE_SLOTS,
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        graceful_shutdown_timeout=GRACE,
    )
    await _serve(worker, pool, stop, "core")


async def keep_schedules(settings: Settings) -> None:
    """Brings the schedules of the sweeps up to date, then makes again those that get lost; for ever.

    A Temporal that lost its data has no schedules, and the sweeps are what starts lost workflows again.
    """
    client = await connect_temporal(settings)
    await _until_there("temporal", lambda: ensure_schedules(client))
    log.info("sweeps_scheduled")
    while True:
        await asyncio.sleep(SCHEDULES_LOOK_S)
        await _until_there("temporal", lambda: make_missing(client))


async def run_results(settings: Settings, stop: asyncio.Event) -> None:
    """Serves the merge, the parts of sweeps and deliveries until `stop` is set, then drains."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_run_merge(settings, stop))
        group.create_task(_run_sweeps(settings, stop))
        group.create_task(run_deliveries(settings, stop))


async def _run_merge(settings: Settings, stop: asyncio.Event) -> None:
    client = await connect_temporal(settings)
    pool = await connect_database(settings, "runlane-results")
    worker = Worker(
        client,
        task_queue=names.RESULT_QUEUE,
        activities=[ResultActivities(pool, Storage(StorageConfig(**settings.bucket))).settle_batches],
        max_concurrent_activities=RESULT_SLOTS,
        graceful_shutdown_timeout=GRACE,
    )
    await _serve(worker, pool, stop, "results")


async def _run_sweeps(settings: Settings, stop: asyncio.Event) -> None:
    """On connections of their own: a long sweep takes none from the merge."""
    client = await connect_temporal(settings)
    pool = await connect_database(settings, "runlane-sweeps")
    config = StorageConfig(**settings.bucket)
    buckets = Buckets(Storage(config), Storage(config, names.AUDIT_BUCKET))
    worker = Worker(
        client,
        task_queue=names.SWEEP_QUEUE,
        activities=[SweepActivities(pool, client, buckets, settings.sweep_bounds).sweep],
        max_concurrent_activities=SWEEP_SLOTS,
        graceful_shutdown_timeout=GRACE,
    )
    await _serve(worker, pool, stop, "sweeps")


async def run_deliveries(settings: Settings, stop: asyncio.Event) -> None:
    """Serves deliveries until `stop` is set, then drains; on connections of their own."""
    client = await connect_temporal(settings)
    pool = await connect_database(settings, "runlane-deliveries")
    reach = Reach.of(**settings.reach)
    async with open_client(reach, settings.outbound_ca_file) as outside:
        outbound = Outbound(outside, transports(reach), Keyring.of(settings.secret_key_texts))
        worker = Worker(
            client,
            task_queue=names.DELIVERY_QUEUE,
            activities=[DeliveryActivities(pool, outbound).deliver],
            max_concurrent_activities=DELIVERY_SLOTS,
            graceful_shutdown_timeout=GRACE,
        )
        await _serve(worker, pool, stop, "deliveries")


async def _serve(worker: Worker, pool: Pool, stop: asyncio.Event, name: str) -> None:
    log.info("worker_started", worker=name)
    async with worker:
        await stop.wait()
    await pool.close()
    log.info("worker_stopped", worker=name)
