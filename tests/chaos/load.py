"""Work that goes on while processes die: scans of the lab and runs of no-op jobs beside them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import structlog

from runlane.cli.errors import CommandError
from runlane.cli.lab_scan import start_scan
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from tests.e2e.installation import AWAY, Installation

log = structlog.get_logger(__name__)

NOOP_TARGETS: Final = 120
RETRY_S: Final = 0.2
Start = Callable[[], Awaitable[UUID]]

_NOOP: Final = parse_definition(
    {
        "name": "chaos",
        "jobs": {
            "first": {"run": "noop", "config": {"sleep_ms": 400, "records": 3}},
            "second": {"run": "noop", "needs": ["first"], "config": {"sleep_ms": 100}},
        },
    }
)


@dataclass
class Load:
    """Keeps one scan and one no-op run going until `stop` is set."""

    installation: Installation
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    scans: list[UUID] = field(default_factory=list)
    noops: list[UUID] = field(default_factory=list)

    @property
    def runs(self) -> list[UUID]:
        """Every run that was started."""
        return self.scans + self.noops

    async def run(self) -> None:
        """Returns when `stop` is set and every run that was started has closed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._one_after_another(self.scans, self._start_scan))
            group.create_task(self.run_noops())

    async def run_noops(self) -> None:
        """The no-op runs alone."""
        targets = await self._noop_targets()
        await self._one_after_another(self.noops, lambda: self._start_noop(targets))

    async def _one_after_another(self, started: list[UUID], start: Start) -> None:
        while not self.stop.is_set():
            try:
                run_id = await start()
            except (*AWAY, CommandError) as error:
                log.info("chaos_start_failed", error=type(error).__name__)
                await asyncio.sleep(RETRY_S)
                continue
            started.append(run_id)
            await self.installation.wait_closed(run_id, limit_s=None)  # the storm bounds it

    async def _start_scan(self) -> UUID:
        installation = self.installation
        name = f"scan {len(self.scans)}"
        return UUID(await asyncio.to_thread(start_scan, installation.api, installation.lab, name=name))

    async def _start_noop(self, targets: list[UUID]) -> UUID:
        workspace_id = self.installation.platform.workspace_id
        request = StartRun(workspace_id, _NOOP, targets, f"noop {len(self.noops)}", kind="bench")
        async with self.installation.pool.acquire() as conn, conn.transaction():
            return (await start_run(conn, request)).run_id

    async def _noop_targets(self) -> list[UUID]:
        rows = await self.installation.pool.fetch(
            """INSERT INTO targets (workspace_id, kind, value)
               SELECT $1, 'domain', 'chaos-' || n || '.test' FROM generate_series(1, $2) n RETURNING id""",
            self.installation.platform.workspace_id,
            NOOP_TARGETS,
        )
        return [row["id"] for row in rows]
