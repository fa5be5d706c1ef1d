"""Serves the figures of this process and of the bus to a scraper, on an address of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import asyncpg
import structlog
from redis.exceptions import RedisError

from lanes.tally import Tallies
from runlane import stream
from runlane.db import lane_status
from runlane.db.bus_figures import figures_of
from runlane.db.pool import open_pool
from runlane.db.publish_figures import publish_figures
from runlane.exposition import CONTENT_TYPE, Family, Kind, Sample, render
from runlane.overlook import Overlook
from runlane.settings import Settings

log = structlog.get_logger(__name__)

PATIENCE_S: Final = 5.0
"""A scraper that says nothing for so long is cut off; so is one whose answer takes as long."""

_MOST_LINES: Final = 64


async def run_figures(settings: Settings, tallies: Tallies, stop: asyncio.Event) -> None:
    """Serves `GET /metrics` until `stop` is set; not at all when no port is set.

    Raises:
        OSError: the port is taken, or the database away; the supervisor starts it again.
    """
    if not settings.lanes_metrics_port:
        await stop.wait()
        return
    pool = await open_pool(settings.database_system_url, size=1, name="runlane-figures")
    redis = stream.connect(settings.redis_url)
    overlook = Overlook(redis)

    async def text() -> str:
        async with pool.acquire() as conn:
            bus = await lane_status.read_bus(conn)
        own = [*own_figures(tallies), *publish_figures(), await _reach(overlook)]
        return render([*figures_of(bus), *own])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await _answer(reader, writer, text)
        writer.close()

    try:
        server = await asyncio.start_server(answer, settings.lanes_metrics_host, settings.lanes_metrics_port)
        async with server:
            log.info("figures_served", port=settings.lanes_metrics_port)
            await stop.wait()
    finally:
        await pool.close()
        await redis.aclose()


def own_figures(tallies: Tallies) -> list[Family]:
    """What this process has counted since it began."""
    lanes = tallies.lanes.items()
    return [
        Family(
            "bridge_handler_seconds_sum",
            Kind.COUNTER,
            "time in the sinks of this process",
            [Sample(tally.handled_s, {"lane": lane}) for lane, tally in lanes],
        ),
        Family(
            "bridge_handler_seconds_count",
            Kind.COUNTER,
            "calls of the sinks of this process",
            [Sample(tally.handled_times, {"lane": lane}) for lane, tally in lanes],
        ),
        Family(
            "bridge_publish_seconds_sum",
            Kind.COUNTER,
            "time in calls to the stream",
            [Sample(tallies.publish_s)],
        ),
        Family(
            "bridge_publish_seconds_count",
            Kind.COUNTER,
            "calls to the stream",
            [Sample(tallies.publish_times)],
        ),
        Family(
            "bridge_published_total",
            Kind.COUNTER,
            "events that this process has published",
            [Sample(tallies.published)],
        ),
    ]


async def _reach(overlook: Overlook) -> Family:
    reach = None
    with suppress(RedisError, OSError):
        reach = await overlook.reach_s()
    samples = [] if reach is None else [Sample(reach)]
    return Family("bridge_retention_seconds", Kind.GAUGE, "how far back the stream reaches", samples)


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    text: Callable[[], Awaitable[str]],
) -> None:
    request = (await reader.readline()).split()
    for _ in range(_MOST_LINES):
        if not (await reader.readline()).strip():
            break
    status, body = "404 Not Found", ""
    if request[:2] == [b"GET", b"/metrics"]:
        try:
            status, body = "200 OK", await text()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            status, body = "503 Service Unavailable", f"{type(error).__name__}\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body.encode())}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n{body}".encode())
    await writer.drain()
