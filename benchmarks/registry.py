"""The registry path with a no-op tool: admit → dispatch → claim → stage → merge → relay, everything real."""

import asyncio
import time
from dataclasses import dataclass
from uuid import UUID

from temporalio.client import Client

from benchmarks import cpu
from runlane import names
from runlane.cli.platform import Platform
from runlane.db.event_counts import count_unpublished
from runlane.db.inventory import ensure_primary_assets
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from workflows.dispatching import Limits
from workflows.run import RunWorkflow
from workflows.starting import RunToStart, start_run_workflow

LONGEST_S = 900
DRAIN_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Load:
    """A run of `steps` × `jobs_per_step` no-op jobs in batches of `batch`."""

    batch: int
    jobs_per_step: int
    steps: int = 1

    @property
    def jobs(self) -> int:
        """Jobs in all."""
        return self.jobs_per_step * self.steps


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one load measured."""

    load: Load
    jobs_per_s: float
    """Start of the run to its end."""
    drained_per_s: float
    """Start of the run to the last event on the bus."""
    cpu_per_thousand: dict[str, float]
    batches: int


async def make_targets(pool: Pool, workspace_id: UUID, count: int) -> list[UUID]:
    """Targets named after numbers with their primary assets, made once: loads find nothing new in them."""
    rows = await pool.fetch(
        """INSERT INTO targets (workspace_id, kind, value)
           SELECT $1, 'domain', 'bench-' || n || '.lab.test' FROM generate_series(1, $2) n
           ON CONFLICT DO NOTHING RETURNING id""",
        workspace_id,
        count,
    )
    ids = [row["id"] for row in rows]
    async with pool.acquire() as conn, conn.transaction():
        await ensure_primary_assets(conn, workspace_id, ids)
    return ids


async def measure(
    platform: Platform, pool: Pool, client: Client, load: Load, targets: list[UUID]
) -> Throughput:
    """Runs one load to its end and until the outbox is drained."""
    jobs = {f"s{n}": {"run": "noop"} for n in range(load.steps)}
    definition = parse_definition({"name": "bench", "jobs": jobs})
    request = StartRun(
        platform.workspace_id, definition, targets[: load.jobs_per_step], "bench", kind="bench"
    )
    before = cpu.spent(platform.stack)
    began = time.perf_counter()
    async with pool.acquire() as conn, conn.transaction():
        started = await start_run(conn, request)
        await conn.execute("UPDATE commands SET done_at = clock_timestamp() WHERE done_at IS NULL")
    limits = Limits(**platform.settings.dispatch_limits)
    limits.least_batch = load.batch
    run = RunToStart(started.run_id, platform.workspace_id, "bench", "bench")
    await start_run_workflow(client, run, limits)
    handle = client.get_workflow_handle_for(RunWorkflow.run, names.run_workflow_id(started.run_id))
    await asyncio.wait_for(handle.result(), LONGEST_S)
    ended = time.perf_counter()
    await _drained(pool)
    drained = time.perf_counter()
    await _check(pool, started.run_id, load)
    batches = await pool.fetchval("SELECT count(*) FROM dispatches WHERE run_id = $1", started.run_id)
    return Throughput(
        load=load,
        jobs_per_s=load.jobs / (ended - began),
        drained_per_s=load.jobs / (drained - began),
        cpu_per_thousand=cpu.per_thousand(before, cpu.spent(platform.stack), load.jobs),
        batches=batches,
    )


async def _drained(pool: Pool) -> None:
    async with pool.acquire() as conn:
        while await count_unpublished(conn):  # noqa: ASYNC110  # another process drains it
            await asyncio.sleep(DRAIN_POLL_S)


async def _check(pool: Pool, run_id: UUID, load: Load) -> None:
    rows = await pool.fetch("SELECT status, count(*) FROM jobs WHERE run_id = $1 GROUP BY 1", run_id)
    found = {row[0]: row[1] for row in rows}
    if found != {"completed": load.jobs}:
        raise RuntimeError(f"the bench run did not complete every job: {found}")
