"""Connectors from a step to the inventory: server, gateway, scan worker in container mode, a host to scan."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import docker
import psutil
import pytest
import pytest_asyncio

from runlane import names
from runlane.connectors import Manifest, load_manifest, read_manifest
from runlane.containers.engine import Engine
from runlane.db.acts import Act
from runlane.db.cancel import cancel_run
from runlane.db.connectors import NewConnector, add_connector
from runlane.db.definitions import read_definition
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.scan.config import ContainerSettings
from runlane.scan.container_host import short
from runlane.scan.worker import run_scan_worker
from runlane.settings import Settings
from tests.containers.container_jobs import CONNECTORS, LabHost
from tests.integration.worker_world import World, core_of, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration

NMAP = "ports_scanner/nmap"
ECHO = "bench/echo"


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world, core_of(world.settings):
        yield world


def shipped(folder: str, digest: str) -> Manifest:
    raw = load_manifest((CONNECTORS / folder / "manifest.yaml").read_bytes())
    assert isinstance(raw, dict)
    return read_manifest({**raw, "digest": digest})


async def start(
    world: World, manifest: Manifest, target: tuple[str, str], config: Mapping[str, object] | None = None
) -> UUID:
    """Adds a connector to the workspace and starts a run of it over one target."""
    async with world.pool.acquire() as conn, conn.transaction():
        await add_connector(conn, NewConnector(world.workspace_id, manifest), Act(name="me"))
        step = {"run": manifest.slug, "config": dict(config or {})}
        definition = await read_definition(conn, world.workspace_id, {"name": "t", "jobs": {"only": step}})
        target_id = await conn.fetchval(
            "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, $2, $3) RETURNING id",
            world.workspace_id,
            *target,
        )
        started = await start_run(conn, StartRun(world.workspace_id, definition, [target_id], "test"))
        await conn.execute("UPDATE commands SET due_at = clock_timestamp()")
    return started.run_id


@asynccontextmanager
async def container_worker(
    world: World, engine: Engine, *images: str, network: str = "bridge"
) -> AsyncIterator[None]:
    stop = asyncio.Event()
    containers = ContainerSettings(frozenset(images), network=network)
    settings = replace(world.scan_settings(), toolsets={"container": 2}, containers=containers)
    worker = asyncio.create_task(run_scan_worker(settings, stop, engine))
    try:
        await until(lambda: worker.done() or world.is_online("one"))
        yield
    finally:
        stop.set()
        await worker


def of_job(client: docker.APIClient, job_id: UUID) -> list[str]:
    """Ids of the containers that were made for a job."""
    label = f"{names.CONTAINER_JOB}={job_id}"
    return [each["Id"] for each in client.containers(all=True, filters={"label": label})]


def mode_of(engine_url: str, image: str) -> dict[str, str]:
    """Settings of a process in container mode."""
    return {
        "DOCKER_HOST": engine_url,
        "RUNLANE_SCAN_IMAGES": image,
        "RUNLANE_WORKER_TOOLSETS": "container=2",
    }


async def only_job(world: World) -> UUID:
    job_id: UUID = await world.pool.fetchval("SELECT id FROM jobs")
    return job_id


async def test_what_nmap_finds_in_a_container_reaches_the_inventory(
    world: World, engine: Engine, nmap_image: str, lab_host: LabHost, client: docker.APIClient
) -> None:
    await world.pool.execute("UPDATE workspaces SET allowed_networks = ARRAY[$1::cidr]", lab_host.subnet)
    manifest = shipped(NMAP, nmap_image)

    async with container_worker(world, engine, nmap_image, network=lab_host.network):
        run_id = await start(world, manifest, ("ip", lab_host.address), {"ports": "22,2222,8080"})
        assert await world.closed(run_id) == "completed"

    ports = await world.pool.fetch("SELECT host(address), port FROM ports ORDER BY port")
    assert [tuple(row) for row in ports] == [(lab_host.address, 2222), (lab_host.address, 8080)]
    attempt = await world.pool.fetchrow(
        "SELECT argv[1] AS program, tool_version, is_complete FROM job_attempts"
    )
    assert attempt is not None
    assert tuple(attempt) == ("/usr/bin/nmap", "7.93", True)
    assert of_job(client, await only_job(world)) == []


async def test_image_that_is_not_allowed_sends_the_job_back_uncharged(
    world: World, engine: Engine, busybox: str
) -> None:
    """The host's own list decides: a row of the server allows nothing."""
    async with container_worker(world, engine, f"sha256:{'0' * 64}"):
        run_id = await start(world, shipped(ECHO, busybox), ("domain", "a.lab.test"))
        await until(lambda: world.has_staged(run_id, 1))
        await until(lambda: world.has_status(run_id, "pending", 1))

    row = await world.pool.fetchrow("SELECT outcome, charged, staged_error FROM job_attempts LIMIT 1")
    assert row is not None
    assert (row["outcome"], row["charged"]) == ("rejected", False)
    assert row["staged_error"] == f"this host does not allow the image {short(busybox)} of echo"
    assert await world.pool.fetchval("SELECT failures FROM jobs") == 0


async def test_killed_worker_leaves_no_container_and_its_successor_goes_on(
    world: World, busybox: str, engine_url: str, client: docker.APIClient
) -> None:
    """Containers of a worker that was killed ran on for ever."""
    mode = mode_of(engine_url, busybox)
    worker = await world.spawn_scan_worker(**mode)
    run_id = await start(world, shipped(ECHO, busybox), ("domain", "a.lab.test"), {"linger_s": 600})
    job_id = await only_job(world)
    await until(lambda: of_job(client, job_id))

    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    await until(lambda: not of_job(client, job_id))
    successor = await world.spawn_scan_worker(**mode)

    await until(lambda: of_job(client, job_id))  # the next attempt
    async with world.pool.acquire() as conn, conn.transaction():
        await cancel_run(conn, world.workspace_id, run_id)
    await until(lambda: not of_job(client, job_id))
    successor.terminate()
    await successor.wait()


async def test_killed_worker_and_guard_leave_no_container_after_the_next_start(
    world: World, busybox: str, engine_url: str, client: docker.APIClient
) -> None:
    mode = mode_of(engine_url, busybox)
    worker = await world.spawn_scan_worker(**mode)
    await start(world, shipped(ECHO, busybox), ("domain", "a.lab.test"), {"linger_s": 600})
    job_id = await only_job(world)
    await until(lambda: of_job(client, job_id))
    orphans = of_job(client, job_id)

    for guard in psutil.Process(worker.pid).children():
        if "runlane.scan.guard" in guard.cmdline():
            guard.kill()
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    assert of_job(client, job_id) == orphans
    successor = await world.spawn_scan_worker(**mode)

    await until(lambda: not set(orphans) & set(of_job(client, job_id)))
    successor.terminate()
    await successor.wait()
    assert of_job(client, job_id) == []
