"""An installation for tests of scan workers: the API on a real port, core, results, relay, scan workers."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import asyncpg
import uvicorn

from api.app import create_app
from lanes.commands import run_command_relay
from lanes.runner import supervise
from runlane.db.keys import NewKey, Scope, create_key
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from runlane.gateway.server import run_gateway
from runlane.scan.config import ScanLimits, ScanSettings
from runlane.scan.worker import run_scan_worker
from runlane.settings import Settings
from runlane.worker import run_core, run_results
from tests.waiting import WAIT_S, until


async def is_true(found: Awaitable[object]) -> bool:
    """Whether something was found."""
    return bool(await found)


async def is_false(found: Awaitable[object]) -> bool:
    """Whether nothing was found."""
    return not await found


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def api_on(settings: Settings) -> AsyncIterator[None]:
    """Serves the API on its port."""
    config = uvicorn.Config(
        create_app(settings),
        host="127.0.0.1",
        port=settings.api_port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    # not `serve`: it would take the signals of the test process
    serving = asyncio.create_task(server._serve())
    try:
        await until(lambda: server.started or serving.done())
        assert server.started, serving.result()
        yield
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def gateway_on(settings: Settings) -> AsyncIterator[None]:
    """Serves the gateway on its port."""
    stop = asyncio.Event()
    serving = asyncio.create_task(run_gateway(settings, stop))
    try:
        await until(lambda: serving.done() or is_listening(settings.gateway_port))
        yield
    finally:
        stop.set()
        await serving


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def core_of(settings: Settings) -> AsyncIterator[None]:
    """Core worker, result worker and command relay."""
    stop = asyncio.Event()
    tasks = [
        asyncio.create_task(run_core(settings, stop)),
        asyncio.create_task(run_results(settings, stop)),
        asyncio.create_task(supervise("commands", lambda event: run_command_relay(settings, event), stop)),
    ]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


@dataclass(slots=True)
class World:
    """A workspace with an enrolment key, and what a test asks of it."""

    settings: Settings
    pool: Pool
    workspace_id: UUID
    enrolment_key: str
    folder: Path
    limits: ScanLimits = field(default_factory=lambda: ScanLimits(drain_s=0.5))
    api: AsyncExitStack = field(default_factory=AsyncExitStack)
    gateway: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start_api(self) -> None:
        """Serves the API on the port that it had."""
        await self.api.enter_async_context(api_on(self.settings))

    async def stop_api(self) -> None:
        """Stops the API as a deployment does."""
        await self.api.aclose()

    async def start_gateway(self) -> None:
        """Serves the gateway on the port that it had."""
        await self.gateway.enter_async_context(gateway_on(self.settings))

    async def stop_gateway(self) -> None:
        """Stops the gateway as a deployment does."""
        await self.gateway.aclose()

    def scan_settings(self, name: str = "one", *, slots: int = 4) -> ScanSettings:
        """Settings of a scan worker with a state folder of its own."""
        return ScanSettings(
            api_url=self.settings.api_url,
            state_dir=self.folder / name,
            name=name,
            toolsets={"probe": slots},
            enrolment_key=self.enrolment_key,
            limits=self.limits,
        )

    @asynccontextmanager
    async def scan_worker(self, name: str = "one", *, slots: int = 4) -> AsyncIterator[asyncio.Event]:
        """A scan worker in this process, online; gives its stop."""
        stop = asyncio.Event()
        worker = asyncio.create_task(run_scan_worker(self.scan_settings(name, slots=slots), stop))
        try:
            await until(lambda: self.is_online(name))
            yield stop
        finally:
            stop.set()
            await worker

    async def spawn_scan_worker(self, name: str = "one", **more: str) -> asyncio.subprocess.Process:
        """A scan worker as a process of its own, online; `more` is added to its environment."""
        env = {
            "PATH": os.environ["PATH"],
            "RUNLANE_API_URL": self.settings.api_url,
            "RUNLANE_STATE_DIR": str(self.folder / name),
            "RUNLANE_WORKER_ENROLMENT_KEY": self.enrolment_key,
            "RUNLANE_WORKER_NAME": name,
            "RUNLANE_WORKER_TOOLSETS": "probe=4",
            **more,
        }
        argv = (sys.executable, "-m", "runlane.cli", "worker", "scan")
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            process = await asyncio.create_subprocess_exec(
                *argv, env=env, stdout=log, stderr=log, start_new_session=True
            )
        await until(lambda: self.is_online(name))
        return process

    async def is_online(self, name: str) -> bool:
        """Whether the worker is there and its control stream is open."""
        return bool(
            await self.pool.fetchval(
                "SELECT status = 'online' AND stream_seen_at IS NOT NULL FROM workers WHERE name = $1", name
            )
        )

    async def start_run(self, count: int, config: Mapping[str, object] | None = None) -> UUID:
        """Starts a run of one no-op step over so many targets."""
        step: dict[str, object] = {"run": "noop", "config": dict(config or {})}
        definition = parse_definition({"name": "test", "jobs": {"only": step}})
        async with self.pool.acquire() as conn, conn.transaction():
            rows = await conn.fetch(
                """INSERT INTO targets (workspace_id, kind, value)
                   SELECT $1, 'domain', 'h' || n || '.lab.test' FROM generate_series(1, $2) n
                   ON CONFLICT DO NOTHING RETURNING id""",
                self.workspace_id,
                count,
            )
            started = await start_run(
                conn, StartRun(self.workspace_id, definition, [row["id"] for row in rows], "test")
            )
            await conn.execute("UPDATE commands SET due_at = clock_timestamp()")
        return started.run_id

    async def statuses(self, run_id: UUID) -> dict[str, int]:
        """Jobs of a run by status."""
        rows = await self.pool.fetch("SELECT status, count(*) FROM jobs WHERE run_id = $1 GROUP BY 1", run_id)
        return {row["status"]: row["count"] for row in rows}

    async def attempts(self, run_id: UUID) -> dict[str, int]:
        """Attempts of a run by outcome."""
        rows = await self.pool.fetch(
            """SELECT coalesce(a.outcome, 'open') AS outcome, count(*) FROM job_attempts a
               JOIN jobs j ON j.id = a.job_id WHERE j.run_id = $1 GROUP BY 1""",
            run_id,
        )
        return {row["outcome"]: row["count"] for row in rows}

    async def has_status(self, run_id: UUID, status: str, count: int) -> bool:
        """Whether so many jobs of the run have the status."""
        return (await self.statuses(run_id)).get(status, 0) >= count

    async def has_staged(self, run_id: UUID, count: int) -> bool:
        """Whether so many outcomes of the run have been delivered."""
        staged: int = await self.pool.fetchval(
            """SELECT count(*) FROM job_attempts a JOIN jobs j ON j.id = a.job_id
               WHERE j.run_id = $1 AND a.staged_at IS NOT NULL""",
            run_id,
        )
        return staged >= count

    async def run_status(self, run_id: UUID) -> str:
        """Status of a run."""
        return str(await self.pool.fetchval("SELECT status FROM job_histories WHERE id = $1", run_id))

    async def closed(self, run_id: UUID, wait_s: float = WAIT_S) -> str:
        """Waits for the end of a run; answers how it ended."""

        async def is_closed() -> bool:
            try:
                return await self.run_status(run_id) in {"completed", "failed", "cancelled"}
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                return False  # the test has just killed the server

        await until(is_closed, wait_s)
        return await self.run_status(run_id)


@asynccontextmanager
async def world_of(settings: Settings, pool: Pool, folder: Path) -> AsyncIterator[World]:
    """A workspace, and the API and the gateway for it on free ports."""
    port = free_port()
    served = settings.model_copy(
        update={"api_port": port, "api_url": f"http://127.0.0.1:{port}", "gateway_port": free_port()}
    )
    workspace_id = await pool.fetchval(
        "INSERT INTO workspaces (name, allowed_networks) VALUES ('test', '{127.0.0.0/8}') RETURNING id"
    )
    async with pool.acquire() as conn:
        pepper = settings.key_pepper.get_secret_value().encode()
        key = await create_key(conn, NewKey("enrol", workspace_id, [Scope.WORKER_JOIN]), pepper)
    world = World(served, pool, workspace_id, key.plaintext, folder)
    await world.start_api()
    await world.start_gateway()
    try:
        yield world
    finally:
        await world.stop_gateway()
        await world.stop_api()
