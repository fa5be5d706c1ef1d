"""Targets: what is accepted, what is refused and why, and that a refusal leaves nothing behind."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem, open_api

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ApiWorld]:
    async with open_api(settings, pool) as opened:
        yield opened


@pytest_asyncio.fixture
async def caller(world: ApiWorld) -> AsyncIterator[Caller]:
    async with world.caller("ours", networks=["127.7.0.0/24"]) as opened:
        yield opened


async def test_add_normalises_the_target_and_says_so_on_the_bus(caller: Caller, pool: Pool) -> None:
    answer = await caller.http.post("/v1/targets", json={"value": "Example.COM."})

    assert answer.status_code == 201
    target = answer.json()
    assert (target["kind"], target["value"]) == ("domain", "example.com")
    event = await pool.fetchrow("SELECT * FROM outbox WHERE type = 'target.created'")
    assert event is not None
    assert event["workspace_id"] == caller.workspace_id
    assert event["data"] == {
        "target_id": target["id"], "kind": "domain", "value": "example.com", "network_id": None,
    }  # fmt: skip
    assert event["attributes"]["actortype"] == "api_key"


HOSTILE = [
    ("", "target.empty"),
    ("-oN/etc/cron.d/x", "target.option"),
    ("exa\0mple.com", "target.characters"),
    ("example.com\n", "target.characters"),
    ("http://example.com", "target.url"),
    ("user@example.com", "target.url"),
    ("example.com:80", "target.url"),
    ("localhost", "target.domain"),
    ("169.254.169.254", "target.address_refused"),
    ("::ffff:169.254.169.254", "target.address_refused"),
    ("10.0.0.1", "target.address_refused"),
    ("127.0.0.1", "target.address_refused"),
    ("192.168.0.0/24", "target.address_refused"),
    ("0.0.0.0", "target.address_refused"),  # noqa: S104
    ("8.0.0.0/8", "target.network_too_large"),
    ("a" * 300 + ".com", "target.too_long"),
]


async def test_hostile_target_is_refused_with_its_reason_and_leaves_nothing(
    caller: Caller, pool: Pool
) -> None:
    for value, code in HOSTILE:
        answer = await caller.http.post("/v1/targets", json={"value": value})

        problem = assert_problem(answer, 422, code)
        assert problem["fields"] == {"value": problem["detail"]}
    assert await pool.fetchval("SELECT count(*) FROM targets") == 0
    assert await pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'target.created'") == 0


async def test_network_that_the_workspace_allows_is_accepted(caller: Caller) -> None:
    assert (await caller.http.post("/v1/targets", json={"value": "127.7.0.9"})).status_code == 201
    assert (await caller.http.post("/v1/targets", json={"value": "127.7.0.0/28"})).status_code == 201


async def test_duplicate_target_is_a_conflict_in_whatever_spelling(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await world.add_target(caller, "example.com")

    answer = await caller.http.post("/v1/targets", json={"value": "EXAMPLE.com."})

    assert_problem(answer, 409, "target.duplicate")
    assert await pool.fetchval("SELECT count(*) FROM targets") == 1


MALFORMED: list[object] = [
    {},
    {"value": 7},
    {"value": None},
    {"value": "example.com", "more": 1},
    {"value": "x" * 2000},
    [],
    "example.com",
]


async def test_body_of_another_form_is_refused_with_the_place_of_the_fault(caller: Caller) -> None:
    for body in MALFORMED:
        answer = await caller.http.post("/v1/targets", json=body)

        assert assert_problem(answer, 422, "request.invalid")["fields"]


UNREADABLE = [b'{"value":', b"\xff\xfe\xfd", b'{"value":"\\ud800.com"}', b"[" * 100_000]


async def test_body_that_cannot_be_read_is_refused_without_our_insides(caller: Caller) -> None:
    for body in UNREADABLE:
        headers = {"content-type": "application/json"}
        answer = await caller.http.post("/v1/targets", content=body, headers=headers)

        assert answer.status_code in (400, 422)
        assert_problem(answer, answer.status_code, answer.json()["code"])
        assert "Traceback" not in answer.text


async def test_list_pages_through_every_target_once_in_order(world: ApiWorld, caller: Caller) -> None:
    for number in range(5):
        await world.add_target(caller, f"n{number}.example.com")

    seen: list[str] = []
    query: dict[str, str | int] = {"limit": 2, "sort": "value"}
    while True:
        page = (await caller.http.get("/v1/targets", params=query)).json()
        seen += [row["value"] for row in page["items"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]

    assert seen == [f"n{number}.example.com" for number in range(5)]


async def test_list_filters_by_value(world: ApiWorld, caller: Caller) -> None:
    await world.add_target(caller, "one.example.com")
    await world.add_target(caller, "two.example.com")

    page = (await caller.http.get("/v1/targets", params={"value": "two.example.com"})).json()

    assert [row["value"] for row in page["items"]] == ["two.example.com"]


STRANGE_QUERIES = [
    ("limit=0", "request.invalid"),
    ("limit=201", "request.invalid"),
    ("limit=x", "request.invalid"),
    ("colour=red", "request.invalid"),
    ("value=a%00b", "request.invalid"),
    ("sort=secret", "sort.unknown"),
    ("sort=--value", "sort.unknown"),
    ("after=nonsense", "cursor.invalid"),
    ("after=", "cursor.invalid"),
    ("after=W10", "cursor.invalid"),
    ("after=%C3%A4", "cursor.invalid"),
    ("after=WyItY3JlYXRlZF9hdCIsIHsiYSI6MX1d", "cursor.invalid"),
]


async def test_query_that_the_list_does_not_know_is_refused(caller: Caller) -> None:
    for query, code in STRANGE_QUERIES:
        assert_problem(await caller.http.get(f"/v1/targets?{query}"), 422, code)


async def test_cursor_of_another_order_is_refused(world: ApiWorld, caller: Caller) -> None:
    await world.add_target(caller, "one.example.com")
    await world.add_target(caller, "two.example.com")
    page = (await caller.http.get("/v1/targets", params={"limit": 1})).json()

    answer = await caller.http.get("/v1/targets", params={"after": page["next"], "sort": "value"})

    assert_problem(answer, 422, "cursor.invalid")
