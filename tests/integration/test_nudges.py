"""A nudge that meets the workflow's own look at its rows, on two connections."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from uuid import UUID

import pytest
import pytest_asyncio

from runlane import names
from runlane.db.nudges import nudge, nudge_for_worker, nudge_unheld
from runlane.db.pool import Connection, Pool
from runlane.db.runs import RunRead, resync
from tests.integration.dispatched_run import dispatched_run
from tests.integration.scan_host import ScanHost, enrol
from tests.waiting import until

pytestmark = pytest.mark.integration

GONE = "UPDATE workers SET status = 'offline' WHERE id = $1"
WAITS = (
    "SELECT 1 FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND wait_event_type = 'Lock'"
)
OPEN_NUDGES = "SELECT count(*) FROM commands WHERE kind = 'nudge' AND done_at IS NULL"
TOLD = "UPDATE commands SET done_at = clock_timestamp() WHERE kind = 'nudge'"
SHARD = """
INSERT INTO run_shards (workspace_id, run_id, step_id, number, workflow_id)
SELECT workspace_id, id, 'only', 0, $2 FROM job_histories WHERE id = $1
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """A run that was nudged and told, with one job in progress."""

    pool: Pool
    run_id: UUID
    workflow_id: str
    dispatch_id: UUID
    host: ScanHost

    async def look(self) -> RunRead:
        """What the run's workflow reads after a nudge."""
        async with self.pool.acquire() as conn, conn.transaction():
            return await resync(conn, self.run_id, self.workflow_id)

    async def lose_host(self, conn: Connection) -> int:
        """Takes the host off line and says so."""
        await conn.execute(GONE, self.host.worker_id)
        return await nudge_for_worker(conn, self.host.worker_id)

    async def begin(self, work: Coroutine[object, object, RunRead | int]) -> "asyncio.Task[RunRead | int]":
        """Begins work that ends at once, or waits for a lock."""
        task = asyncio.create_task(work)

        async def has_met() -> bool:
            return task.done() or await self.pool.fetchval(WAITS) is not None

        await until(has_met)
        return task


@pytest_asyncio.fixture(params=["run", "shard"])
async def scene(request: pytest.FixtureRequest, pool: Pool, workspace_id: UUID) -> Scene:
    host = await enrol(pool, workspace_id)
    run = await dispatched_run(pool, workspace_id)
    (dispatch_id,) = run.dispatches
    workflow_id = names.run_workflow_id(run.run_id)
    if request.param == "shard":
        workflow_id = names.shard_workflow_id(run.run_id, "only", 0)
        await pool.execute(SHARD, run.run_id, workflow_id)
        await pool.execute("UPDATE dispatches SET workflow_id = $1", workflow_id)
    await host.claim(dispatch_id, "key", 1)
    async with pool.acquire() as conn, conn.transaction():
        assert await nudge(conn, [workflow_id]) == 1
        assert await nudge(conn, [workflow_id]) == 0
    await pool.execute(TOLD)
    return Scene(pool, run.run_id, workflow_id, dispatch_id, host)


async def test_nudge_of_a_flag_that_is_being_cleared_is_not_lost(scene: Scene) -> None:
    async with scene.pool.acquire() as conn, conn.transaction():
        assert await scene.lose_host(conn) == 0
        looking = await scene.begin(scene.look())
    read = await looking

    assert isinstance(read, RunRead)
    assert read.orphans == [scene.dispatch_id]
    assert await scene.pool.fetchval(OPEN_NUDGES) == 0


async def test_nudge_that_waits_for_the_look_is_told_anew(scene: Scene) -> None:
    async def lose() -> int:
        async with scene.pool.acquire() as conn, conn.transaction():
            return await scene.lose_host(conn)

    async with scene.pool.acquire() as conn, conn.transaction():
        before = await resync(conn, scene.run_id, scene.workflow_id)
        losing = await scene.begin(lose())

    assert await losing == 1
    assert before.orphans == []
    assert (await scene.look()).orphans == [scene.dispatch_id]
    assert await scene.pool.fetchval(OPEN_NUDGES) == 1


async def test_call_that_must_not_wait_for_a_held_row_is_told_all_the_same(scene: Scene) -> None:
    async with scene.pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT FROM job_histories FOR SHARE")
        await holder.execute("SELECT FROM run_shards FOR SHARE")
        async with scene.pool.acquire() as conn, conn.transaction():
            assert await nudge_unheld(conn, [scene.workflow_id]) == 1

    assert await scene.pool.fetchval(OPEN_NUDGES) == 1
    async with scene.pool.acquire() as conn, conn.transaction():
        assert await nudge_unheld(conn, [scene.workflow_id]) == 0  # its flag is on, and nobody holds it


async def test_nudges_of_the_same_workflows_in_any_order_do_not_lock_each_other_out(
    pool: Pool, workspace_id: UUID
) -> None:
    await enrol(pool, workspace_id)
    ids = []
    for name in ("one", "two"):
        run_id = await pool.fetchval(
            """INSERT INTO job_histories (workspace_id, name, definition, nudged_at)
               VALUES ($1, $2, '{}', clock_timestamp()) RETURNING id""",
            workspace_id,
            name,
        )
        ids.append(names.run_workflow_id(run_id))

    async def ask(workflow_ids: list[str]) -> int:
        async with pool.acquire() as conn, conn.transaction():
            return await nudge(conn, workflow_ids)

    asked = await asyncio.gather(*(ask(ids if n % 2 else ids[::-1]) for n in range(40)))

    assert set(asked) == {0}
