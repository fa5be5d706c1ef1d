"""The live tail: from a tool's line on a scan host to whoever looks at the job, and to nobody else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import httpx2
import orjson
import pytest
import pytest_asyncio

from runlane import names
from runlane.db.keys import NewKey, create_key
from runlane.db.notices import listening
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.worker_host import claimed_host, joined_host
from tests.integration.worker_world import World, core_of, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration

Event = tuple[str, dict[str, object]]


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world, core_of(world.settings):
        yield world


async def _client(world: World, workspace_id: UUID) -> httpx2.AsyncClient:
    pepper = world.settings.key_pepper.get_secret_value().encode()
    async with world.pool.acquire() as conn:
        key = await create_key(conn, NewKey("looks", workspace_id, ["*"]), pepper)
    headers = {"Authorization": f"Bearer {key.plaintext}"}
    return httpx2.AsyncClient(base_url=world.settings.api_url, headers=headers, trust_env=False)


async def _follow(client: httpx2.AsyncClient, job_id: UUID, seen: list[Event]) -> None:
    async with client.stream("GET", f"/v1/jobs/{job_id}/tail", timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        name = ""
        async for line in response.aiter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                seen.append((name, orjson.loads(value)))


async def test_lines_of_a_running_job_reach_its_onlookers_until_it_ends(world: World) -> None:
    async with world.scan_worker(), await _client(world, world.workspace_id) as client:
        run_id = await world.start_run(1, {"records": 3, "linger_ms": 60_000})
        await until(lambda: world.has_status(run_id, "in_progress", 1))
        job_id = await world.pool.fetchval("SELECT id FROM jobs WHERE run_id = $1", run_id)
        early: list[Event] = []
        late: list[Event] = []

        first = asyncio.create_task(_follow(client, job_id, early))
        await until(lambda: len(early) >= 4)
        second = asyncio.create_task(_follow(client, job_id, late))  # gets what the worker remembers
        await until(lambda: len(late) >= 4)
        await client.post(f"/v1/runs/{run_id}/cancel")
        await asyncio.gather(first, second)

        lines = [("line", {"attempt": 1, "number": n, "text": f'{{"number":{n}}}'}) for n in range(3)]
        for seen in (early, late):
            assert [event for event in seen if event[0] == "line"] == lines
            assert seen[0] == ("state", {"status": "in_progress", "attempt": 1})
            assert seen[-1] == ("end", {"status": "cancelled"})


async def test_tail_of_a_job_of_others_is_404_and_of_an_ended_one_ends(world: World) -> None:
    theirs = await world.pool.fetchval("INSERT INTO workspaces (name) VALUES ('theirs') RETURNING id")
    run_id = await world.start_run(1)
    job_id = await world.pool.fetchval("SELECT id FROM jobs WHERE run_id = $1", run_id)
    async with await _client(world, world.workspace_id) as ours, await _client(world, theirs) as other:
        await ours.post(f"/v1/runs/{run_id}/cancel")
        answer = await other.get(f"/v1/jobs/{job_id}/tail")
        seen: list[Event] = []
        await _follow(ours, job_id, seen)

    assert (answer.status_code, answer.json()["code"]) == (404, "job.not_found")
    assert seen == [
        ("state", {"status": "cancelled", "attempt": 0}),
        ("end", {"status": "cancelled"}),
    ]


async def test_workspace_that_looks_at_too_many_jobs_is_refused(
    settings: Settings, pool: Pool, tmp_path: Path
) -> None:
    async with world_of(settings.model_copy(update={"tail_share": 1}), pool, tmp_path) as world:
        run_id = await world.start_run(1)
        job_id = await world.pool.fetchval("SELECT id FROM jobs WHERE run_id = $1", run_id)
        seen: list[Event] = []
        async with await _client(world, world.workspace_id) as client:
            first = asyncio.create_task(_follow(client, job_id, seen))
            await until(lambda: seen)
            refused = await client.get(f"/v1/jobs/{job_id}/tail")
            await client.post(f"/v1/runs/{run_id}/cancel")
            await first

    assert (refused.status_code, refused.json()["code"]) == (409, "tail.too_many")


async def test_lines_are_passed_on_without_credentials_and_from_the_jobs_worker_only(world: World) -> None:
    heard: list[dict[str, object]] = []
    token = "c2VjcmV0" * 8
    async with (
        claimed_host(world, 1) as (host, _, claimed),
        joined_host(world) as other,
        world.pool.acquire() as conn,
        listening(conn, names.TAILS_CHANNEL, lambda text: heard.append(orjson.loads(text or "{}"))),
    ):
        job = claimed.jobs[0]
        await other.api.tail(job.job_id, job.attempt, 0, ["from somebody else"])
        await host.api.tail(job.job_id, job.attempt + 1, 0, ["of another attempt"])
        await host.api.tail(
            job.job_id, job.attempt, 7, [f"key {token}", "\x1b[2J\x00", *["\u00fc" * 2_000] * 3]
        )
        await until(lambda: sum(len(list(_lines(each))) for each in heard) == 5)

    assert {each["job"] for each in heard} == {job.job_id}
    assert all(len(orjson.dumps(each)) < 8_000 for each in heard)  # the most that NOTIFY takes
    firsts = [each["first"] for each in heard]
    assert (firsts[0], firsts) == (7, sorted({int(str(first)) for first in firsts}))
    assert _lines(heard[0])[:2] == ["key ***", "\x1b[2J\N{REPLACEMENT CHARACTER}"]


def _lines(notice: dict[str, object]) -> list[object]:
    lines = notice["lines"]
    assert isinstance(lines, list)
    return lines
