"""The API in this process on a database of the test's own, and callers with keys."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import httpx2
import uvicorn
from fastapi import FastAPI

from api.app import create_app
from runlane.db.keys import NewKey, check_pepper, create_key
from runlane.db.pool import Pool
from runlane.db.workspaces import create_workspace
from runlane.settings import Settings
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Caller:
    """A client with one key of one workspace."""

    http: httpx2.AsyncClient
    workspace_id: UUID
    key: str


@dataclass(frozen=True, slots=True)
class ApiWorld:
    """A running API."""

    app: FastAPI
    settings: Settings
    pool: Pool

    @asynccontextmanager
    async def caller(
        self, name: str, scopes: Sequence[str] = ("*",), networks: Sequence[str] = ("127.0.0.0/8",)
    ) -> AsyncIterator[Caller]:
        """A caller of a new workspace."""
        async with self.pool.acquire() as conn, conn.transaction():
            workspace_id = await create_workspace(conn, name, networks)
        async with self.caller_of(workspace_id, scopes) as caller:
            yield caller

    @asynccontextmanager
    async def caller_of(self, workspace_id: UUID, scopes: Sequence[str] = ("*",)) -> AsyncIterator[Caller]:
        """Another caller of a workspace."""
        pepper = check_pepper(self.settings.key_pepper.get_secret_value())
        async with self.pool.acquire() as conn, conn.transaction():
            key = await create_key(conn, NewKey("test", workspace_id, scopes), pepper)
        async with self.anybody(key.plaintext) as http:
            yield Caller(http, workspace_id, key.plaintext)

    @asynccontextmanager
    async def anybody(self, key: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        """A client with this very key, or none."""
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://api", headers=headers) as http:
            yield http

    async def add_target(self, caller: Caller, value: str = "lab.test") -> str:
        """Adds a target; returns its id."""
        answer = await caller.http.post("/v1/targets", json={"value": value})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def start_run(self, caller: Caller, target: str) -> str:
        """Starts a discovery; returns the run's id."""
        body = {"definition": "domain_discovery", "targets": [target]}
        answer = await caller.http.post("/v1/runs", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["run_id"])


@asynccontextmanager
async def open_api(settings: Settings, pool: Pool) -> AsyncIterator[ApiWorld]:
    """Opens the application; Temporal is away unless the settings name one."""
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        yield ApiWorld(app, settings, pool)


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """Serves an application whose lifespan is open on a free port; gives its URL."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    # not `serve`: it would take the signals of the test process
    serving = asyncio.create_task(server._serve())
    try:
        await until(lambda: server.started or serving.done())
        assert server.started, serving.result()
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


def assert_problem(answer: httpx2.Response, status: int, code: str) -> dict[str, object]:
    """Checks that an answer is a problem of this status and code; returns it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = answer.json()
    assert problem["code"] == code, problem
    assert problem["status"] == status
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    return problem
