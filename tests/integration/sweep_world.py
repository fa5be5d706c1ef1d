"""Sweeps by hand: one part at a time on real rows, with the real Temporal server and bucket behind it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.results import ResultActivities, SettleInput
from activities.sweeps import Buckets, SweepActivities, SweepTurn
from lanes.commands import relay_once
from runlane import names
from runlane.db.pool import Pool
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from runlane.sweeps import Part, Report
from workflows.dispatching import Limits


@dataclass(frozen=True, slots=True)
class SweepWorld:
    """The activities of sweeps on one database."""

    pool: Pool
    temporal: Client
    buckets: Buckets
    activities: SweepActivities

    async def sweep(self, part: Part) -> Report:
        """All turns of a part."""
        report, cursor = Report(), ""
        while True:
            answer = await ActivityEnvironment().run(self.activities.sweep, SweepTurn(part, cursor))
            report += Report(answer.examined, answer.changed, answer.failed)
            if not answer.cursor:
                return report
            cursor = answer.cursor

    async def settle(self, batches: SettleInput) -> None:
        """Settles batches, as a workflow would ask for."""
        settling = ResultActivities(self.pool, self.buckets.results)
        await ActivityEnvironment().run(settling.settle_batches, batches)

    async def relay(self) -> int:
        """Tells Temporal what commands are due; answers how many it took."""
        return (await relay_once(self.pool, self.temporal, Limits())).done


@asynccontextmanager
async def sweep_world(settings: Settings, pool: Pool) -> AsyncIterator[SweepWorld]:
    """Sweeps on the test's database."""
    client = await Client.connect(settings.temporal_address)
    config = StorageConfig(**settings.bucket)
    buckets = Buckets(Storage(config), Storage(config, names.AUDIT_BUCKET))
    yield SweepWorld(pool, client, buckets, SweepActivities(pool, client, buckets, settings.sweep_bounds))
