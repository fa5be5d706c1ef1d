"""Replacing processes one after another, and what callers of the API see meanwhile."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

import httpx2

from runlane.cli.platform import PROCESSES
from runlane.stack.processes import ProcessSpec
from runlane.stack.services import check_listening
from tests.e2e.installation import Installation, until

RETRYABLE = frozenset({409, 429, 503})
"""409: the same request is being answered elsewhere."""

TRY_S = 20.0
"""Longest that a caller tries the same request again."""

PAUSE_S = 0.05


@asynccontextmanager
async def balanced(port: int, backends: Sequence[int]) -> AsyncIterator[None]:
    """One address for several processes: a connection goes to the next of them that listens."""
    turn = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal turn
        turn += 1
        for offset in range(len(backends)):
            with suppress(OSError):
                inner = await asyncio.open_connection(
                    "127.0.0.1", backends[(turn + offset) % len(backends)], limit=2**20
                )
                await asyncio.gather(_pipe(reader, inner[1]), _pipe(inner[0], writer))
                return
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


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
        argv = (sys.executable, "-m", "runlane.cli", *PROCESSES[name])
        port = env.get("RUNLANE_API_PORT") or env.get("RUNLANE_GATEWAY_PORT")
        ready = partial(check_listening, int(port)) if port else None
        before = await self._sessions(name)
        await stack.start_process(ProcessSpec(f"{name}-next", argv, env, ready=ready))

        async def is_there() -> bool:
            return await self._sessions(name) > before

        await until(is_there, 60)
        await self.in_place(name)
        await stack.stop_process(f"{name}-next")

    async def in_place(self, name: str) -> None:
        """The old process is told to stop, and a new one starts when it has."""
        await self.installation.platform.stack.restart(name)

    async def _sessions(self, name: str) -> int:
        """Connections to the database that processes of a kind have."""
        sessions: int = await self.installation.pool.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE $1", _PROGRAMS[name]
        )
        return sessions


_PROGRAMS = {
    "core": "runlane-core%",
    "results": "runlane-results%",
    "api": "runlane-api%",
    "lanes": "runlane-commands%",
    "gateway": "runlane-gateway%",
}
"""How the connections of a process are called."""
