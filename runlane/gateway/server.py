"""The process: listens for scan workers, and holds one connection to Temporal for all of them."""

import asyncio
from datetime import timedelta
from typing import Final

import asyncpg
import structlog
from grpc import aio

from runlane.backoff import Backoff, pause
from runlane.db.keys import check_pepper
from runlane.db.pool import Pool, open_pool
from runlane.errors import Unavailable
from runlane.gateway.calls import Gateway, Workers
from runlane.gateway.faults import unavailable
from runlane.gateway.noting import PollNotes
from runlane.gateway.roster import Roster
from runlane.gateway.seal import sealing_key
from runlane.settings import Settings

log = structlog.get_logger(__name__)

MOST_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""What Temporal itself takes; a batch says some kilobytes."""

MOST_CALLS: Final = 4096
"""At once, over all workers: a poll that waits costs about 50 kB."""

MOST_STREAMS: Final = 512
"""Calls at once on one connection: what is beyond waits in the worker."""

STOP_GRACE_S: Final = 5.0
"""Calls that are no polls get this long at the stop."""

POOL_SIZE: Final = 4
"""Connections to PostgreSQL; one of them listens."""

_FIRST_PAUSE: Final = timedelta(milliseconds=100)
_MOST_PAUSE: Final = timedelta(seconds=2)

_SERVER: Final = (
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", MOST_STREAMS),
    # An SDK pings idle connections every 30 s, with no call open as well.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A host that is gone for good does not say so.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
    # Two processes on one port would each get half of the workers.
    ("grpc.so_reuseport", 0),
)
_UPSTREAM: Final = (
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # By default a server that was away for a while is not tried again for minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


async def run_gateway(settings: Settings, stop: asyncio.Event) -> None:
    """Serves scan workers until `stop` is set; polls end then, other calls may finish.

    Raises:
        Invalid: the pepper is too short.
        Unavailable: the address is taken.
    """
    pepper = check_pepper(settings.key_pepper.get_secret_value())
    pool = await _database_when_there(settings.database_system_url, stop)
    if pool is None:
        return
    try:
        async with aio.insecure_channel(settings.temporal_address, options=_UPSTREAM) as upstream:
            workers = Workers(Roster(pool, pepper), PollNotes(pool))
            gateway = Gateway(upstream, workers, sealing_key(pepper), settings.temporal_namespace)
            loops = [
                asyncio.create_task(each) for each in (workers.roster.watch(), workers.notes.note_forever())
            ]
            try:
                await _serve(gateway, workers.roster, settings, stop)
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.wait(loops)
    finally:
        await pool.close()


async def _serve(gateway: Gateway, roster: Roster, settings: Settings, stop: asyncio.Event) -> None:
    server = aio.server(options=_SERVER, maximum_concurrent_rpcs=MOST_CALLS)
    server.add_generic_rpc_handlers((gateway,))
    address = f"{settings.gateway_host}:{settings.gateway_port}"
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise Unavailable(f"cannot listen on {address}: {error}") from error
    await server.start()
    log.info("gateway_started", address=address)
    try:
        await stop.wait()
    finally:
        roster.end_polls(unavailable("the gateway stops"))
        await server.stop(STOP_GRACE_S)
        log.info("gateway_stopped")


async def _database_when_there(url: str, stop: asyncio.Event) -> Pool | None:
    """A pool, as soon as PostgreSQL answers; None if the stop comes first."""
    backoff = Backoff(_FIRST_PAUSE, _MOST_PAUSE)
    while not stop.is_set():
        try:
            return await open_pool(url, size=POOL_SIZE, name="runlane-gateway")
        except (OSError, asyncpg.PostgresError) as error:
            log.warning("server_not_there", server="postgresql", error=str(error)[:200])
        await pause(backoff.next(), stop)
    return None
