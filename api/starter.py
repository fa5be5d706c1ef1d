"""The immediate try to start a run's workflow: the common case waits for no relay.

The command row is written with the run, so whatever fails here is made up for by the command relay.
"""

import asyncio
from datetime import timedelta
from typing import Final

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from runlane.db import commands
from runlane.db.engine import DRIVER_ERRORS
from runlane.db.pool import Pool
from workflows.dispatching import Limits
from workflows.starting import RunToStart, start_run_workflow

TRY_LIMIT: Final = timedelta(seconds=5)
"""After this the relay has the run; holding on to it would pile up tries while Temporal is away."""

log = structlog.get_logger(__name__)


class Starter:
    """Starts workflows in the background of requests; `close()` gives up those that are not done."""

    def __init__(self, client: Client, pool: Pool, limits: Limits) -> None:
        self._client = client
        self._pool = pool
        self._limits = limits
        self._tries: set[asyncio.Task[None]] = set()

    async def start_soon(self, run: RunToStart) -> None:
        """Begins a try and returns at once. The run's rows must be committed."""
        task = asyncio.create_task(self._start(run), name=f"start-{run.run_id}")
        self._tries.add(task)
        task.add_done_callback(self._tries.discard)

    async def close(self) -> None:
        """Gives up what is not done."""
        tries = list(self._tries)
        for task in tries:
            task.cancel()
        await asyncio.gather(*tries, return_exceptions=True)

    async def _start(self, run: RunToStart) -> None:
        try:
            async with asyncio.timeout(TRY_LIMIT.total_seconds()):
                await start_run_workflow(self._client, run, self._limits)
                async with self._pool.acquire() as conn:
                    await commands.mark_started(conn, run.run_id)
        # RuntimeError: a client that never connected says so with it.
        except (RPCError, RuntimeError, *DRIVER_ERRORS) as error:
            log.warning("start_left_to_relay", run_id=str(run.run_id), error=str(error)[:200])
