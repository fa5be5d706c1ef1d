"""Errors: one form for all of them, whoever raises them, and nothing of the inside."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio
from fastapi import FastAPI

from runlane.db.pool import Pool
from runlane.errors import ImpossibleTransition
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem, open_api, served

pytestmark = pytest.mark.integration

TEN_MB = 10_000_000


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ApiWorld]:
    async with open_api(settings, pool) as opened:
        yield opened


async def test_health_needs_no_key_and_tells_nothing(world: ApiWorld) -> None:
    async with world.anybody() as http:
        for path in ("/healthz", "/readyz"):
            answer = await http.get(path)

            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_ready_answers_503_while_the_database_is_away(world: ApiWorld) -> None:
    world.app.state.resources.system_pool.terminate()

    async with world.anybody() as http:
        answer = await http.get("/readyz")
        alive = await http.get("/healthz")

    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})
    assert alive.status_code == 200


async def test_unknown_path_and_method_are_problems(caller: Caller) -> None:
    assert_problem(await caller.http.get("/v1/nothing"), 404, "not_found")
    answer = await caller.http.delete("/v1/targets")
    assert_problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"]


async def test_unexpected_error_says_nothing_of_the_inside(world: ApiWorld, caller: Caller) -> None:
    def fail() -> None:
        raise ZeroDivisionError("secret inside")

    def defect() -> None:
        raise ImpossibleTransition("secret inside")

    world.app.add_api_route("/fail", fail)
    world.app.add_api_route("/defect", defect)

    for path in ("/fail", "/defect"):
        answer = await caller.http.get(path)
        assert_problem(answer, 500, "internal")
        assert "secret" not in answer.text


async def test_lost_database_is_503_with_retry_after(world: ApiWorld, caller: Caller) -> None:
    world.app.state.resources.system_pool.terminate()

    answer = await caller.http.get("/v1/targets")

    assert_problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"]


async def test_request_id_of_the_caller_is_kept_and_a_strange_one_is_not(caller: Caller) -> None:
    kept = await caller.http.get("/v1/targets", headers={"X-Request-Id": "abc-12345"})
    strange = await caller.http.get("/v1/nothing", headers={"X-Request-Id": "a b<script>"})

    assert kept.headers["x-request-id"] == "abc-12345"
    assert strange.json()["request_id"] == strange.headers["x-request-id"] != "a b<script>"


async def _send(app: FastAPI, key: str, content: bytes | AsyncIterator[bytes]) -> httpx2.Response:
    async with served(app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as http:
        headers = {"Authorization": f"Bearer {key}", "content-type": "application/json"}
        answer = await http.post("/v1/targets", content=content, headers=headers)
        # The connection is still good: nothing of the refused body is taken for a request.
        after = await http.get("/healthz")
        assert after.status_code == 200
        return answer


async def test_body_of_ten_megabytes_is_refused_by_its_announced_length(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    answer = await _send(world.app, caller.key, b'{"value":"' + b"a" * TEN_MB + b'"}')

    assert_problem(answer, 413, "body.too_large")
    assert await pool.fetchval("SELECT count(*) FROM targets") == 0


async def test_body_of_ten_megabytes_without_a_length_is_refused_as_it_comes(
    world: ApiWorld, caller: Caller
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(TEN_MB // 100_000):
            yield b"a" * 100_000
            await asyncio.sleep(0)

    answer = await _send(world.app, caller.key, pieces())

    assert_problem(answer, 413, "body.too_large")


async def test_body_at_the_limit_reaches_the_route(world: ApiWorld, caller: Caller) -> None:
    limit = world.settings.body_limit_bytes
    body = b'{"value":"' + b"a" * (limit - 12) + b'"}'
    assert len(body) == limit

    answer = await _send(world.app, caller.key, body)

    assert_problem(answer, 422, "request.invalid")
