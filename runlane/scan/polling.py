"""The polls of a scan worker: one Temporal worker for each of its queues, replaced when it fails."""

import asyncio
import weakref
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Final, Self

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

_ABANDON_S: Final = 10.0
"""How much longer than its work the end of polls may take that were renewed."""

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
            tell = partial(_present, weakref.ref(client))
            temporal.token.follow(tell)
            weakref.finalize(client, temporal.token.unfollow, tell)
            client.api_key = temporal.token.value  # it may have been replaced while we connected
            return client
        await pause(backoff.next(), stop)
    return None


def _present(client: "weakref.ref[Client]", token: str) -> None:
    if found := client():
        found.api_key = token


@dataclass(frozen=True, slots=True)
class Poller:
    """Serves queues until told to stop; batches in hand then have `drain_s` to finish."""

    temporal: Temporal
    queues: Sequence[Queue]
    activities: ScanActivities
    drain_s: float
    _renewals: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    def renew(self, toolsets: Sequence[str]) -> None:
        """Has the polls of these tool sets begun anew over another connection; what runs there may finish."""
        for toolset in toolsets:
            self._renewals[toolset].set()

    async def serve(self, stop: asyncio.Event) -> None:
        """Returns when the stop has come and nothing runs any more."""
        client = await connect(self.temporal, stop)
        if client is None:
            return
        async with asyncio.TaskGroup() as group:
            for queue in self.queues:
                group.create_task(self._serve_queue(client, queue, stop, group))

    async def _serve_queue(
        self, client: Client, queue: Queue, stop: asyncio.Event, group: asyncio.TaskGroup
    ) -> None:
        backoff = new_backoff()
        renewal = self._renewals[queue.toolset]
        while not stop.is_set():
            renewal.clear()
            polls = _Polls.begin(self._worker(client, queue))
            try:
                await polls.until_over(stop, renewal)
            except (RuntimeError, RPCError) as error:  # how the SDK reports what it could not live through
                log.warning("polling_failed", task_queue=queue.task_queue, error=str(error))
                await pause(backoff.next(), stop)
            if not polls.running.done():
                log.warning("polls_renewed", task_queue=queue.task_queue)
                group.create_task(polls.wind_down(self.drain_s + _ABANDON_S))
                client = await connect(self.temporal, stop) or client

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


@dataclass(frozen=True, slots=True)
class _Polls:
    """A Temporal worker that runs."""

    worker: Worker
    running: asyncio.Task[None]

    @classmethod
    def begin(cls, worker: Worker) -> Self:
        return cls(worker, asyncio.create_task(worker.run()))

    async def until_over(self, stop: asyncio.Event, renewal: asyncio.Event) -> None:
        """Returns when it has ended, by itself or after the stop; or, while it runs, for a renewal."""
        is_renewed = False
        waits = [asyncio.create_task(event.wait()) for event in (stop, renewal)]
        try:
            await asyncio.wait([self.running, *waits], return_when=asyncio.FIRST_COMPLETED)
            is_renewed = renewal.is_set() and not stop.is_set() and not self.running.done()
            if not is_renewed:
                if not self.running.done():
                    await self.worker.shutdown()
                await self.running
        finally:
            for wait in waits:
                wait.cancel()
            if not is_renewed:
                self.running.cancel()
                await asyncio.wait([self.running])

    async def wind_down(self, within_s: float) -> None:
        """Ends it after what runs; whatever holds its polls may hold their end as well, so not for ever."""
        ending = asyncio.create_task(self.worker.shutdown())
        try:
            done, _ = await asyncio.wait([self.running], timeout=within_s)
            if not done:
                log.warning("polls_abandoned")
        finally:
            ending.cancel()
            self.running.cancel()
            await asyncio.wait([self.running])
