"""A worker that claims just when the settle gives its batch up."""

import asyncio
from uuid import UUID

import pytest
from temporalio.testing import ActivityEnvironment

from activities.results import EndedBatch, ResultActivities, SettleInput
from runlane.db.claims import ClaimRequest, claim
from runlane.db.pool import Pool
from runlane.db.settle import Ending
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from tests.integration.dispatched_run import dispatched_run
from tests.integration.scan_host import enrol
from tests.waiting import until

pytestmark = pytest.mark.integration

WAITING = """
SELECT count(*) = 1 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def test_job_claimed_while_its_batch_is_given_up_is_settled_again(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    host = await enrol(pool, workspace_id)
    (dispatch_id,) = (await dispatched_run(pool, workspace_id)).dispatches
    results = ResultActivities(pool, Storage(StorageConfig(**settings.bucket)))
    batch = EndedBatch(str(dispatch_id), Ending.LOST)
    request = ClaimRequest(dispatch_id, "key", host.worker_id, host.incarnation, 1)

    async with pool.acquire() as conn, conn.transaction():
        answer = await claim(conn, request)
        settling = asyncio.create_task(
            ActivityEnvironment().run(results.settle_batches, SettleInput([batch]))
        )
        await until(lambda: pool.fetchval(WAITING))
    first = await settling
    second = await ActivityEnvironment().run(results.settle_batches, SettleInput(first.again))

    assert len(answer.jobs) == 1
    assert (first.again, second.again) == ([batch], [])
    assert await pool.fetchval("SELECT outcome FROM job_attempts") == "lost"
    assert await pool.fetchval("SELECT status FROM jobs") == "pending"
