"""The polls of a scan worker: one Temporal worker for each of its queues, replaced when it fails."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Final

import structlog
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from runlane import names
from runlane.backoff import pause
from runlane.scan.activity import ScanActivities
from runlane.scan.client import new_backoff
from runlane.scan.rotation import Token
from runlane.scan.wire import Queue

log = structlog.get_logger(__name__)

_TLS: Final = "https://"
_POLLS: Final = 2
"""Polls open at once for a queue; each holds a slot while it waits."""

_MOST_BEAT_INTERVAL: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Temporal:
    """Where Temporal is, behind its gateway, and who we are there."""

    address: str
    """host:port; https://host:port where something in front of the gateway does TLS."""
    namespace: str
    identity: str
    token: Token = field(repr=False)
    incarnation: str
    """It stays for the whole life; the token may be replaced."""


async def connect(temporal: Temporal, stop: asyncio.Event) -> Client | None:
    """A client that always presents the token of the moment; None if the stop came first."""
    backoff = new_backoff()
    host = temporal.address.removeprefix(_TLS)
    while not stop.is_set():
        try:
            client = await Client.connect(
                host,
                namespace=temporal.namespace,
                identity=temporal.identity,
                api_key=temporal.token.value,
                tls=host != temporal.address,
                rpc_metadata={names.GATEWAY_INCARNATION_KEY: temporal.incarnation},
            )
        except (RuntimeError, RPCError) as error:
            log.warning("gateway_away", address=temporal.address, error=str(error))
        else:
            temporal.token.follow(partial(setattr, client, "api_key"))
            client.api_key = temporal.token.value  # it may have been replaced while we connected
            return client
        await pause(backoff.next(), stop)
    return None


@dataclass(frozen=True, slots=True)
class Poller:
    """Serves queues until told to stop; batches in hand then have `drain_s` to finish."""

    temporal: Temporal
    queues: Sequence[Queue]
    activities: ScanActivities
    drain_s: float

    async def serve(self, stop: asyncio.Event) -> None:
        """Returns when the stop has come and nothing runs any more."""
        client = await connect(self.temporal, stop)
        if client is None:
            return
        async with asyncio.TaskGroup() as group:
            for queue in self.queues:
                group.create_task(self._serve_queue(client, queue, stop))

    async def _serve_queue(self, client: Client, queue: Queue, stop: asyncio.Event) -> None:
        backoff = new_backoff()
        while not stop.is_set():
            try:
                await _run(self._worker(client, queue), stop)
            except (RuntimeError, RPCError) as error:  # how the SDK reports what it could not live through
                log.warning("polling_failed", task_queue=queue.task_queue, error=str(error))
                await pause(backoff.next(), stop)

    def _worker(self, client: Client, queue: Queue) -> Worker:
        return Worker(
            client,
            task_queue=queue.task_queue,
            activities=[self.activities.run_batch],
            build_id=version("runlane"),
            max_concurrent_activities=queue.slots,
            max_concurrent_activity_task_polls=_POLLS,
            max_heartbeat_throttle_interval=_MOST_BEAT_INTERVAL,
            graceful_shutdown_timeout=timedelta(seconds=self.drain_s),
            disable_eager_activity_execution=True,
        )


async def _run(worker: Worker, stop: asyncio.Event) -> None:
    running = asyncio.create_task(worker.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await worker.shutdown()
        await running
    finally:
        stopping.cancel()
        running.cancel()
        await asyncio.wait([running])
