"""Replacing processes one after another, and what callers of the API see meanwhile."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from uuid import uuid4

import httpx2

from runlane.cli.platform import PROCESSES
from runlane.stack.processes import ProcessSpec
from tests.e2e.installation import Installation, until
from tests.forwarding import forward

RETRYABLE = frozenset({409, 429, 503})
"""409: the same request is being answered elsewhere."""

TRY_S = 60.0
"""Longest that a caller tries the same request again."""

PAUSE_S = 0.05
UP_S = 90.0
"""Longest that a process takes to serve."""


@asynccontextmanager
async def balanced(port: int, backends: Sequence[int]) -> AsyncIterator[None]:
    """One address for several processes: a connection goes to the next of them that listens."""
    turn = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal turn
        turn += 1
        for offset in range(len(backends)):
            with suppress(OSError):
                await forward(reader, writer, "127.0.0.1", backends[(turn + offset) % len(backends)])
                return
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


@dataclass
class Callers:
    """Somebody who reads, and somebody who starts runs, one request after another until `stop` is set."""

    url: str
    key: str
    target: str
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    answers: Counter[int] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    """Answers that no retry would mend."""
    runs: set[str] = field(default_factory=set)
    started: int = 0

    async def run(self) -> None:
        """Returns when `stop` is set and the last request was answered."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read())
            group.create_task(self._start())

    async def _read(self) -> None:
        while not self.stop.is_set():
            await self._ask("GET", "/v1/runs?limit=5", None, {})
            await asyncio.sleep(PAUSE_S)

    async def _start(self) -> None:
        definition = {"name": "upgrade", "jobs": {"only": {"run": "noop", "config": {"sleep_ms": 300}}}}
        body = {"definition": definition, "targets": [self.target]}
        while not self.stop.is_set():
            answer = await self._ask("POST", "/v1/runs", body, {"Idempotency-Key": uuid4().hex})
            self.started += 1
            if answer is not None:
                self.runs.add(str(answer["run_id"]))
            await asyncio.sleep(PAUSE_S * 4)

    async def _ask(
        self, method: str, path: str, body: object, headers: dict[str, str]
    ) -> dict[str, object] | None:
        """The same request until it is answered: both kinds may be sent again."""
        headers = {"Authorization": f"Bearer {self.key}", **headers}
        async with asyncio.timeout(TRY_S):
            while True:
                try:
                    async with httpx2.AsyncClient(base_url=self.url, trust_env=False, timeout=10) as http:
                        answer = await http.request(method, path, json=body, headers=headers)
                except httpx2.TransportError:
                    self.answers[0] += 1
                else:
                    self.answers[answer.status_code] += 1
                    if answer.is_success:
                        found: dict[str, object] = answer.json()
                        return found
                    if (
                        answer.status_code not in RETRYABLE
                        and answer.json().get("code") != "idempotency.in_flight"
                    ):
                        self.refused.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
                        return None
                await asyncio.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Replaces the processes of an installation as `docs/upgrading.md` says."""

    installation: Installation

    async def beside(self, name: str, **env: str) -> None:
        """A new process starts, the old one is told to stop and replaced, and then the helper goes."""
        stack = self.installation.platform.stack
        helper = f"{name}-next"
        argv = (sys.executable, "-m", "runlane.cli", *PROCESSES[name])
        alone = await self._relays()
        await stack.start_process(ProcessSpec(helper, argv, env))
        await until(lambda: self._serves(helper, 1, alone), UP_S)
        await stack.restart(name)
        await until(lambda: self._serves(name, 2, alone), UP_S)
        await stack.stop_process(helper)

    async def _serves(self, name: str, times: int, alone: int) -> bool:
        """Whether the log of a process says so often that it serves; one that stands by is connected."""
        kind = name.removesuffix("-next")
        if kind == "lanes":
            return await self._relays() > alone
        path = self.installation.platform.stack.log_path(name)
        text = await asyncio.to_thread(path.read_text, errors="replace")
        return sum(all(word in line for word in STARTED[kind]) for line in text.splitlines()) >= times

    async def _relays(self) -> int:
        """Connections to the database of those who tell Temporal of commands: parts of `runlane lanes`."""
        relays: int = await self.installation.pool.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'runlane-commands'"
        )
        return relays


STARTED = {
    "core": ("worker_started", "worker=core"),
    "results": ("worker_started", "worker=results"),
    "api": ("Application startup complete",),
    "gateway": ("gateway_started",),
}
"""Words of the line that a process writes into its log when it serves."""
