"""A claim that meets a cancel on the rows of its batch."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from runlane import names
from runlane.db.cancel import cancel_run
from runlane.db.dispatch import NextBatches, next_batches
from runlane.db.engine import is_lost, open_engine
from runlane.db.pool import Pool
from runlane.db.runs import Owner, load
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from tests.conftest import Database
from tests.integration.scan_host import enrol

pytestmark = pytest.mark.integration

OWNER = Owner("workflow", datetime(2026, 12, 1, 10, 0, tzinfo=UTC))
FIRST = "SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE"


async def dispatched(pool: Pool, workspace_id: UUID) -> tuple[UUID, UUID]:
    """Writes a run of two jobs in one batch; answers run and dispatch."""
    definition = parse_definition({"name": "test", "jobs": {"only": {"run": "noop"}}})
    async with pool.acquire() as conn, conn.transaction():
        rows = await conn.fetch(
            """INSERT INTO targets (workspace_id, kind, value)
               VALUES ($1, 'domain', 'a.test'), ($1, 'domain', 'b.test') RETURNING id""",
            workspace_id,
        )
        started = await start_run(
            conn, StartRun(workspace_id, definition, [row["id"] for row in rows], "test")
        )
        await load(conn, started.run_id, OWNER)
        call = NextBatches(
            run_id=started.run_id,
            workspace_id=workspace_id,
            workflow_id=names.run_workflow_id(started.run_id),
            workflow_run_id=OWNER.workflow_run_id,
            owner=OWNER.workflow_run_id,
            call_number=1,
            rooms={"only": 1},
            least_batch=2,
        )
        (dispatch,) = (await next_batches(conn, call)).dispatches
    return started.run_id, dispatch.dispatch_id


async def test_claim_of_a_part_waits_for_no_cancel_that_waits_for_it(pool: Pool, workspace_id: UUID) -> None:
    host = await enrol(pool, workspace_id)
    run_id, dispatch_id = await dispatched(pool, workspace_id)

    async with pool.acquire() as conn, conn.transaction():
        await conn.fetch(FIRST)  # where a cancel is when it has locked the first of its rows
        async with asyncio.timeout(10):
            answer = await host.claim(dispatch_id, "key", 1)
        result = await cancel_run(conn, workspace_id, run_id)

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
