"""Work that goes on while processes die: scans of the lab, runs of no-op jobs, and jobs in containers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import structlog

from runlane.cli.client import Json
from runlane.cli.errors import CommandError
from runlane.cli.lab_scan import DEFINITION, target_id
from runlane.db.definitions import read_definition
from runlane.db.starting import StartRun, start_run
from runlane.errors import Refused
from tests.chaos.containers import Containers
from tests.e2e.installation import AWAY, Installation

log = structlog.get_logger(__name__)

NOOP: Final = "noop"
"""Tag of the targets of no-op runs."""

ACTED: Final = "acted"
"""Kind of the runs that people cancel and do again; tag of their targets."""

TARGETS: Final[Mapping[str, int]] = {NOOP: 120, ACTED: 24, "echo": 4}
"""How many there are, by tag."""

SECRET: Final = "chaos"
"""Sent to the lab's web services with each probe."""

PORTS: Final = "22,2222,8080"
RETRY_S: Final = 0.2
Start = Callable[[], Awaitable[UUID]]

_ADD_TARGETS: Final = """
WITH there AS (
  SELECT id, value FROM targets WHERE workspace_id = $1 AND value = ANY ($3) AND deleted_at IS NULL
), added AS (
  INSERT INTO targets (workspace_id, kind, value, tags)
  SELECT $1, $2, value, $4 FROM unnest($3::text[]) AS wanted (value)
  WHERE value NOT IN (SELECT value FROM there)
  RETURNING id
)
SELECT id FROM there UNION ALL SELECT id FROM added
"""

_NOOP: Final = {
    "name": "chaos",
    "jobs": {
        "first": {"run": "noop", "config": {"sleep_ms": 400, "records": 3}},
        "second": {"run": "noop", "needs": ["first"], "config": {"sleep_ms": 100}},
    },
}
_ACTED: Final = {
    "name": "acted",
    "jobs": {
        "first": {"run": "noop", "config": {"sleep_ms": 2000}},
        "second": {"run": "noop", "needs": ["first"], "config": {"sleep_ms": 1000}},
    },
}
"""Slow enough for people to be in the middle of it."""

_ECHO: Final = {"name": "echo", "jobs": {"only": {"run": "echo", "config": {"linger_s": 1}}}}
_NMAP: Final = {"name": "nmap", "jobs": {"only": {"run": "nmap-container", "config": {"ports": PORTS}}}}


@dataclass
class Load:
    """Keeps one run of each sort going until `stop` is set."""

    installation: Installation
    containers: Containers | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    scans: list[UUID] = field(default_factory=list)
    others: list[UUID] = field(default_factory=list)
    nmaps: list[UUID] = field(default_factory=list)

    @property
    def runs(self) -> list[UUID]:
        """Every run that was started here."""
        return self.scans + self.others + self.nmaps

    async def run(self) -> None:
        """Returns when `stop` is set and every run that was started has closed.

        Connectors and the secret of the scans are there already.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._one_after_another(self.scans, self._start_scan))
            group.create_task(self.run_noops())
            group.create_task(self._run_acted())
            if self.containers is not None:
                group.create_task(self._run_echoes())
                if "nmap-container" in {each["slug"] for each in self.containers.manifests()}:
                    group.create_task(self._run_nmaps(self.containers.lab.address))

    async def run_noops(self) -> None:
        """The no-op runs alone."""
        targets = await self._targets("domain", target_names(NOOP), [NOOP])
        await self._one_after_another(self.others, lambda: self._start(_NOOP, targets))

    async def _run_acted(self) -> None:
        targets = await self._targets("domain", target_names(ACTED), [ACTED])
        await self._one_after_another(self.others, lambda: self._start(_ACTED, targets, ACTED))

    async def _run_echoes(self) -> None:
        targets = await self._targets("domain", target_names("echo"), [])
        await self._one_after_another(self.others, lambda: self._start(_ECHO, targets))

    async def _run_nmaps(self, address: str) -> None:
        targets = await self._targets("ip", [address], [])
        await self._one_after_another(self.nmaps, lambda: self._start(_NMAP, targets))

    async def _one_after_another(self, started: list[UUID], start: Start) -> None:
        while not self.stop.is_set():
            try:
                run_id = await start()
            except (*AWAY, CommandError, Refused) as error:
                log.info("chaos_start_failed", error=type(error).__name__)
                await asyncio.sleep(RETRY_S)
                continue
            started.append(run_id)
            await self.installation.wait_closed(run_id, limit_s=None)  # the storm bounds it

    async def _start_scan(self) -> UUID:
        return UUID(await asyncio.to_thread(self._post_scan))

    def _post_scan(self) -> str:
        api, manifest = self.installation.api, self.installation.lab.manifest
        config: Json = {
            "*": {"resolver": self.installation.lab.resolver, "allow": list(manifest.networks)},
            "ports": {"ports": manifest.port_list},
            "http": {"headers": {"X-Chaos": {"secret_ref": SECRET}}},
            "findings": {"default_logins": True},
        }
        targets = [target_id(api, manifest)]
        body: Json = {"definition": DEFINITION, "targets": targets, "name": "scan", "config": config}
        return str(api.post("/v1/runs", body, once=True)["run_id"])

    async def _start(self, source: Mapping[str, object], targets: list[UUID], kind: str = "bench") -> UUID:
        workspace_id = self.installation.platform.workspace_id
        async with self.installation.pool.acquire() as conn, conn.transaction():
            definition = await read_definition(conn, workspace_id, dict(source))
            request = StartRun(workspace_id, definition, targets, f"{definition.name} {kind}", kind=kind)
            return (await start_run(conn, request)).run_id

    async def _targets(self, kind: str, values: Sequence[str], tags: Sequence[str]) -> list[UUID]:
        arguments = (self.installation.platform.workspace_id, kind, list(values), list(tags))
        while True:
            try:
                rows = await self.installation.pool.fetch(_ADD_TARGETS, *arguments)
            except AWAY:
                await asyncio.sleep(RETRY_S)
                continue
            return [row["id"] for row in rows]


def target_names(tag: str) -> list[str]:
    """The targets that have a tag, as they are spelt."""
    return [f"{tag}-{number}.test" for number in range(1, TARGETS[tag] + 1)]
