"""What tests of the API and of sweeps start from, unless a file has a world of its own."""

from collections.abc import AsyncIterator

import pytest_asyncio

from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, open_api
from tests.integration.sweep_world import SweepWorld, sweep_world


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ApiWorld]:
    """The API on the test's database, with Temporal away: what is written must not depend on it."""
    away = settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    async with open_api(away, pool) as opened:
        yield opened


@pytest_asyncio.fixture
async def caller(world: ApiWorld) -> AsyncIterator[Caller]:
    """Somebody with every right in the workspace `ours`."""
    async with world.caller("ours") as opened:
        yield opened


@pytest_asyncio.fixture
async def sweeps(settings: Settings, pool: Pool) -> AsyncIterator[SweepWorld]:
    """The sweeps, a turn at a time, on the test's database."""
    async with sweep_world(settings, pool) as opened:
        yield opened
