"""Who asks is settled first: without a credential nothing of a body counts, and none of it is read."""

import json
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import httpx2
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute
from starlette.types import Message

from api.routes import worker
from runlane.db.pool import Pool
from runlane.db.workers import Home, Life, enrol
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem, open_api, served

pytestmark = pytest.mark.integration

JSON = {"Content-Type": "application/json"}
TEN_MB = 10_000_000
BODIES = {"malformed": b'{"a":', "of another form": b"[]", "huge": b"[" * TEN_MB, "none": b""}


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ApiWorld]:
    async with open_api(settings, pool) as opened:
        yield opened


@pytest_asyncio.fixture
async def worker_token(world: ApiWorld, caller: Caller, pool: Pool) -> str:
    life = Life("host", ["probe"], {"probe": 2}, "1", 1, uuid4())
    async with pool.acquire() as conn:
        _, token = await enrol(conn, Home(caller.workspace_id), life, world.app.state.resources.pepper)
    return token


def routes_of(world: ApiWorld) -> Iterator[tuple[str, str]]:
    """Method and path of every route that wants a credential."""
    for path, methods in world.app.openapi()["paths"].items():
        if path.startswith("/v1/"):
            for method in methods:
                yield method.upper(), path.replace("{", "").replace("}", "")
    for route in worker.router.routes:
        assert isinstance(route, APIRoute)
        for method in route.methods or ():
            yield method, f"/v1{route.path}"


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_any_body_without_a_credential_is_401_on_every_route(world: ApiWorld, body: bytes) -> None:
    routes = list(routes_of(world))
    assert ("POST", "/v1/worker/results") in routes
    assert ("POST", "/v1/runs") in routes

    async with world.anybody() as http:
        for method, path in routes:
            answer = await http.request(method, path, content=body, headers=JSON)

            code = "worker.token" if path.startswith("/v1/worker/") else "key.invalid"
            assert_problem(answer, 401, code)


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/worker/join", "/v1/worker/results", "/v1/nothing"])
@pytest.mark.parametrize("credential", [None, b"Bearer rl_wrong", b"Bearer rlw_wrong"])
async def test_no_byte_of_a_body_is_read_without_a_valid_credential(
    world: ApiWorld, path: str, credential: bytes | None
) -> None:
    async def receive() -> Message:
        raise AssertionError("the body is asked for")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-length", str(TEN_MB).encode())]
    if credential is not None:
        headers.append((b"authorization", credential))
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
    }

    await world.app(scope, receive, send)

    assert sent[0]["status"] == 401
    assert json.loads(sent[1]["body"])["status"] == 401


async def test_connection_is_good_after_a_huge_body_without_a_credential(world: ApiWorld) -> None:
    async with served(world.app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as http:
        answer = await http.post("/v1/worker/results", content=BODIES["huge"], headers=JSON)
        after = await http.get("/healthz")

    assert_problem(answer, 401, "worker.token")
    assert after.status_code == 200


async def test_key_opens_no_worker_route_and_a_worker_token_no_other(
    world: ApiWorld, caller: Caller, worker_token: str
) -> None:
    assert_problem(await caller.http.post("/v1/worker/leave"), 401, "worker.token")

    async with world.anybody(worker_token) as http:
        assert_problem(await http.get("/v1/targets"), 401, "key.invalid")


async def test_key_without_the_scope_to_enrol_is_told_so_whatever_the_body(caller: Caller) -> None:
    answer = await caller.http.post("/v1/worker/join", content=BODIES["malformed"])

    assert_problem(answer, 403, "key.scope")


async def test_stale_life_is_told_so_whatever_the_body(world: ApiWorld, worker_token: str) -> None:
    async with world.anybody(worker_token) as http:
        answer = await http.post("/v1/worker/claims", content=BODIES["malformed"])

    assert_problem(answer, 409, "worker.stale_incarnation")


async def test_database_that_is_away_at_the_gate_is_503(world: ApiWorld, caller: Caller) -> None:
    world.app.state.resources.system_pool.terminate()

    answer = await caller.http.post("/v1/targets", content=BODIES["malformed"], headers=JSON)

    assert_problem(answer, 503, "unavailable")


async def test_description_of_the_api_is_open(world: ApiWorld) -> None:
    async with world.anybody() as http:
        answer = await http.get("/v1/openapi.json")

    assert answer.status_code == 200
