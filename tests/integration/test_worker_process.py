"""The scan worker process: how it becomes a worker, when it refuses to be one, when it ends."""

import asyncio
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
import structlog.testing

from runlane.db.pool import Pool
from runlane.errors import Conflict
from runlane.scan.credential import Credential, load_credential, save_credential
from runlane.scan.join import JoinFailed
from runlane.scan.worker import run_scan_worker
from runlane.settings import Settings
from tests.integration.worker_world import World, world_of
from tests.waiting import WAIT_S, until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


async def test_credential_is_kept_for_its_owner_alone_and_used_at_the_next_start(world: World) -> None:
    async with world.scan_worker():
        pass
    (file,) = (world.folder / "one").glob("worker.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    world.enrolment_key = ""
    async with world.scan_worker():
        assert await world.pool.fetchval("SELECT count(*) FROM workers") == 1


async def test_worker_without_any_secret_refuses_to_start(world: World) -> None:
    settings = replace(world.scan_settings(), enrolment_key="")

    with pytest.raises(JoinFailed, match="neither a credential nor an enrolment key"):
        await run_scan_worker(settings, asyncio.Event())


async def test_worker_that_is_refused_says_why(world: World) -> None:
    settings = replace(world.scan_settings(), enrolment_key="rl_wrong")

    with pytest.raises(JoinFailed, match="key is not valid"):
        await run_scan_worker(settings, asyncio.Event())


async def test_unknown_credential_is_replaced_by_a_new_enrolment(world: World) -> None:
    settings = world.scan_settings()
    save_credential(settings.state_dir, Credential(str(uuid4()), f"rlw_{uuid4().hex}_{'x' * 43}"))

    async with world.scan_worker():
        worker_id = await world.pool.fetchval("SELECT id FROM workers")

    kept = load_credential(settings.state_dir)
    assert kept is not None
    assert kept.worker_id == str(worker_id)


async def test_second_worker_on_the_same_folder_is_refused(world: World) -> None:
    async with world.scan_worker():
        with pytest.raises(Conflict) as refused:
            await run_scan_worker(world.scan_settings(), asyncio.Event())
    assert refused.value.code == "worker.state_in_use"


async def test_worker_that_was_replaced_ends(world: World) -> None:
    running = asyncio.create_task(run_scan_worker(world.scan_settings(), asyncio.Event()))
    await until(lambda: world.is_online("one"))

    await world.pool.execute("UPDATE workers SET incarnation = $1", uuid4())

    async with asyncio.timeout(WAIT_S):
        with pytest.raises(JoinFailed, match=r"worker\.stale_incarnation"):
            await running


async def test_revoked_worker_ends(world: World) -> None:
    running = asyncio.create_task(run_scan_worker(world.scan_settings(), asyncio.Event()))
    await until(lambda: world.is_online("one"))

    await world.pool.execute("UPDATE workers SET status = 'revoked'")

    async with asyncio.timeout(WAIT_S):
        with pytest.raises(JoinFailed, match=r"worker\.revoked"):
            await running


async def test_worker_waits_for_an_api_that_is_not_there_yet(world: World) -> None:
    await world.stop_api()
    async with asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        with structlog.testing.capture_logs() as logs:
            group.create_task(run_scan_worker(world.scan_settings(), stop))
            await until(lambda: "join_not_answered" in {each["event"] for each in logs})
        await world.start_api()
        await until(lambda: world.is_online("one"))
        stop.set()


async def test_stop_before_the_join_ends_the_worker(world: World) -> None:
    await world.stop_api()
    stop = asyncio.Event()
    with structlog.testing.capture_logs() as logs:
        running = asyncio.create_task(run_scan_worker(world.scan_settings(), stop))
        await until(lambda: "join_not_answered" in {each["event"] for each in logs})
    stop.set()

    async with asyncio.timeout(WAIT_S):
        await running
    await world.start_api()
