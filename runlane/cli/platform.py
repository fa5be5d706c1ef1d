"""The whole platform on one machine: servers, schema, a workspace with its keys, and every process."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from runlane.cli.processes import migrate_database
from runlane.cli.profile import FILE, Profile, read_profile, write_profile
from runlane.cli.readiness import ApiProbe, WorkerProbe
from runlane.db import keys, workers, workspaces
from runlane.db.pool import Connection, Pool, open_pool
from runlane.errors import NotFound, Unauthenticated
from runlane.settings import Settings
from runlane.stack.processes import ProcessSpec
from runlane.stack.services import check_listening
from runlane.stack.supervisor import Stack

WORKSPACE: Final = "default"
PROCESSES: Final[Mapping[str, tuple[str, ...]]] = {
    "api": ("api",),
    "core": ("worker", "core"),
    "results": ("worker", "results"),
    "lanes": ("lanes",),
    "gateway": ("gateway",),
    "scan": ("worker", "scan"),
}
"""Product processes by name, as arguments of the command."""

_NOT_FOR_SCAN_HOSTS: Final = (
    "RUNLANE_DATABASE_URL",
    "RUNLANE_DATABASE_API_URL",
    "RUNLANE_DATABASE_SYSTEM_URL",
    "RUNLANE_REDIS_URL",
    "RUNLANE_TEMPORAL_ADDRESS",
    "RUNLANE_S3_ACCESS_KEY",
    "RUNLANE_S3_SECRET_KEY",
    "RUNLANE_KEY_PEPPER",
    "RUNLANE_SECRET_KEYS",
)
"""A scan worker gets none of these, here as little as on a host of its own."""


@dataclass(frozen=True, slots=True)
class PlatformOptions:
    """What to run and where."""

    state_dir: Path
    allowed_networks: tuple[str, ...] = ()
    """Networks that the workspace may scan besides global addresses; added to those it has."""
    processes: tuple[str, ...] = tuple(PROCESSES)
    guarded: bool = False
    """Take the servers down even if this process is killed: for tests."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A running platform."""

    stack: Stack
    settings: Settings
    profile: Profile

    @property
    def workspace_id(self) -> UUID:
        """The workspace `default`."""
        return UUID(self.profile.workspace_id)


@asynccontextmanager
async def open_platform(options: PlatformOptions, env: Mapping[str, str]) -> AsyncIterator[Platform]:
    """Runs everything for the length of the block; state stays, so that the next call goes on from it.

    Raises:
        StackBusy: another process runs this folder.
        StackError: a server or process could not be started.
    """
    async with Stack.open(options.state_dir, env, guarded=options.guarded) as stack:
        url = f"http://127.0.0.1:{stack.port('api')}"
        settings = _settings(stack.environment() | {"RUNLANE_API_URL": url})
        await migrate_database(settings)
        seeded = await _seed(options, settings)
        await _start_processes(stack, options, seeded)
        yield Platform(stack, settings, seeded.profile)


@dataclass(frozen=True, slots=True)
class _Seeded:
    """What the processes are started with."""

    profile: Profile
    last_join: datetime | None
    """When a worker joined last, before ours was started."""


async def _start_processes(stack: Stack, options: PlatformOptions, seeded: _Seeded) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for name in options.processes:
                spec = _spec(name, stack, seeded)
                group.create_task(stack.start_process(spec), name=f"start-{name}")
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _settings(environment: Mapping[str, str]) -> Settings:
    values = {name.removeprefix("RUNLANE_").lower(): value for name, value in environment.items()}
    return Settings.model_validate({k: v for k, v in values.items() if k in Settings.model_fields})


async def _seed(options: PlatformOptions, settings: Settings) -> _Seeded:
    """Finds or makes the workspace and its two keys, and writes them down for commands in other terminals."""
    path = options.state_dir / FILE
    known = read_profile(path) or Profile(settings.api_url, "")
    pool = await open_pool(settings.database_system_url, size=2, name="runlane-seed")
    try:
        async with pool.acquire() as conn, conn.transaction():
            workspace_id = await _workspace(conn, options.allowed_networks)
            last_join = await workers.last_join(conn, workspace_id)
        pepper = keys.check_pepper(settings.key_pepper.get_secret_value())
        seeder = _Seeder(pool, workspace_id, pepper)
        api_key = await seeder.key(known.api_key, "command line", [keys.ALL_SCOPES])
        enrolment_key = await seeder.key(known.enrolment_key, "own scan worker", [keys.Scope.WORKER_JOIN])
    finally:
        await pool.close()
    profile = replace(
        known,
        api_url=settings.api_url,
        api_key=api_key,
        workspace_id=str(workspace_id),
        temporal_ui_url=settings.temporal_ui_url,
        enrolment_key=enrolment_key,
    )
    write_profile(path, profile)
    return _Seeded(profile, last_join)


async def _workspace(conn: Connection, networks: tuple[str, ...]) -> UUID:
    try:
        workspace_id = await workspaces.find_workspace(conn, WORKSPACE)
    except NotFound:
        return await workspaces.create_workspace(conn, WORKSPACE, networks)
    await workspaces.allow_networks(conn, workspace_id, networks)
    return workspace_id


@dataclass(frozen=True, slots=True)
class _Seeder:
    pool: Pool
    workspace_id: UUID
    pepper: bytes

    async def key(self, known: str, name: str, scopes: list[str]) -> str:
        """Keeps a key that still opens this workspace, else makes one."""
        async with self.pool.acquire() as conn, conn.transaction():
            try:
                principal = await keys.authenticate(conn, known, self.pepper)
                if principal.workspace_id == self.workspace_id:
                    return known
            except Unauthenticated:
                pass
            new = keys.NewKey(name, self.workspace_id, scopes)
            return (await keys.create_key(conn, new, self.pepper)).plaintext


def _spec(name: str, stack: Stack, seeded: _Seeded) -> ProcessSpec:
    profile = seeded.profile
    port = str(stack.port("api"))
    env = {"RUNLANE_API_URL": profile.api_url, "RUNLANE_API_PORT": port, "PYTHONUNBUFFERED": "1"}
    ready: Callable[[], Awaitable[None]] | None = None
    if name == "api":
        ready = ApiProbe(profile).ready
    elif name == "gateway":
        ready = partial(check_listening, stack.port("gateway"))
    elif name == "scan":
        ready = WorkerProbe(ApiProbe(profile), seeded.last_join).ready
        env |= dict.fromkeys(_NOT_FOR_SCAN_HOSTS, "")
        env["RUNLANE_WORKER_ENROLMENT_KEY"] = profile.enrolment_key
    argv = (sys.executable, "-m", "runlane.cli", *PROCESSES[name])
    return ProcessSpec(name=name, argv=argv, env=env, ready=ready)
