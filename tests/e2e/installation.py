"""A complete installation for tests that break parts of it, and what must be true of it afterwards."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import UUID

import asyncpg
import structlog
from redis.asyncio import Redis
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from runlane import names
from runlane.cli.client import ApiClient
from runlane.cli.lab_scan import read_inventory, start_scan
from runlane.cli.platform import Platform, PlatformOptions, open_platform
from runlane.db.event_counts import count_unpublished
from runlane.db.invariants import check
from runlane.db.pool import Pool, open_pool
from runlane.jobs import JOBS, RUNS
from runlane.lab.manifest import compare
from runlane.lab.network import parse_base
from runlane.lab.server import Lab
from runlane.scan.confine import marked_processes
from runlane.storage import Storage, StorageConfig
from runlane.worker import connect_temporal
from tests.e2e import leftovers
from workflows.run import RunWorkflow

log = structlog.get_logger(__name__)

RUN_LIMIT_S = 120.0
REST_LIMIT_S = 120.0
DYING_LIMIT_S = 60.0
SLOW_MS = 150
"""Latency of the lab's services: a run takes long enough to have a middle."""

_POLL_S = 0.05
AWAY = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""What a question to a database that is away fails with."""

_VERDICTS = frozenset(f"job.{status}" for status in JOBS.terminal)

Condition = Callable[[], Awaitable[bool]]


async def until(condition: Condition, limit_s: float | None) -> None:
    """Waits for a condition that other processes bring about; a database that is away has not fulfilled it.

    Raises:
        TimeoutError: not within `limit_s`, if there is a limit.
    """
    async with asyncio.timeout(limit_s):
        while True:
            try:
                if await condition():
                    return
            except AWAY as error:
                log.debug("condition_unknown", error=type(error).__name__)
            await asyncio.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Installation:
    """A running platform, a lab for it to scan, and the means to look at both."""

    platform: Platform
    lab: Lab
    api: ApiClient
    pool: Pool
    temporal: Client
    storage: Storage

    async def begin_scan(self, name: str) -> UUID:
        """Starts a discovery of the lab as of a target that nothing is known of yet."""
        await self.pool.execute("UPDATE targets SET deleted_at = clock_timestamp() WHERE deleted_at IS NULL")
        lab = self.lab
        return UUID(await asyncio.to_thread(start_scan, self.api, lab.manifest, lab.resolver, name=name))

    async def begin_and_reach_middle(self, name: str) -> UUID:
        """Starts a discovery and returns when some of its jobs are done and some are being done."""
        run_id = await self.begin_scan(name)
        await until(lambda: self.is_in_the_middle(run_id), RUN_LIMIT_S)
        return run_id

    async def is_in_the_middle(self, run_id: UUID) -> bool:
        """Whether at least five jobs are completed and at least one is in progress."""
        jobs = await self.jobs(run_id)
        return jobs["completed"] >= 5 and jobs["in_progress"] >= 1

    async def jobs(self, run_id: UUID) -> Counter[str]:
        """Jobs of a run by status."""
        rows = await self.pool.fetch("SELECT status FROM jobs WHERE run_id = $1", run_id)
        return Counter(row["status"] for row in rows)

    async def has_looked_for_work(self, run_id: UUID) -> bool:
        """Whether the run's workflow has asked for batches."""
        handle = self.temporal.get_workflow_handle(names.run_workflow_id(run_id))
        try:
            summaries = [e.user_metadata.summary.data async for e in handle.fetch_history_events()]
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return any(summary.startswith(b'"batches of') for summary in summaries)

    async def is_claimed(self, run_id: UUID) -> bool:
        """Whether a job of the run was ever claimed."""
        return bool(await self.pool.fetchval("SELECT max(attempt) > 0 FROM jobs WHERE run_id = $1", run_id))

    async def outcomes(self, run_id: UUID) -> Counter[str]:
        """Attempts of a run by outcome."""
        rows = await self.pool.fetch(
            """SELECT coalesce(a.outcome, 'open') AS outcome FROM job_attempts a
               JOIN jobs j ON j.id = a.job_id WHERE j.run_id = $1""",
            run_id,
        )
        return Counter(row["outcome"] for row in rows)

    async def run_status(self, run_id: UUID) -> str:
        """Status of a run."""
        return str(await self.pool.fetchval("SELECT status FROM job_histories WHERE id = $1", run_id))

    async def wait_closed(self, run_id: UUID, limit_s: float | None = RUN_LIMIT_S) -> str:
        """Waits until the run's row is closed; answers its status."""

        async def is_closed() -> bool:
            return await self.run_status(run_id) in RUNS.terminal

        await until(is_closed, limit_s)
        return await self.run_status(run_id)

    async def kill(self, *killed: str) -> None:
        """Kills processes at once as `kill -9` does, and waits until their successors are ready."""
        stack = self.platform.stack
        old = {name: stack.kill(name) for name in killed}
        async with asyncio.timeout(RUN_LIMIT_S):
            await asyncio.gather(*(stack.recovered(name, pid) for name, pid in old.items()))

    @asynccontextmanager
    async def stuck(self, program: str, locked: str, *arguments: object) -> AsyncIterator[None]:
        """Holds the row locks of `locked`, a SELECT … FOR UPDATE; `program` waits for one in the block."""
        async with self.pool.acquire() as conn, conn.transaction():
            await conn.execute(locked, *arguments)
            await until(lambda: self._waits_for_lock(program), RUN_LIMIT_S)
            yield

    async def _waits_for_lock(self, program: str) -> bool:
        return bool(
            await self.pool.fetchval(
                "SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'",
                program,
            )
        )

    async def tools(self) -> list[str]:
        """Marks of the tool processes of this installation's workers, wherever they are."""
        workers = [str(row["id"]) for row in await self.pool.fetch("SELECT id FROM workers")]
        marks = await asyncio.to_thread(lambda: [mark for _, mark in marked_processes()])
        return [mark for mark in marks if mark.split("/")[0] in workers]

    async def has_tools(self) -> bool:
        """Whether a tool runs."""
        return bool(await self.tools())

    async def has_no_tools(self) -> bool:
        """Whether no tool runs."""
        return not await self.tools()

    async def wait_workflow_ended(self, run_id: UUID) -> None:
        """Waits until the run's workflow has come to its end, which is soon after its row's."""
        handle = self.temporal.get_workflow_handle_for(RunWorkflow.run, names.run_workflow_id(run_id))
        await asyncio.wait_for(handle.result(), RUN_LIMIT_S)

    async def command(self, *arguments: str) -> str:
        """Runs the command line tool in a process of its own; answers what it said.

        Raises:
            AssertionError: it failed.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "runlane.cli",
            *arguments,
            env={"PATH": os.environ["PATH"], "RUNLANE_STATE_DIR": str(self.platform.settings.state_dir)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    async def assert_found_the_truth(self, run_id: UUID) -> None:
        """The run completed, every job of it did, and the inventory is the lab's manifest."""
        assert await self.wait_closed(run_id) == "completed"
        assert set(await self.jobs(run_id)) == {"completed"}
        found = await asyncio.to_thread(read_inventory, self.api, self.lab.manifest)
        difference = compare(self.lab.manifest, found)
        assert not difference.missing
        assert not difference.unexpected

    async def has_no_strays(self) -> bool:
        """Whether every process of this installation is one that it keeps, or a child of one."""
        return not await asyncio.to_thread(self._strays)

    def _strays(self) -> list[str]:
        stack = self.platform.stack
        kept = [status.pid for status in stack.status() if status.pid is not None]
        return leftovers.strays(stack.folder, kept)

    async def assert_at_rest(self, *run_ids: UUID, after_sweep: bool = False) -> None:
        """Every promise holds once the lanes have drained, and nothing of the runs' work is left anywhere.

        `after_sweep`: uploads or deletions were cut off in the middle; what they left is the orphan sweep's.
        """
        redis: Redis = Redis.from_url(self.platform.settings.redis_url, protocol=2)
        try:
            await self._assert_invariants(redis)
            for run_id in run_ids:
                await self._assert_one_verdict_each(redis, run_id)
        finally:
            await redis.aclose()
        await until(self.has_no_tools, DYING_LIMIT_S)
        await self._assert_no_strays()
        await until(self._has_no_containers, DYING_LIMIT_S)
        await until(self._has_told_temporal, REST_LIMIT_S)
        async with self.pool.acquire() as conn:
            assert await count_unpublished(conn) == 0
        assert await self.pool.fetchval("SELECT count(*) FROM job_results") == 0
        if after_sweep:
            await until(self._has_delivered, REST_LIMIT_S)
            await leftovers.sweep_orphans(self.pool, self.temporal, self.storage)
        assert not (found := await leftovers.unreferred_objects(self.pool, self.storage)), found
        assert not (found := await leftovers.missing_objects(self.pool, self.storage)), found

    async def _assert_no_strays(self) -> None:
        try:
            await until(self.has_no_strays, DYING_LIMIT_S)
        except TimeoutError:
            assert not (found := await asyncio.to_thread(self._strays)), found

    async def _has_no_containers(self) -> bool:
        settings = self.platform.settings
        return not await leftovers.containers(self.platform.stack.folder, settings.engine_url)

    async def _has_delivered(self) -> bool:
        return not await asyncio.to_thread(leftovers.spooled, self.platform.stack.folder)

    async def _has_told_temporal(self) -> bool:
        waiting: int = await self.pool.fetchval("SELECT count(*) FROM commands WHERE done_at IS NULL")
        return waiting == 0

    async def _assert_invariants(self, redis: Redis) -> None:
        async def holds() -> bool:
            async with self.pool.acquire() as conn:
                return not await check(conn, redis, at_rest=True)

        try:
            await until(holds, REST_LIMIT_S)
        except TimeoutError:
            async with self.pool.acquire() as conn:
                assert not (found := await check(conn, redis, at_rest=True)), found

    async def _assert_one_verdict_each(self, redis: Redis, run_id: UUID) -> None:
        """The stream as a reader sees it: steps of one, and one verdict for every job of the run."""
        # the client's types cover all protocols; this is the shape of ours
        reply = cast("list[tuple[bytes, dict[bytes, bytes]]]", await redis.xrange(names.EVENT_STREAM))
        entries = [fields for _, fields in reply]
        numbers = [int(fields[b"sequence"]) for fields in entries]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        verdicts = Counter(
            fields[b"subject"].decode() for fields in entries if fields[b"type"].decode() in _VERDICTS
        )
        rows = await self.pool.fetch("SELECT id FROM jobs WHERE run_id = $1", run_id)
        subjects = [names.job_subject(row["id"]) for row in rows]
        assert {subject: verdicts[subject] for subject in subjects} == dict.fromkeys(subjects, 1)


@asynccontextmanager
async def open_installation(
    folder: Path, settings: Mapping[str, str], *, slow_ms: int = SLOW_MS
) -> AsyncIterator[Installation]:
    """Starts servers, all processes and a lab; `settings` are added to the environment of every process."""
    base = f"127.{192 + os.getpid() % 60}.{os.getpid() // 60 % 256}.0/24"
    options = PlatformOptions(folder, parse_base(base).networks, guarded=True)
    env = {**os.environ, "RUNLANE_LOG_LEVEL": "info", **settings}
    async with Lab.open(base, slow_ms=slow_ms) as lab, open_platform(options, env) as platform:
        pool = await open_pool(platform.settings.database_system_url, size=2, name="test")
        try:
            with ApiClient(platform.profile) as api:
                temporal = await connect_temporal(platform.settings)
                storage = Storage(StorageConfig(**platform.settings.bucket))
                yield Installation(platform, lab, api, pool, temporal, storage)
        finally:
            await pool.close()
