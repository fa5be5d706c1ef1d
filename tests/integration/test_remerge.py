"""A result whose merge failed for good is merged anew: nothing is scanned again, open run or not."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.client import Client

from runlane.db.acts import Act
from runlane.db.claims import ClaimedJob
from runlane.db.pool import Pool
from runlane.db.remerge import remerge_job
from runlane.db.reruns import Rerun
from runlane.definitions import parse_definition
from runlane.errors import Conflict, NotFound
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.integration.run_world import Gate, RunWorld, graph
from tests.integration.scan_host import Done

pytestmark = pytest.mark.integration

ACT = Act(name="ops", reason="the constraint is gone")
FAILED = "SELECT id FROM jobs WHERE status = 'failed' AND reason = 'merge' ORDER BY id LIMIT 1"


@pytest_asyncio.fixture
async def world(
    stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> AsyncIterator[RunWorld]:
    client = await Client.connect(stack.urls.temporal_address)
    made = RunWorld(pool, database.owner, client, Storage(StorageConfig(**settings.bucket)), workspace_id)
    async with made.workers():
        yield made


async def remerge(world: RunWorld, job_id: UUID, workspace_id: UUID | None = None) -> Rerun:
    """Asks for the merge, and tells Temporal."""
    async with world.pool.acquire() as conn, conn.transaction():
        made = await remerge_job(conn, workspace_id or world.workspace_id, job_id, ACT)
        await conn.execute("UPDATE commands SET due_at = clock_timestamp() WHERE done_at IS NULL")
    await world.relay()
    return made


def found(_step: str, job: ClaimedJob) -> Done:
    return Done(records=[{"name": f"bad.{job.spec['host']}"}])


@pytest.mark.parametrize("in_bucket", [False, True], ids=["inline", "bucket"])
async def test_kept_result_is_merged_in_a_new_run_without_a_worker(
    world: RunWorld, *, in_bucket: bool
) -> None:
    async with world.broken_merge(), world.host(found, in_bucket=in_bucket):
        failed_run = await world.start(graph("dnsprobe", a=[]))
        await world.end_of(failed_run)
    job_id = await world.pool.fetchval(FAILED)

    made = await remerge(world, job_id)
    status = await world.end_of(made.run_id)

    assert status == "completed"
    assert made.run_id != failed_run
    assert "bad.h1.lab.test" in await world.assets()
    new = await world.row(
        "SELECT status, attempt, retry_of, failures FROM jobs WHERE run_id = $1", made.run_id
    )
    assert new == ("completed", 1, job_id, 0)
    assert await world.row("SELECT status, retryable FROM jobs WHERE id = $1", job_id) == ("failed", False)
    assert await world.staged() == (0, 0)
    with pytest.raises(Conflict) as refused:
        await remerge(world, job_id)
    assert refused.value.code == "job.result_gone"


async def test_kept_result_is_merged_in_its_run_while_the_step_is_open(world: RunWorld) -> None:
    gate = Gate()

    async def tool(step_id: str, job: ClaimedJob) -> Done:
        return found(step_id, job) if job.spec["host"] == "h1.lab.test" else await gate.tool(step_id, job)

    async with world.host(tool):
        async with world.broken_merge():
            run_id = await world.start(graph("dnsprobe", a=[]), count=2)
            await world.until("SELECT count(*) = 1 FROM jobs WHERE status = 'failed'")
        made = await remerge(world, await world.pool.fetchval(FAILED))
        await world.until("SELECT status = 'completed' FROM jobs WHERE id = $1", made.job_id)
        gate.open()
        status = await world.end_of(run_id)

    assert made.run_id == run_id
    assert status == "completed"
    assert "bad.h1.lab.test" in await world.assets()


async def test_merge_that_fails_again_keeps_the_result_for_another_try(world: RunWorld) -> None:
    async with world.host(found):
        async with world.broken_merge():
            await world.end_of(await world.start(graph("dnsprobe", a=[])))
            again = await remerge(world, await world.pool.fetchval(FAILED))
            await world.end_of(again.run_id)
        with pytest.raises(Conflict) as refused:
            await remerge(world, await world.pool.fetchval(FAILED))
        last = await remerge(world, again.job_id) if again.job_id else again
        status = await world.end_of(last.run_id)

    assert refused.value.code == "job.remerged"
    assert status == "completed"
    assert await world.count_jobs(last.run_id) == {"completed": 1}


async def test_kept_result_is_merged_whatever_the_rates_say_and_wherever_its_target_is_now(
    world: RunWorld,
) -> None:
    full = {"name": "t", "jobs": {"a": {"run": "portprobe", "config": {"ports": "1-65535"}}}}
    port = {"port": 22, "protocol": "tcp", "address": "127.7.0.4", "banner": None, "tls": False}
    async with world.host(lambda _step, _job: Done(records=[port])):
        await world.change("ALTER TABLE port_observations ADD CONSTRAINT no_more CHECK (false) NOT VALID")
        await world.end_of(await world.start(parse_definition(full)))
        await world.change("ALTER TABLE port_observations DROP CONSTRAINT no_more")
    await world.pool.execute(
        """WITH n AS (INSERT INTO internal_networks (workspace_id, name) VALUES ($1, 'site') RETURNING id)
           UPDATE targets SET network_id = n.id FROM n""",
        world.workspace_id,
    )
    await world.pool.execute("INSERT INTO rates (per_second) VALUES (10)")

    made = await remerge(world, await world.pool.fetchval(FAILED))

    assert await world.end_of(made.run_id) == "completed"
    assert await world.value("SELECT count(*) FROM port_observations") == 1


async def test_remerge_is_refused_where_it_makes_no_sense(world: RunWorld) -> None:
    async with world.host(lambda _step, _job: Done()):
        await world.end_of(await world.start(graph(a=[])))
    job_id = await world.pool.fetchval("SELECT id FROM jobs")
    other = await world.pool.fetchval("INSERT INTO workspaces (name) VALUES ('other') RETURNING id")

    with pytest.raises(Conflict) as refused:
        await remerge(world, job_id)
    with pytest.raises(NotFound):
        await remerge(world, job_id, other)

    assert refused.value.code == "job.not_mergeable"
