"""When `runlane up` takes its scan worker for ready."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio

from runlane.cli.profile import Profile
from runlane.cli.readiness import ApiProbe, WorkerProbe
from runlane.db.pool import Pool
from runlane.db.workers import Home, Life, enrol, last_join, rejoin
from runlane.errors import Unavailable
from runlane.settings import Settings
from tests.integration.api_world import Caller, open_api, served

pytestmark = pytest.mark.integration

PEPPER = b"p" * 32
FIRST, SECOND, THIRD = UUID(int=1), UUID(int=2), UUID(int=3)


def life(incarnation: UUID) -> Life:
    return Life("host", ["probe"], {"probe": 2}, "1", 1, incarnation)


@pytest_asyncio.fixture
async def api(settings: Settings, pool: Pool) -> AsyncIterator[tuple[Caller, ApiProbe]]:
    away = settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    async with open_api(away, pool) as world, world.caller("ours") as caller, served(world.app) as url:
        yield caller, ApiProbe(Profile(url, caller.key))


async def test_dead_workers_row_does_not_make_its_successor_ready(
    api: tuple[Caller, ApiProbe], pool: Pool
) -> None:
    caller, probe = api
    async with pool.acquire() as conn:
        worker, _ = await enrol(conn, Home(caller.workspace_id), life(FIRST), PEPPER)
        workers = WorkerProbe(probe, await last_join(conn, caller.workspace_id))

        with pytest.raises(Unavailable):
            await workers.ready()

        await rejoin(conn, worker, life(SECOND))
        await workers.ready()

        with pytest.raises(Unavailable):
            await workers.ready()

        await rejoin(conn, worker, life(THIRD))
        await workers.ready()


async def test_first_worker_of_a_workspace_is_ready_when_it_has_joined(
    api: tuple[Caller, ApiProbe], pool: Pool
) -> None:
    caller, probe = api
    async with pool.acquire() as conn:
        workers = WorkerProbe(probe, await last_join(conn, caller.workspace_id))
        with pytest.raises(Unavailable):
            await workers.ready()

        await enrol(conn, Home(caller.workspace_id), life(FIRST), PEPPER)

        await workers.ready()
