"""A worker that claims just when the settle gives its batch up."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

from temporalio.testing import ActivityEnvironment

from activities.results import EndedBatch, ResultActivities, SettleInput
from runlane import names
from runlane.db.claims import ClaimRequest, claim
from runlane.db.dispatch import NextBatches, next_batches
from runlane.db.pool import Pool
from runlane.db.runs import Owner, load
from runlane.db.settle import Ending
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from tests.integration.scan_host import enrol
from tests.waiting import until

OWNER = Owner("workflow", datetime(2026, 12, 1, 10, 0, tzinfo=UTC))
WAITING = """
SELECT count(*) = 1 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def dispatched(pool: Pool, workspace_id: UUID) -> UUID:
    """Writes a run of one job and dispatches it; answers the dispatch."""
    definition = parse_definition({"name": "test", "jobs": {"only": {"run": "noop"}}})
    async with pool.acquire() as conn, conn.transaction():
        target_id: UUID = await conn.fetchval(
            "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'a.test') RETURNING id",
            workspace_id,
        )
        started = await start_run(conn, StartRun(workspace_id, definition, [target_id], "test"))
        await load(conn, started.run_id, OWNER)
        call = NextBatches(
            run_id=started.run_id,
            workspace_id=workspace_id,
            workflow_id=names.run_workflow_id(started.run_id),
            workflow_run_id=OWNER.workflow_run_id,
            owner=OWNER.workflow_run_id,
            call_number=1,
            rooms={"only": 1},
        )
        (dispatch,) = (await next_batches(conn, call)).dispatches
    return dispatch.dispatch_id


async def test_job_claimed_while_its_batch_is_given_up_is_settled_again(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    host = await enrol(pool, workspace_id)
    dispatch_id = await dispatched(pool, workspace_id)
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
