"""A run whose batches are dispatched, claimed and lost by statements alone, with or without their worker."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from uuid import UUID, uuid4

from temporalio.testing import ActivityEnvironment

from activities.results import EndedBatch, ResultActivities, SettleInput
from runlane import names
from runlane.db.claims import ClaimedJob
from runlane.db.dispatch import Batches, Dispatch, NextBatches, next_batches
from runlane.db.pool import Pool
from runlane.db.settle import Ending
from runlane.storage import Storage
from tests.integration.dispatched_run import OWNER
from tests.integration.scan_host import Done, ScanHost

_CALLS = count(10_000)
_DUE = "UPDATE jobs SET due_at = clock_timestamp() WHERE run_id = $1 AND status = 'pending'"


@dataclass(frozen=True, slots=True)
class LostJobs:
    """A run of one step `only` that was begun by `dispatched_run`."""

    pool: Pool
    storage: Storage
    workspace_id: UUID
    run_id: UUID

    async def ask(self, room: int = 10, least: int = 1) -> Batches:
        """The answer to one more call for batches."""
        call = NextBatches(
            run_id=self.run_id,
            workspace_id=self.workspace_id,
            workflow_id=names.run_workflow_id(self.run_id),
            workflow_run_id=OWNER.workflow_run_id,
            owner=OWNER.workflow_run_id,
            call_number=next(_CALLS),
            rooms={"only": room},
            least_batch=least,
        )
        async with self.pool.acquire() as conn, conn.transaction():
            return await next_batches(conn, call)

    async def next(self, room: int = 10) -> list[Dispatch]:
        """The next batches, every back-off being over."""
        await self.pool.execute(_DUE, self.run_id)
        return (await self.ask(room)).dispatches

    async def take(self, host: ScanHost, dispatch_id: UUID) -> Sequence[ClaimedJob]:
        """Claims a batch."""
        return (await host.claim(dispatch_id, str(uuid4()), 100)).jobs

    async def complete(self, host: ScanHost, dispatch_id: UUID) -> None:
        """Claims a batch, and completes all of it."""
        said = [(job, Done()) for job in await self.take(host, dispatch_id)]
        await host.stage(await host.delivery(dispatch_id, said))
        await self.settle([dispatch_id], Ending.ENDED)

    async def lose(self, host: ScanHost, dispatch_id: UUID) -> ScanHost:
        """Claims a batch and loses it with the worker, which then begins a new life."""
        await self.take(host, dispatch_id)
        await self.settle([dispatch_id], Ending.LOST)
        return await self.reborn(host)

    async def reborn(self, host: ScanHost) -> ScanHost:
        """The host in a new life."""
        incarnation = uuid4()
        await self.pool.execute(
            "UPDATE workers SET incarnation = $2, status = 'online' WHERE id = $1",
            host.worker_id,
            incarnation,
        )
        return replace(host, incarnation=incarnation)

    async def settle(self, dispatches: Sequence[UUID], ending: Ending) -> None:
        """Settles batches that have ended so."""
        results = ResultActivities(self.pool, self.storage)
        batches = [EndedBatch(str(dispatch_id), ending) for dispatch_id in dispatches]
        await ActivityEnvironment().run(results.settle_batches, SettleInput(batches))
