"""Keys: which are taken, what they may do, and what is kept of them."""

import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import pytest_asyncio

from runlane.db import keys
from runlane.db.keys import NewKey
from runlane.db.pool import Pool
from runlane.errors import Forbidden, Invalid, NotFound, Unauthenticated
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem, open_api

pytestmark = pytest.mark.integration

PEPPER = b"p" * 32

ROUTES = {
    "GET /v1/targets": keys.Scope.TARGETS_READ,
    "POST /v1/targets": keys.Scope.TARGETS_WRITE,
    "GET /v1/runs": keys.Scope.RUNS_READ,
    "POST /v1/runs": keys.Scope.RUNS_WRITE,
    "GET /v1/jobs": keys.Scope.JOBS_READ,
    "GET /v1/assets": keys.Scope.INVENTORY_READ,
    "GET /v1/services": keys.Scope.INVENTORY_READ,
    "GET /v1/urls": keys.Scope.INVENTORY_READ,
    "GET /v1/findings": keys.Scope.INVENTORY_READ,
    "GET /v1/workers": keys.Scope.WORKERS_READ,
}
BODIES: dict[str, dict[str, object]] = {
    "POST /v1/targets": {"value": "example.com"},
    "POST /v1/runs": {"definition": "domain_discovery", "targets": ["01a22b9e-c457-7bd8-b8fa-c14ea718b892"]},
}


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ApiWorld]:
    async with open_api(settings, pool) as opened:
        yield opened


NO_KEYS: list[dict[str, str]] = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer "},
    {"Authorization": "Bearer nonsense"},
    {"Authorization": "Bearer rl_abcdefghijkm_" + "A" * 43},
    {"Authorization": "Basic cmw6cmw="},
    {"X-Api-Key": "rl_abcdefghijkm_" + "A" * 43},
]


async def test_request_without_a_valid_key_is_401(world: ApiWorld) -> None:
    async with world.anybody() as http:
        for headers, route in itertools.product(NO_KEYS, ROUTES):
            method, _, path = route.partition(" ")
            answer = await http.request(method, path, headers=headers, json=BODIES.get(route))
            assert_problem(answer, 401, "key.invalid")
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_key_with_one_changed_letter_is_401(world: ApiWorld, caller: Caller) -> None:
    for place in (4, 20, -1):
        letters = list(caller.key)
        letters[place] = "b" if letters[place] != "b" else "c"
        async with world.anybody("".join(letters)) as http:
            assert_problem(await http.get("/v1/targets"), 401, "key.invalid")


async def test_expired_and_revoked_keys_and_those_of_a_deleted_workspace_are_401(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    for statement in (
        "UPDATE api_keys SET expires_at = clock_timestamp() - interval '1 second'",
        "UPDATE api_keys SET revoked_at = clock_timestamp(), expires_at = NULL",
    ):
        await pool.execute(statement)
        assert_problem(await caller.http.get("/v1/targets"), 401, "key.invalid")
    await pool.execute("UPDATE api_keys SET revoked_at = NULL")
    assert (await caller.http.get("/v1/targets")).status_code == 200
    await pool.execute("UPDATE workspaces SET deleted_at = clock_timestamp()")
    assert_problem(await caller.http.get("/v1/targets"), 401, "key.invalid")


async def test_each_route_takes_exactly_its_scope(world: ApiWorld, caller: Caller) -> None:
    for route, scope in ROUTES.items():
        method, _, path = route.partition(" ")
        others = [other for other in keys.Scope if other is not scope]

        async with world.caller_of(caller.workspace_id, others) as other:
            refused = await other.http.request(method, path, json=BODIES.get(route))
        async with world.caller_of(caller.workspace_id, [scope]) as right:
            allowed = await right.http.request(method, path, json=BODIES.get(route))

        assert_problem(refused, 403, "key.scope")
        assert allowed.status_code in (200, 201, 404)


async def test_platform_key_has_no_workspace_to_read(world: ApiWorld, pool: Pool) -> None:
    pepper = keys.check_pepper(world.settings.key_pepper.get_secret_value())
    async with pool.acquire() as conn, conn.transaction():
        key = await keys.create_key(conn, keys.NewKey("platform", None, ["*", "platform:admin"]), pepper)

    async with world.anybody(key.plaintext) as http:
        assert_problem(await http.get("/v1/targets"), 403, "key.scope")


async def test_star_carries_neither_enrolment_nor_platform() -> None:
    principal = keys.Principal(None, None, "", frozenset({"*"}))  # type: ignore[arg-type] # ids do not matter

    principal.require(keys.Scope.RUNS_WRITE)
    for scope in (keys.Scope.WORKER_JOIN, keys.Scope.PLATFORM_ADMIN):
        with pytest.raises(Forbidden):
            principal.require(scope)


async def test_nothing_of_the_key_is_stored_and_its_use_is_noted_once_a_minute(
    caller: Caller, pool: Pool
) -> None:
    secret = caller.key.split("_", 2)[2]

    await caller.http.get("/v1/targets")
    first = await pool.fetchval("SELECT last_used_at FROM api_keys")
    await caller.http.get("/v1/targets")
    second = await pool.fetchval("SELECT last_used_at FROM api_keys")
    await pool.execute("UPDATE api_keys SET last_used_at = last_used_at - interval '61 seconds'")
    await caller.http.get("/v1/targets")

    row = await pool.fetchrow("SELECT k::text AS text, last_used_at FROM api_keys k")
    assert row is not None
    assert secret not in row["text"]
    assert first == second
    assert datetime.now(UTC) - row["last_used_at"] < timedelta(seconds=30)


async def test_making_and_revoking_a_key_are_events(pool: Pool, caller: Caller) -> None:
    key_id = await pool.fetchval("SELECT id FROM api_keys")

    async with pool.acquire() as conn, conn.transaction():
        assert await keys.revoke_key(conn, key_id)
        assert not await keys.revoke_key(conn, key_id)

    rows = await pool.fetch(
        "SELECT type, data::text FROM outbox WHERE subject = $1 ORDER BY id", f"api_key/{key_id}"
    )
    assert [row["type"] for row in rows] == ["api_key.created", "api_key.revoked"]
    assert not any(caller.key in row["data"] for row in rows)


async def test_unknown_scope_is_refused(pool: Pool) -> None:
    async with pool.acquire() as conn, conn.transaction():
        with pytest.raises(Invalid, match="unknown scope"):
            await keys.create_key(conn, keys.NewKey("x", None, ["runs:everything"]), b"p" * 32)


def test_short_pepper_is_refused() -> None:
    with pytest.raises(Invalid, match="RUNLANE_KEY_PEPPER"):
        keys.check_pepper("short")


async def test_rotated_key_works_until_the_overlap_is_over_and_its_successor_after_it(
    pool: Pool, workspace_id: UUID
) -> None:
    expires_at = datetime.now(UTC) + timedelta(days=90)
    async with pool.acquire() as conn, conn.transaction():
        old = await keys.create_key(
            conn, NewKey("robot", workspace_id, ["runs:read", "jobs:read"], expires_at), PEPPER
        )
        new = await keys.rotate_key(conn, old.key_id, 3600, PEPPER)

        before = [await keys.authenticate(conn, each.plaintext, PEPPER) for each in (old, new)]
        await conn.execute("UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = $1", old.key_id)
        with pytest.raises(Unauthenticated):
            await keys.authenticate(conn, old.plaintext, PEPPER)
        with pytest.raises(NotFound):
            await keys.rotate_key(conn, old.key_id, 3600, PEPPER)
        listed = await keys.list_keys(conn)
        life = await conn.fetchval("SELECT expires_at - created_at FROM api_keys WHERE id = $1", new.key_id)

    assert before[0].scopes == before[1].scopes == {"runs:read", "jobs:read"}
    assert [row["id"] for row in listed] == [new.key_id]
    assert timedelta(days=89) < life < timedelta(days=91)
    published = await pool.fetch("SELECT type FROM outbox WHERE type LIKE '%api_key.%' ORDER BY id")
    assert [row["type"] for row in published] == [
        "api_key.created",
        "api_key.created",
        "workspace.api_key.rotated",
    ]
