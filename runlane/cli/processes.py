"""Commands that are processes: each runs until SIGINT or SIGTERM and then ends orderly."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from runlane.cli.options import JsonFlag
from runlane.cli.output import note, print_done

if TYPE_CHECKING:
    from runlane.containers.engine import Engine
    from runlane.scan.config import ContainerSettings
    from runlane.settings import Settings

    Process = Callable[[Settings, asyncio.Event], Awaitable[None]]

worker_app = typer.Typer(no_args_is_help=True, help="Workers: list them, or be one.")


def register(app: typer.Typer) -> None:
    """Adds the processes that stand for themselves."""
    app.command("api")(api)
    app.command("gateway")(gateway)
    app.command("lanes")(lanes)
    app.command("migrate")(migrate)


def api() -> None:
    """Serve the REST interface and the workers' endpoints."""
    from api.server import serve

    serve(_load())


def gateway() -> None:
    """Stand between scan workers and Temporal."""
    from runlane.gateway.server import run_gateway

    _run(run_gateway)


def lanes() -> None:
    """Relay commands to Temporal and events to the bus, and feed every lane."""
    from lanes.runner import run_lanes

    _run(run_lanes)


@worker_app.command("core")
def core() -> None:
    """Run workflows and their light activities, and see to the schedules of the sweeps."""
    _run(_run_core)


@worker_app.command("results")
def results() -> None:
    """Merge staged results into the inventory."""
    from runlane.worker import run_results

    _run(run_results)


@worker_app.command("scan")
def scan() -> None:
    """Run tools on this host."""
    _run(_run_scan)


def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 10 if migrations are missing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Bring the database to this version's schema; safe to repeat."""
    from runlane.db.schema import head

    settings = _load()
    if check:
        asyncio.run(_check_schema(settings))
    else:
        asyncio.run(migrate_database(settings))
    print_done({"revision": head()}, f"the schema is at {head()}", as_json=as_json)


async def _check_schema(settings: "Settings") -> None:
    from runlane.cli.errors import CommandError, ExitCode
    from runlane.db.pool import open_pool
    from runlane.db.schema import require_current
    from runlane.errors import Unavailable

    pool = await open_pool(settings.database_system_url, size=1, name="runlane-migrate")
    try:
        async with pool.acquire() as conn:
            await require_current(conn)
    except Unavailable as error:
        raise CommandError(error.detail, ExitCode.CHECK_FAILED) from error
    finally:
        await pool.close()


async def migrate_database(settings: "Settings") -> None:
    """Runs missing migrations as the owner, writes the built-in tools, makes the buckets; repeatable."""
    from runlane.db.migrate import seed_tools, upgrade
    from runlane.db.pool import open_pool
    from runlane.storage import Storage, StorageConfig

    await upgrade(settings.database_url)
    pool = await open_pool(settings.database_system_url, size=1, name="runlane-migrate")
    try:
        await seed_tools(pool)
    finally:
        await pool.close()
    if settings.s3_endpoint:
        storage = Storage(StorageConfig(**settings.bucket))
        await storage.ensure_bucket()
        await storage.of_pictures().ensure_bucket()


async def _run_core(settings: "Settings", stop: asyncio.Event) -> None:
    from runlane.worker import keep_schedules, run_core

    scheduling = asyncio.create_task(keep_schedules(settings))
    try:
        await run_core(settings, stop)
    finally:
        scheduling.cancel()


async def _run_scan(settings: "Settings", stop: asyncio.Event) -> None:
    import socket

    from runlane.scan.config import ScanLimits, ScanSettings
    from runlane.scan.worker import run_scan_worker

    scan_settings = ScanSettings(
        api_url=settings.api_url,
        state_dir=settings.state_dir / "worker",
        name=settings.worker_name or socket.gethostname(),
        toolsets=settings.worker_slots,
        enrolment_key=settings.worker_enrolment_key.get_secret_value(),
        temporal_address=settings.scan_temporal_address,
        limits=ScanLimits(drain_s=settings.worker_drain_s),
        containers=_container_settings(settings),
    )
    engine = await _open_engine(settings) if scan_settings.containers is not None else None
    try:
        await run_scan_worker(scan_settings, stop, engine)
    finally:
        if engine is not None:
            engine.close()


def _container_settings(settings: "Settings") -> "ContainerSettings | None":
    from runlane.scan.config import ContainerSettings, read_digests

    allowed = read_digests(settings.scan_images)
    if not allowed:
        return None
    return ContainerSettings(
        allowed, settings.scan_containers, settings.scan_network, may_pull=settings.scan_pull
    )


async def _open_engine(settings: "Settings") -> "Engine | None":
    """The container engine; a worker does without one that does not answer at its start."""
    from runlane.containers.engine import Engine
    from runlane.errors import Unavailable

    try:
        return await Engine.open(settings.engine_url, settings.scan_containers)
    except Unavailable as error:
        note(f"warning: no connectors on this host: {error.detail}")
        return None


def _load() -> "Settings":
    from runlane.events import use_redaction
    from runlane.observability import configure
    from runlane.settings import Settings, unknown_variables

    settings = Settings.load()
    use_redaction(settings.redaction)
    configure(settings.log_format, settings.log_level)
    if unknown := unknown_variables():
        note(f"warning: no setting is called {', '.join(unknown)}")
    return settings


def _run(process: "Process") -> None:
    import structlog
    import uvloop

    from runlane.cli.errors import CommandError, ExitCode
    from runlane.errors import RunlaneError

    settings = _load()
    os.umask(0o077)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_stopped(process, settings))
    except (CommandError, RunlaneError):
        raise
    except Exception as error:
        # Python's own traceback would print what a server said, as it said it
        structlog.get_logger(__name__).exception("process_failed")
        raise SystemExit(ExitCode.UNEXPECTED) from error


async def _until_stopped(process: "Process", settings: "Settings") -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop.set)
    if await _has_its_schema(settings, stop):
        await process(settings, stop)


async def _has_its_schema(settings: "Settings", stop: asyncio.Event) -> bool:
    """Waits for the schema of this version; a process without a database needs none."""
    if not settings.database_system_url:
        return True
    from runlane.db.schema import until_current

    return await until_current(settings.database_system_url, stop)
