"""A scan host that misuses its own credential."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.errors import Invalid
from runlane.settings import Settings
from tests.integration.worker_host import claimed_host, joined_host, next_of, open_stream, package
from tests.integration.worker_world import World, world_of

pytestmark = pytest.mark.integration

NAME = "0123456789abcdef0123456789abcdef.ndjson"
OTHER = "01234567-89ab-7def-8123-456789abcdef"


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


@pytest.mark.parametrize("key", ["\x00", "a\x00b", "two words", "ü", ""])
async def test_claim_key_that_cannot_be_stored_is_refused(world: World, key: str) -> None:
    async with joined_host(world) as host:
        with pytest.raises(Invalid) as refused:
            await host.api.claim(str(uuid4()), key, 1)

    assert refused.value.code == "request.invalid"


@pytest.mark.parametrize("name", [f"../{OTHER}/{NAME}", f"./{NAME}", f"/{NAME}", f"{NAME}\n", "\x00", ""])
async def test_object_key_that_was_not_given_out_is_refused(world: World, name: str) -> None:
    async with claimed_host(world, 1) as (host, dispatch_id, claimed):
        odd = {"key": f"{world.workspace_id}/{dispatch_id}/{name}", "size": 1, "sha256": "0" * 64}
        fields = {**package(host, dispatch_id, claimed).fields, "object": odd}
        with pytest.raises(Invalid) as refused:
            await host.api.results(fields, None)

    assert refused.value.code == "result.object"
    assert await world.pool.fetchval("SELECT count(*) FROM job_results") == 0


async def test_worker_has_one_control_stream_however_many_it_opens(world: World) -> None:
    async with (
        joined_host(world) as host,
        open_stream(world, host) as first,
        open_stream(world, host) as second,
    ):
        assert await next_of(first, "ended")
        assert await next_of(second, "ping")
        assert await world.is_online("host")
