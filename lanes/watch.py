"""The watch: notes when PostgreSQL or Temporal was away, so that what was lost then is blamed on no job."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import asyncpg
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from lanes.outages import is_transient
from runlane.backoff import pause
from runlane.db.losses import begin_outage, end_outages
from runlane.db.pool import Pool, open_pool
from runlane.settings import Settings

LOOK: Final = timedelta(seconds=2)
"""How often the servers are asked."""

ANSWER_S: Final = 5.0
"""A server that needs longer is away."""

POSTGRESQL: Final = "postgresql"
TEMPORAL: Final = "temporal"

Probe = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Sight:
    """What one observer saw of a server. Times are of one clock."""

    answered_at: float | None = None
    has_failed: bool = False
    """It did not answer since: that is to be written down."""
    is_settled: bool = False
    """The rows say that it answers. A watch that died may have left them saying otherwise."""


async def run_watch(settings: Settings, stop: asyncio.Event) -> None:
    """Watches until `stop`.

    Raises:
        OSError, asyncpg.PostgresError: PostgreSQL is away at the start; the supervisor starts it again.
    """
    pool = await open_pool(settings.database_system_url, size=1, name="runlane-watch")
    client = await Client.connect(settings.temporal_address, namespace=settings.temporal_namespace, lazy=True)
    probes: Mapping[str, Probe] = {
        POSTGRESQL: lambda: pool.fetchval("SELECT 1", timeout=ANSWER_S),
        TEMPORAL: lambda: client.workflow_service.get_system_info(
            GetSystemInfoRequest(), timeout=timedelta(seconds=ANSWER_S)
        ),
    }
    sights = {server: Sight() for server in probes}
    try:
        while not stop.is_set():
            for server, probe in probes.items():
                await _look(pool, server, probe, sights[server])
            await pause(LOOK, stop)
    finally:
        await pool.close()


async def _look(pool: Pool, server: str, probe: Probe, sight: Sight) -> None:
    """Asks a server; what PostgreSQL cannot take now is written by a later look."""
    is_up = await _answers(probe)
    now = asyncio.get_running_loop().time()
    if sight.answered_at is None:
        sight.answered_at = now
    sight.has_failed = sight.has_failed or not is_up
    if is_up and sight.is_settled and not sight.has_failed:
        sight.answered_at = now
        return
    try:
        async with pool.acquire() as conn, conn.transaction():
            if sight.has_failed:
                await begin_outage(conn, server, now - sight.answered_at)
            if is_up:
                await end_outages(conn, server)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return
    if is_up:
        sight.answered_at, sight.has_failed, sight.is_settled = now, False, True


async def _answers(probe: Probe) -> bool:
    try:
        async with asyncio.timeout(ANSWER_S + 1):
            await probe()
    except (TimeoutError, RPCError, RuntimeError):
        return False
    except Exception as error:
        if is_transient(error):
            return False
        raise
    return True
