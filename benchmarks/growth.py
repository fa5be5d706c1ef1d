"""What finished rows cost: buffers that a claim and the sweeps of every minute touch, without and with them.

The server counts what each backend touches; the calls are those of the product, in transactions that are
rolled back.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import asyncpg

from benchmarks.report import Bound
from runlane.db import slow_batches
from runlane.db.claims import ClaimRequest, claim
from runlane.db.migrate import seed_tools, upgrade
from runlane.db.pool import Connection, Pool, open_pool
from runlane.db.sweeps import failed_merges, missing_polls, runs, silent_workers
from runlane.definitions import parse_definition
from runlane.stack.supervisor import Stack

MOST: Final = 1.2
"""Buffers with finished rows in multiples of those without."""

FINISHED: Final = 1_000_000

LIVE: Final = 10_000
"""Jobs that wait, are dispatched, or are in progress."""

BATCH: Final = 25
ROUNDS: Final = 3
"""Each measurement is the least of so many: the first one fills caches."""

CLAIM: Final = "claim"

_START: Final = UUID(int=0)
_PAGE: Final = 1_000

Call = Callable[[Connection], Awaitable[object]]

_RUN: Final = """
INSERT INTO job_histories (workspace_id, name, definition, status, created_at, closed_at)
SELECT $1, 'growth', $2, CASE WHEN $3 THEN 'completed' ELSE 'running' END,
       clock_timestamp() - interval '1 hour', CASE WHEN $3 THEN clock_timestamp() END
FROM generate_series(1, $4) RETURNING id
"""

_STEP: Final = """
INSERT INTO run_steps (workspace_id, run_id, step_id, position, name, tool_id, status, opened_at, scope_as_of,
                       closed_at)
SELECT h.workspace_id, h.id, 'a', 0, 'a', 'noop', h.status, h.created_at, h.created_at, h.closed_at
FROM job_histories h WHERE h.id = ANY($1::uuid[])
"""

_TARGET: Final = """
INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'growth.lab.test')
ON CONFLICT DO NOTHING
"""

_WORKER: Final = """
INSERT INTO workers (scope, workspace_id, name, token_digest, incarnation, status, toolsets, beat_at,
                     stream_seen_at)
VALUES ('workspace', $1, 'growth', $2, $3, 'online', '{probe}', clock_timestamp(), clock_timestamp())
RETURNING id
"""

_DISPATCHES: Final = """
INSERT INTO dispatches (workspace_id, run_id, step_id, workflow_id, workflow_run_id, call_number, task_queue,
                        priority, size, created_at)
SELECT $1, $2, 'a', 'run/' || $2::uuid, 'growth', n, 'queue', 2, $4, clock_timestamp() - interval '1 hour'
FROM generate_series(1, $3) n RETURNING id
"""

_JOBS: Final = """
INSERT INTO jobs (workspace_id, run_id, step_id, tool_id, toolset, category, target_id, subject_id, spec,
                  status, dispatch_id, attempt, worker_id, picked_at, completed_at)
SELECT $1, r.ids[1 + n % cardinality(r.ids)], 'a', 'noop', 'probe', 'bench', t.id, gen_random_uuid(), '{}',
       $4, CASE WHEN cardinality($5::uuid[]) > 0 THEN ($5::uuid[])[1 + n / $6] END,
       ($4 <> 'pending')::int, CASE WHEN $4 <> 'pending' THEN $7::uuid END,
       CASE WHEN $4 <> 'pending' THEN clock_timestamp() END,
       CASE WHEN $4 = 'completed' THEN clock_timestamp() END
FROM (SELECT $2::uuid[] AS ids) r, targets t, generate_series(0, $3 - 1) n
WHERE t.workspace_id = $1 AND t.value = 'growth.lab.test'
"""

_ATTEMPTS: Final = """
INSERT INTO job_attempts (job_id, attempt, workspace_id, dispatch_id, worker_id, incarnation, claim_key,
                          ended_at, outcome)
SELECT j.id, 1, j.workspace_id, coalesce(j.dispatch_id, j.run_id), $1, $2, 'growth', j.completed_at,
       CASE WHEN j.completed_at IS NOT NULL THEN 'completed' END
FROM jobs j WHERE j.worker_id = $1 AND j.run_id = ANY($3::uuid[])
"""

_TOUCHED: Final = """
SELECT coalesce(sum(hits), 0)::bigint + coalesce(sum(reads), 0)::bigint
FROM pg_stat_get_backend_io(pg_backend_pid()) WHERE object = 'relation'
"""


@dataclass(frozen=True, slots=True)
class Growth:
    """Buffers by call, without finished rows and with `finished` of them."""

    finished: int
    without: Mapping[str, int]
    with_them: Mapping[str, int]

    @property
    def claim(self) -> float:
        """The claim with finished rows in multiples of that without."""
        return self.with_them[CLAIM] / self.without[CLAIM]

    @property
    def sweeps(self) -> float:
        """All sweeps of every minute together, likewise."""
        return _sweeps(self.with_them) / _sweeps(self.without)


def _sweeps(touched: Mapping[str, int]) -> int:
    return sum(number for name, number in touched.items() if name != CLAIM)


def bounds(growth: Growth) -> list[Bound]:
    """Every bound with its figure."""
    name = f"with {growth.finished:,} finished jobs: buffers of"
    return [
        Bound(f"{name} a claim", growth.claim, MOST, False, "×"),
        Bound(f"{name} sweeps", growth.sweeps, MOST, False, "×"),
    ]


def table(growth: Growth) -> str:
    """The figures for people."""
    lines = [
        f"buffers touched beside {LIVE:,} live jobs: without, and with {growth.finished:,} finished ones"
    ]
    lines += [
        f"  {name:<22} {number:>7} {growth.with_them[name]:>7}" for name, number in growth.without.items()
    ]
    return "\n".join([*lines, ""])


async def measure(stack: Stack, finished: int = FINISHED) -> Growth:
    """Measures on a database of its own beside that of the platform, whose processes leave it alone."""
    async with _database(stack) as (owner_url, pool):
        workspace_id = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('growth') RETURNING id")
        scene = await make_scene(pool, owner_url, workspace_id)
        without = await buffers(pool, scene)
        await add_finished(pool, scene, finished)
        return Growth(finished, without, await buffers(pool, scene))


@asynccontextmanager
async def _database(stack: Stack) -> AsyncIterator[tuple[str, Pool]]:
    name = "growth"
    if stack.database_admin is None:
        raise RuntimeError("the bench needs a PostgreSQL of its own")
    admin = await asyncpg.connect(stack.database_admin)
    await admin.execute(f"CREATE DATABASE {name} OWNER runlane")
    try:
        owner_url = _named(stack.urls.database_owner, name)
        await upgrade(owner_url)
        pool = await open_pool(_named(stack.urls.database_system, name), size=2, name="bench")
        await seed_tools(pool)
        yield owner_url, pool
        await pool.close()
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


def _named(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@dataclass(frozen=True, slots=True)
class Scene:
    """Live rows of one workspace: a third waits, a third is dispatched, a third is in progress."""

    owner_url: str
    workspace_id: UUID
    worker_id: UUID
    incarnation: UUID
    dispatch_id: UUID
    """A batch that can be claimed."""


async def make_scene(pool: Pool, owner_url: str, workspace_id: UUID, live: int = LIVE) -> Scene:
    """Writes the live rows; the owner of the tables gathers their statistics."""
    incarnation = uuid4()
    await pool.execute(_TARGET, workspace_id)
    worker_id = await pool.fetchval(_WORKER, workspace_id, uuid4().bytes * 2, incarnation)
    run_ids = await _runs(pool, workspace_id, 1, is_closed=False)
    third = live // 3
    batches = third // BATCH + 1
    out = [await pool.fetch(_DISPATCHES, workspace_id, run_ids[0], batches, BATCH) for _ in range(2)]
    taken, running = [[row["id"] for row in rows] for rows in out]
    for status, dispatches in (("pending", []), ("pending", taken), ("in_progress", running)):
        await pool.execute(_JOBS, workspace_id, run_ids, third, status, dispatches, BATCH, worker_id)
    await pool.execute(_ATTEMPTS, worker_id, incarnation, run_ids)
    await _settle_down(owner_url)
    return Scene(owner_url, workspace_id, worker_id, incarnation, taken[0])


async def add_finished(pool: Pool, scene: Scene, count: int, runs_count: int = 100) -> None:
    """Writes so many completed jobs with an attempt each, of closed runs."""
    run_ids = await _runs(pool, scene.workspace_id, runs_count, is_closed=True)
    async with pool.acquire() as conn:
        await conn.execute(
            _JOBS, scene.workspace_id, run_ids, count, "completed", [], BATCH, scene.worker_id, timeout=900
        )
        await conn.execute(_ATTEMPTS, scene.worker_id, scene.incarnation, run_ids, timeout=900)
    await _settle_down(scene.owner_url)


async def buffers(pool: Pool, scene: Scene) -> Mapping[str, int]:
    """Buffers that each call touches, by its name."""
    return {name: await touched_by(pool, call) for name, call in _calls(scene).items()}


def _calls(scene: Scene) -> Mapping[str, Call]:
    request = ClaimRequest(scene.dispatch_id, str(uuid4()), scene.worker_id, scene.incarnation, BATCH)
    return {
        CLAIM: lambda conn: claim(conn, request),
        "sweep silent_workers": lambda conn: silent_workers.find_silent(conn, _START, _PAGE),
        "sweep missing_polls": lambda conn: missing_polls.find_idle(conn, _START, _PAGE, 60),
        "sweep late_nudges": lambda conn: runs.repeat_nudges(conn, _PAGE),
        "sweep lost_workflows": lambda conn: runs.find_open_runs(conn, _START, _PAGE),
        "sweep orphaned_jobs": _orphans,
        "sweep slow_batches": lambda conn: slow_batches.nudge_slow(conn, _PAGE),
        "sweep failed_merges": lambda conn: failed_merges.find_failed_merges(conn, _START, _PAGE),
        "sweep stalled_runs": runs.find_stalled,
    }


async def _orphans(conn: Connection) -> None:
    await runs.nudge_unowned(conn, _PAGE)
    await runs.find_orphaned(conn, _START, _PAGE)


async def touched_by(pool: Pool, call: Call) -> int:
    """Buffers that a call touches in a transaction that is rolled back, the least of some rounds."""
    async with pool.acquire() as conn:
        return min([await _touched_by(conn, call) for _ in range(ROUNDS)])


async def _touched_by(conn: Connection, call: Call) -> int:
    before = await _touched(conn)
    idle = await _touched(conn) - before
    transaction = conn.transaction()
    await transaction.start()
    try:
        await call(conn)
    finally:
        await transaction.rollback()
    return int(await _touched(conn) - before - 2 * idle)


async def _touched(conn: Connection) -> int:
    await conn.execute("SELECT pg_stat_force_next_flush()")
    touched: int = await conn.fetchval(_TOUCHED)
    return touched


async def _runs(pool: Pool, workspace_id: UUID, count: int, *, is_closed: bool) -> list[UUID]:
    definition = parse_definition({"name": "growth", "jobs": {"a": {"run": "noop"}}}).as_json()
    rows = await pool.fetch(_RUN, workspace_id, definition, is_closed, count)
    run_ids = [row["id"] for row in rows]
    await pool.execute(_STEP, run_ids)
    return run_ids


async def _settle_down(owner_url: str) -> None:
    """Statistics and visibility as autovacuum leaves them."""
    owner = await asyncpg.connect(owner_url)
    for table in ("jobs", "job_attempts", "job_histories", "run_steps", "dispatches"):
        await owner.execute(f"VACUUM ANALYZE {table}", timeout=900)
    await owner.close()
