"""A claim that meets a cancel on the rows of its batch."""

import asyncio
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from runlane.db.cancel import cancel_run
from runlane.db.engine import is_lost, open_engine
from runlane.db.pool import Pool
from tests.conftest import Database
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.scan_host import enrol
from tests.waiting import WAIT_S

pytestmark = pytest.mark.integration

FIRST = "SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE"


async def test_claim_of_a_part_waits_for_no_cancel_that_waits_for_it(pool: Pool, workspace_id: UUID) -> None:
    host = await enrol(pool, workspace_id)
    run = await dispatched_run(pool, workspace_id, Shape(jobs_each=2))
    (dispatch_id,) = run.dispatches

    async with pool.acquire() as conn, conn.transaction():
        await conn.fetch(FIRST)  # where a cancel is when it has locked the first of its rows
        async with asyncio.timeout(WAIT_S):
            answer = await host.claim(dispatch_id, "key", 1)
        result = await cancel_run(conn, workspace_id, run.run_id)

    assert len(answer.jobs) == 1
    assert result.jobs == 2
    assert await pool.fetchval("SELECT count(*) FROM jobs WHERE status = 'cancelled'") == 2


async def test_two_transactions_in_each_others_way_are_asked_again(database: Database) -> None:
    engine = open_engine(database.api, size=1)
    raising = "DO $$ BEGIN RAISE EXCEPTION 'held' USING ERRCODE = 'deadlock_detected'; END $$"
    try:
        async with engine.connect() as conn:
            with pytest.raises(DBAPIError) as raised:
                await conn.exec_driver_sql(raising)
    finally:
        await engine.dispose()

    assert is_lost(raised.value)
    assert is_lost(asyncpg.DeadlockDetectedError())
