"""The watch writes down when a server was away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lanes.watch import run_watch
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.worker_world import free_port
from tests.waiting import until

pytestmark = pytest.mark.integration

OPEN = "SELECT count(*) = 1 FROM outages WHERE server = 'temporal' AND ended_at IS NULL"
OVER = "SELECT count(*) = 1 FROM outages WHERE server = 'temporal' AND ended_at > began_at"


@asynccontextmanager
async def forwarded(port: int, address: str) -> AsyncIterator[None]:
    """Forwards connections to a port to another address."""
    host, _, target = address.rpartition(":")

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, int(target))
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


async def test_time_in_which_temporal_was_away_is_written_down_and_ends(
    settings: Settings, pool: Pool
) -> None:
    port = free_port()
    stop = asyncio.Event()
    behind = settings.model_copy(update={"temporal_address": f"127.0.0.1:{port}"})
    watching = asyncio.create_task(run_watch(behind, stop))

    await until(lambda: pool.fetchval(OPEN))
    async with forwarded(port, settings.temporal_address):
        await until(lambda: pool.fetchval(OVER))
        stop.set()
        await watching

    assert await pool.fetchval("SELECT count(*) FROM outages") == 1
