"""`make bench ARGS=--large`: a run of 100,000 jobs, a second one that is cancelled half-way, large merges.

Default settings, everything real. One job of the first run lasts until the bench lets go of it: every other
one has to complete before it. Counts (events of histories, memory, buffers) are what to compare; times move
with the machine.
"""

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import httpx2
from redis.asyncio import Redis
from temporalio.client import Client

from benchmarks import cpu, growth, memory, merging, registry
from benchmarks.histories import History, histories_of
from benchmarks.merging import Merging
from runlane import names
from runlane.cli.platform import Platform
from runlane.db.claims import ClaimRequest, claim
from runlane.db.event_counts import count_unpublished
from runlane.db.invariants import check
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from runlane.scan.confine import marked_processes

JOBS: Final = 100_000
LONGEST_S: Final = 3_600
POLL_S: Final = 2.0
EDGE: Final = 5
"""The first and the last so many-th part of a run are compared."""

_DONE: Final = "SELECT count(*)::int FROM jobs WHERE run_id = $1 AND completed_at IS NOT NULL"

_ENDS: Final = """
SELECT extract(epoch FROM max(j.completed_at) FILTER (WHERE n = $2) - min(h.created_at))::float8 AS first_s,
       extract(epoch FROM max(j.completed_at) FILTER (WHERE n = $3)
                          - max(j.completed_at) FILTER (WHERE n = $3 - $2))::float8 AS last_s,
       extract(epoch FROM min(j.picked_at) - $4)::float8 AS claim_s,
       max(j.attempt) AS attempts
FROM (SELECT run_id, completed_at, picked_at, attempt, row_number() OVER (ORDER BY completed_at) AS n
      FROM jobs WHERE run_id = $1) j
JOIN job_histories h ON h.id = j.run_id
"""

_CANCELLED: Final = "SELECT count(*)::int FROM jobs WHERE run_id = $1 AND status = 'cancelled'"

_TOLD: Final = """
SELECT count(*)::int FROM outbox WHERE type = 'job.cancelled' AND data ->> 'run_id' = $1::text
"""

_BEHIND: Final = "SELECT min(last_seq) < (SELECT last_seq FROM bus_state) FROM lane_checkpoints"

_IS_ADMITTED: Final = "SELECT bool_and(admitted_at IS NOT NULL) FROM run_steps WHERE run_id = $1"

_IS_CANCELLING: Final = "SELECT EXISTS (SELECT FROM operations WHERE finished_at IS NULL)"

_HELD: Final = """
SELECT j.id, j.status, j.attempt, j.worker_id, j.dispatch_id FROM jobs j
WHERE j.run_id = $1 AND j.spec ->> 'host' = $2
"""

_WAITING: Final = """
SELECT d.id, d.size, w.id AS worker_id, w.incarnation
FROM dispatches d JOIN workers w ON w.workspace_id = d.workspace_id AND w.status = 'online'
WHERE d.run_id = $1 AND d.closed_at IS NULL
  AND d.size = (SELECT count(*) FROM jobs j WHERE j.dispatch_id = d.id AND j.completed_at IS NULL
                                              AND j.status = 'pending')
ORDER BY d.id DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large; smaller than by default only to try the bench itself."""

    jobs: int
    records: int


@dataclass(frozen=True, slots=True)
class Large:
    """Everything that `--large` measures."""

    run: "LargeRun"
    cancelled: "Cancelled"
    merges: list[Merging]


@dataclass(frozen=True, slots=True)
class LargeRun:
    """What a run of so many jobs, one of them endless, has cost."""

    jobs: int
    seconds: float
    """From its start until all but the endless job had completed."""
    first_s: float
    last_s: float
    """Seconds for the first and for the last fifth of the jobs."""
    cpu_first: float
    cpu_last: float
    """CPU seconds for 1,000 jobs, likewise."""
    claim_first: int
    claim_last: int
    """Buffers of a claim at a tenth of the way, or when all is admitted, and at nine tenths."""
    first_claim_s: float
    """From when the run was written, which is when a request for it is answered."""
    held: str
    """State of the endless job when all others had completed."""
    attempts: int
    """Of the job that needed the most."""
    histories: list[History]
    peaks: dict[str, float]
    drain_s: float
    violations: list[str]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What the cancel of such a run half-way has cost."""

    jobs: int
    answer_s: float
    rest_s: float
    """From the request until workflows, events and lanes were at rest."""
    events: int
    """`job.cancelled` events of the run."""
    histories: list[History]
    violations: list[str]


async def measure(platform: Platform, pool: Pool, client: Client, sizes: Sizes) -> Large:
    """Runs one after another, then the merges, on an otherwise idle platform."""
    targets = await registry.make_targets(pool, platform.workspace_id, sizes.jobs)
    run = await measure_run(platform, pool, client, targets)
    cancelled = await measure_cancel(platform, pool, client, targets)
    return Large(run, cancelled, await merging.measure(platform, pool, sizes.records))


async def measure_run(platform: Platform, pool: Pool, client: Client, targets: list[UUID]) -> LargeRun:
    """Runs one step over all targets to its end."""
    held = await pool.fetchval("SELECT value FROM targets WHERE id = $1", targets[len(targets) // 2])
    memory.reset_peaks(platform.stack)
    run_id, began = await _start(platform, pool, targets, {"hold": held}), time.monotonic()
    written_at = await pool.fetchval("SELECT clock_timestamp()")
    watch = _Watch(platform, pool, run_id, len(targets))
    await asyncio.wait_for(watch.until(len(targets) - 1), LONGEST_S)
    seconds = time.monotonic() - began
    (row,) = await pool.fetch(_HELD, run_id, held)
    _let_go(row["worker_id"], row["dispatch_id"])
    drain_s = await _at_rest(pool, client, run_id)
    (ends,) = await pool.fetch(_ENDS, run_id, len(targets) // EDGE, _nearly(len(targets)), written_at)
    return LargeRun(
        jobs=len(targets),
        seconds=seconds,
        first_s=ends["first_s"],
        last_s=ends["last_s"],
        cpu_first=watch.cpu_between(0, 1),
        cpu_last=watch.cpu_between(EDGE - 1, EDGE),
        claim_first=watch.claims[0],
        claim_last=watch.claims[-1],
        first_claim_s=ends["claim_s"],
        held=row["status"],
        attempts=ends["attempts"],
        histories=await histories_of(client, pool, run_id),
        peaks=memory.peaks(platform.stack),
        drain_s=drain_s,
        violations=await _violations(platform, pool),
    )


async def measure_cancel(platform: Platform, pool: Pool, client: Client, targets: list[UUID]) -> Cancelled:
    """Cancels one step over all targets when half its jobs have ended."""
    run_id = await _start(platform, pool, targets, {})
    await asyncio.wait_for(_Watch(platform, pool, run_id, len(targets)).until(len(targets) // 2), LONGEST_S)
    headers = {"Authorization": f"Bearer {platform.profile.api_key}"}
    async with httpx2.AsyncClient(
        base_url=platform.profile.api_url, headers=headers, trust_env=False, timeout=120
    ) as http:
        began = time.monotonic()
        answer = await http.post(f"/v1/runs/{run_id}/cancel", json={"reason": "half is enough"})
        answer_s = time.monotonic() - began
        answer.raise_for_status()
    await _at_rest(pool, client, run_id)
    return Cancelled(
        jobs=await pool.fetchval(_CANCELLED, run_id),
        answer_s=answer_s,
        rest_s=time.monotonic() - began,
        events=await pool.fetchval(_TOLD, str(run_id)),
        histories=await histories_of(client, pool, run_id),
        violations=await _violations(platform, pool),
    )


async def _start(platform: Platform, pool: Pool, targets: list[UUID], config: dict[str, object]) -> UUID:
    definition = parse_definition({"name": "large", "jobs": {"only": {"run": "noop", "config": config}}})
    request = StartRun(platform.workspace_id, definition, targets, "large", kind="bench")
    async with pool.acquire() as conn, conn.transaction():
        return (await start_run(conn, request)).run_id


class _Watch:
    """Looks how far a run is, and reads at every part of the way what it has cost by then."""

    def __init__(self, platform: Platform, pool: Pool, run_id: UUID, jobs: int) -> None:
        self._platform, self._pool, self._run_id, self._jobs = platform, pool, run_id, jobs
        self._spent: list[tuple[int, float]] = [(0, self._cpu())]
        self.claims: list[int] = []

    def _cpu(self) -> float:
        return sum(cpu.spent(self._platform.stack).values())

    def cpu_between(self, first: int, last: int) -> float:
        """CPU seconds for 1,000 jobs between two fifths of the way."""
        (done, before), (then, after) = self._spent[first], self._spent[last]
        return 1000 * (after - before) / max(1, then - done)

    async def until(self, jobs: int) -> None:
        """Returns when so many jobs have ended."""
        while True:
            done = await self._pool.fetchval(_DONE, self._run_id)
            print(f"\r{done:,} of {self._jobs:,} jobs", end="", file=sys.stderr, flush=True)
            if done >= min(len(self._spent) * self._jobs // EDGE, _nearly(self._jobs)):
                self._spent.append((done, self._cpu()))
            if done >= jobs:
                return
            if (not self.claims and await self._is_begun(done)) or done >= 0.9 * self._jobs:
                await self._claim()
            await asyncio.sleep(POLL_S)

    async def _is_begun(self, done: int) -> bool:
        """Whether a tenth is done, of all jobs: claims of a table that still grows would be no measure."""
        return done >= self._jobs // 10 and await self._pool.fetchval(_IS_ADMITTED, self._run_id)

    async def _claim(self) -> None:
        row = await self._pool.fetchrow(_WAITING, self._run_id)
        if row is None:
            return
        request = ClaimRequest(
            row["id"], f"bench/{row['id']}", row["worker_id"], row["incarnation"], row["size"]
        )
        touched = await growth.touched_by(self._pool, lambda conn: claim(conn, request))
        self.claims.append(round(touched * 100 / row["size"]))


def _nearly(jobs: int) -> int:
    """Nearly all: the neighbours of the endless job wait for a sweep to have them merged."""
    return jobs * 99 // 100


def _let_go(worker_id: UUID, dispatch_id: UUID) -> None:
    for pid, mark in marked_processes():
        if mark == f"{worker_id}/{dispatch_id}":
            os.kill(pid, signal.SIGUSR1)


async def _at_rest(pool: Pool, client: Client, run_id: UUID) -> float:
    """Waits for the end of the run's workflow, then of its cancel and events; answers how long these took."""
    await asyncio.wait_for(client.get_workflow_handle(names.run_workflow_id(run_id)).result(), LONGEST_S)
    ended = time.monotonic()
    async with asyncio.timeout(LONGEST_S), pool.acquire() as conn:
        while await conn.fetchval(_IS_CANCELLING):  # noqa: ASYNC110  # the lanes do it
            await asyncio.sleep(0.1)
        while await count_unpublished(conn) or await conn.fetchval(_BEHIND):  # noqa: ASYNC110  # lanes do it
            await asyncio.sleep(0.1)
    return time.monotonic() - ended


async def _violations(platform: Platform, pool: Pool) -> list[str]:
    redis = Redis.from_url(platform.settings.redis_url)
    async with pool.acquire() as conn:
        found = await check(conn, redis, at_rest=True)
    await redis.aclose()
    return [f"{each.name}: {each.count}, {', '.join(each.sample)}" for each in found]
