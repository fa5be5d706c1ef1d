"""Scan workers that a measurement may kill, stop and cut off, each behind wires of its own.

Nobody starts them again: what is measured is how soon they are missed, not how soon they are back.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from tests.chaos.link import Link
from tests.e2e.installation import Installation, until

JOIN_LIMIT_S: Final = 90.0

_IS_THERE: Final = """
SELECT id FROM workers
WHERE name = $1 AND status = 'online' AND stream_seen_at IS NOT NULL AND joined_at > $2
"""

_IS_SEEN: Final = (
    "SELECT 1 FROM workers WHERE id = $1 AND status = 'online' AND least(stream_seen_at, beat_at) > $2"
)


@dataclass(slots=True)
class ScanWorker:
    """A scan worker process and its two wires."""

    name: str
    api: Link
    gateway: Link
    environment: Mapping[str, str]
    log_path: Path
    id: UUID | None = None
    process: asyncio.subprocess.Process | None = None

    def send(self, sign: signal.Signals) -> None:
        """Signals the process."""
        assert self.process is not None
        os.kill(self.process.pid, sign)

    def cut(self) -> None:
        """Cuts the worker off from the API and the gateway."""
        self.api.cut()
        self.gateway.cut()

    def mend(self) -> None:
        """Puts it back on the network."""
        self.api.mend()
        self.gateway.mend()


class Fleet:
    """Workers of an installation besides its own."""

    def __init__(self, installation: Installation, workers: Sequence[ScanWorker]) -> None:
        self._installation = installation
        self.workers = workers

    @classmethod
    @asynccontextmanager
    async def open(
        cls, installation: Installation, names: Sequence[str], environment: Mapping[str, str]
    ) -> AsyncIterator["Fleet"]:
        """Starts them; they are killed at the end of the block. `environment` is added to theirs."""
        async with AsyncExitStack() as wires:
            workers = [await _wired(installation, name, environment, wires) for name in names]
            fleet = cls(installation, workers)
            try:
                for worker in workers:
                    await fleet.start(worker)
                yield fleet
            finally:
                for worker in workers:
                    await fleet.end(worker)

    async def start(self, worker: ScanWorker) -> None:
        """Starts a new life of a worker; returns when it is there to work."""
        pool = self._installation.pool
        now = await pool.fetchval("SELECT clock_timestamp()")
        with worker.log_path.open("ab") as sink:
            worker.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "runlane.cli", "worker", "scan"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=dict(worker.environment),
                start_new_session=True,
            )

        async def is_there() -> bool:
            worker_id = await pool.fetchval(_IS_THERE, worker.name, now)
            worker.id = worker_id or worker.id
            return worker_id is not None

        await until(is_there, JOIN_LIMIT_S)

    async def is_back(self, worker: ScanWorker) -> None:
        """Waits until a worker that was frozen or cut off is in touch again."""
        pool = self._installation.pool
        now = await pool.fetchval("SELECT clock_timestamp()")

        async def is_seen() -> bool:
            return bool(await pool.fetchval(_IS_SEEN, worker.id, now))

        await until(is_seen, JOIN_LIMIT_S)

    async def end(self, worker: ScanWorker) -> None:
        """Kills a worker, if it lives."""
        if worker.process is not None and worker.process.returncode is None:
            worker.process.kill()
            await worker.process.wait()


async def _wired(
    installation: Installation, name: str, environment: Mapping[str, str], wires: AsyncExitStack
) -> ScanWorker:
    platform = installation.platform
    api = await wires.enter_async_context(_to(urlsplit(platform.settings.api_url).netloc))
    gateway = await wires.enter_async_context(_to(platform.settings.gateway_address))
    own = {
        "RUNLANE_API_URL": f"http://127.0.0.1:{api.port}",
        "RUNLANE_SCAN_TEMPORAL_ADDRESS": f"127.0.0.1:{gateway.port}",
        "RUNLANE_WORKER_NAME": name,
        "RUNLANE_WORKER_ENROLMENT_KEY": platform.profile.enrolment_key,
        "RUNLANE_STATE_DIR": str(platform.settings.state_dir / name),
        "RUNLANE_LOG_LEVEL": "info",
    }
    whole = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", **own, **environment}
    return ScanWorker(name, api, gateway, whole, platform.stack.log_path(name))


def _to(address: str) -> AbstractAsyncContextManager[Link]:
    host, _, port = address.rpartition(":")
    return Link.to(host, int(port))
