"""Jobs at addresses inside: a shared worker could but refuse them, so they wait for an own worker."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from uuid import UUID

import pytest
import pytest_asyncio

from runlane import names
from runlane.db.dispatch import Batches, NextBatches, next_batches
from runlane.db.pool import Pool
from runlane.db.routes import routes_of
from runlane.db.run_requests import RunRequest
from runlane.db.runs import Owner, load
from runlane.db.starting import StartRun, start_run
from runlane.db.views.plan import draft_run, plan_of
from runlane.db.views.why import why_job
from runlane.definitions import parse_definition
from runlane.jobs import Priority
from tests.integration.scan_host import enrol

pytestmark = pytest.mark.integration

OWNER = Owner("workflow", datetime(2026, 12, 1, 10, 0, tzinfo=UTC))
INSIDE, OUTSIDE = "10.1.2.3", "93.184.216.34"
PORTS = parse_definition({"name": "test", "jobs": {"ports": {"run": "portprobe"}}})
NO_OWN = "no live worker of the workspace itself for the tool set probe"
NAME = """
INSERT INTO assets (workspace_id, target_id, value, addresses, first_seen, last_seen)
SELECT workspace_id, id, $2, ARRAY[$3::inet], now(), now() FROM targets WHERE id = $1
"""
ASKED = "SELECT spec ->> 'address' AS address, own_only FROM jobs"


@dataclass(slots=True)
class Scene:
    """A workspace that allows 10/8 and shared workers, and its runs."""

    pool: Pool
    workspace_id: UUID
    calls: "count[int]" = field(default_factory=lambda: count(1))

    async def begin(self, *targets: tuple[str, str]) -> UUID:
        """A run of port scans over new targets, each a kind and a value."""
        async with self.pool.acquire() as conn, conn.transaction():
            ids = [
                await conn.fetchval(
                    "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, $2, $3) RETURNING id",
                    self.workspace_id,
                    kind,
                    value,
                )
                for kind, value in targets
            ]
            if targets[0][0] == "domain":
                await conn.execute(NAME, ids[0], f"inside.{targets[0][1]}", INSIDE)
                await conn.execute(NAME, ids[0], f"elsewhere.{targets[0][1]}", "192.168.7.7")
            started = await start_run(conn, StartRun(self.workspace_id, PORTS, ids, "test"))
            await load(conn, started.run_id, OWNER)
        return started.run_id

    async def next(self, run_id: UUID) -> Batches:
        """What the run's workflow is given, with room for ten batches."""
        call = NextBatches(
            run_id=run_id,
            workspace_id=self.workspace_id,
            workflow_id=names.run_workflow_id(run_id),
            workflow_run_id=OWNER.workflow_run_id,
            owner=OWNER.workflow_run_id,
            call_number=next(self.calls),
            rooms={"ports": 10},
        )
        async with self.pool.acquire() as conn, conn.transaction():
            return await next_batches(conn, call)

    async def queues(self, run_id: UUID) -> list[str]:
        """Queues of what the workflow is given."""
        return [each.task_queue for each in (await self.next(run_id)).dispatches]

    async def blocked_reason(self) -> str | None:
        """What the one run waits for."""
        reason: str | None = await self.pool.fetchval("SELECT blocked_reason FROM job_histories")
        return reason

    @property
    def own_queue(self) -> str:
        """Queue of the workspace's own workers."""
        return names.scan_queue(self.workspace_id, "probe")


SHARED_QUEUE = names.shared_scan_queue("probe")


@pytest_asyncio.fixture
async def scene(pool: Pool) -> Scene:
    workspace_id = await pool.fetchval(
        """INSERT INTO workspaces (name, allowed_networks, allow_shared)
           VALUES ('test', '{10.0.0.0/8}', true) RETURNING id"""
    )
    return Scene(pool, workspace_id)


async def test_private_target_waits_for_an_own_worker_instead_of_failing_on_a_shared_one(
    scene: Scene,
) -> None:
    await enrol(scene.pool, scene.workspace_id, is_shared=True)
    run_id = await scene.begin(("ip", INSIDE), ("ip", OUTSIDE))

    given = await scene.next(run_id)

    assert [each.task_queue for each in given.dispatches] == [SHARED_QUEUE]
    assert await scene.blocked_reason() == NO_OWN
    job_id = await scene.pool.fetchval("SELECT id FROM jobs WHERE own_only")
    async with scene.pool.acquire() as conn:
        why = await why_job(conn, scene.workspace_id, job_id)
    assert why.text == f"{NO_OWN} (1 shared, which may not take it)"
    assert await scene.queues(run_id) == []

    await enrol(scene.pool, scene.workspace_id)

    assert await scene.queues(run_id) == [scene.own_queue]
    assert await scene.blocked_reason() is None


async def test_shared_worker_is_never_granted_a_private_job(scene: Scene) -> None:
    run_id = await scene.begin(("ip", INSIDE))
    (given,) = (await scene.next(run_id)).dispatches
    assert given.task_queue == scene.own_queue
    assert await scene.blocked_reason() == "no live worker for the tool set probe"
    shared = await enrol(scene.pool, scene.workspace_id, is_shared=True)

    answer = await shared.claim(given.dispatch_id, "key", 1)

    assert answer.jobs == ()
    own = await enrol(scene.pool, scene.workspace_id)
    await scene.pool.execute("UPDATE jobs SET due_at = clock_timestamp()")
    (again,) = (await scene.next(run_id)).dispatches
    assert len((await own.claim(again.dispatch_id, "key", 1)).jobs) == 1


async def test_addresses_of_names_count_as_far_as_they_are_known_and_allowed(scene: Scene) -> None:
    await scene.begin(("domain", "corp.test"))

    rows = {row["address"]: row["own_only"] for row in await scene.pool.fetch(ASKED)}

    assert rows == {None: False, INSIDE: True, "192.168.7.7": False}


async def test_plan_sends_private_jobs_where_the_run_will(scene: Scene) -> None:
    await enrol(scene.pool, scene.workspace_id, is_shared=True)
    await scene.begin(("ip", INSIDE), ("ip", OUTSIDE))
    targets = [row["id"] for row in await scene.pool.fetch("SELECT id FROM targets")]
    request = RunRequest(
        scene.workspace_id, PORTS.as_json(), targets, "test", Priority.NORMAL, {}, created_by="me"
    )

    async with scene.pool.acquire() as conn, conn.transaction():
        draft = await draft_run(conn, request)
        routes = await routes_of(conn, scene.workspace_id, "probe", allow_shared=True)
    plan = plan_of(draft, [routes])

    (step,) = plan.steps
    served = {route.task_queue: (route.jobs, route.slots > 0) for route in step.routes}
    assert served == {SHARED_QUEUE: (1, True), scene.own_queue: (1, False)}
    assert list(plan.missing) == [NO_OWN]


async def test_private_and_public_jobs_are_not_of_one_batch(scene: Scene) -> None:
    await enrol(scene.pool, scene.workspace_id)
    run_id = await scene.begin(*(("ip", f"10.1.2.{n}") for n in range(4)), ("ip", OUTSIDE), ("ip", "8.8.8.8"))

    given = (await scene.next(run_id)).dispatches

    assert {each.task_queue for each in given} == {scene.own_queue}
    mixed = (
        "SELECT count(*) FROM (SELECT FROM jobs GROUP BY dispatch_id HAVING count(DISTINCT own_only) > 1) m"
    )
    assert await scene.pool.fetchval(mixed) == 0
