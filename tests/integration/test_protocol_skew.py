"""Scan workers of another version than the API: an installation is upgraded host by host."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
import pytest_asyncio

from runlane import names
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.worker_host import post
from tests.integration.worker_world import World, core_of, world_of

pytestmark = pytest.mark.integration

NEXT = names.WORKER_PROTOCOL + 1


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


@pytest.fixture
def newer_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, and the API in it, is of the next version; workers that are processes are not."""
    monkeypatch.setattr(names, "WORKER_PROTOCOL", NEXT)


async def join(world: World, protocol: int, **more: object) -> httpx2.Response:
    body = {"name": "a", "toolsets": ["probe"], "slots": {"probe": 1}, "version": "1"}
    said = body | {"protocol": protocol, "incarnation": str(uuid4())} | more
    return await post(world, "/join", said, Authorization=f"Bearer {world.enrolment_key}")


@pytest.mark.usefixtures("newer_api")
async def test_worker_of_the_version_before_works_and_is_told(world: World) -> None:
    async with core_of(world.settings):
        worker = await world.spawn_scan_worker()
        run_id = await world.start_run(3)
        status = await world.closed(run_id)
        worker.terminate()
        await worker.wait()

    assert status == "completed"
    assert await world.attempts(run_id) == {"completed": 3}
    assert "worker_outdated" in (world.folder / "one.log").read_text()  # a short file
    assert await world.pool.fetchval("SELECT protocol FROM workers") == NEXT - 1


@pytest.mark.usefixtures("newer_api")
async def test_worker_of_two_versions_before_is_refused(world: World) -> None:
    answer = await join(world, NEXT - 2)

    assert (answer.status_code, answer.json()["code"]) == (409, "worker.protocol")
    assert "upgrade the worker" in answer.json()["detail"]


async def test_worker_that_is_ahead_is_refused_by_its_version_whatever_else_it_says(world: World) -> None:
    answer = await join(world, NEXT, invented="later", slots="another form")

    assert (answer.status_code, answer.json()["code"]) == (409, "worker.protocol")
    assert "upgrade the API first" in answer.json()["detail"]
    assert await world.pool.fetchval("SELECT count(*) FROM workers") == 0
