"""Bodies that are JSON in name only, or that have more faults than anybody reads."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem, open_api

pytestmark = pytest.mark.integration

JSON = {"Content-Type": "application/json"}


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ApiWorld]:
    async with open_api(settings, pool) as opened:
        yield opened


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 500_000,
        b'{"a":' * 100_000,
        b'{"value": %b}' % (b"9" * 5_000),
        b'{"value": "\xff"}',
        b"\x1f\x8b\x08",
    ],
    ids=["nested lists", "nested objects", "long number", "not UTF-8", "compressed"],
)
async def test_body_that_cannot_be_read_is_called_so(caller: Caller, body: bytes) -> None:
    answer = await caller.http.post("/v1/targets", content=body, headers=JSON)

    problem = assert_problem(answer, 400, "request.malformed")
    assert problem["detail"] == "the body cannot be read as JSON"


@pytest.mark.parametrize("key", ["\\ud800", "\\u0000", "k" * 10_000])
async def test_odd_key_of_a_body_is_an_unknown_field(caller: Caller, key: str) -> None:
    body = f'{{"value": "a.test", "{key}": 1}}'.encode()

    answer = await caller.http.post("/v1/targets", content=body, headers=JSON)

    assert_problem(answer, 422, "request.invalid")


async def test_answer_lists_no_more_faults_than_somebody_reads(caller: Caller) -> None:
    definition = {"name": "test", "jobs": {}} | {f"k{number}": 1 for number in range(2_000)}
    body = {"definition": definition, "targets": ["01890000-0000-7000-8000-000000000000"]}

    answer = await caller.http.post("/v1/runs", json=body)

    fields = assert_problem(answer, 422, "definition.invalid")["fields"]
    assert isinstance(fields, dict)
    assert len(fields) == 50
