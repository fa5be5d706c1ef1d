"""Events, dead letters and lanes over HTTP and on the command line: what is seen by whom, what it costs."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import httpx2
import pytest
from redis.asyncio import Redis

from lanes.runner import run_lanes
from runlane.db import event_lists
from runlane.db.keys import NewKey, Scope, check_pepper, create_key
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem, served
from tests.integration.event_bus import cancelled, created, produce
from tests.integration.test_cli_api import Terminal
from tests.waiting import until

pytestmark = pytest.mark.integration

LETTER = """
INSERT INTO dead_letters (workspace_id, lane, event_id, bus_seq, type, subject, fields, attempts, error,
                          first_failed_at, created_at)
SELECT $1, $2, gen_random_uuid(), n, $3, 'job/' || n, '{"id": "x"}', 5, 'ValueError: no', now(),
       now() - n * interval '1 minute'
FROM generate_series(1, $4::int) n
"""


@asynccontextmanager
async def platform(world: ApiWorld) -> AsyncIterator[httpx2.AsyncClient]:
    pepper = check_pepper(world.settings.key_pepper.get_secret_value())
    async with world.pool.acquire() as conn, conn.transaction():
        key = await create_key(conn, NewKey("ops", None, [Scope.PLATFORM_ADMIN]), pepper)
    async with world.anybody(key.plaintext) as http:
        yield http


async def publish(pool: Pool) -> int:
    """Gives every event its place, as the relay would; answers the newest."""
    await pool.execute(
        """WITH numbered AS (
             SELECT id, row_number() OVER (ORDER BY id) AS n FROM outbox WHERE bus_seq IS NULL)
           UPDATE outbox o SET bus_seq = n + (SELECT last_seq FROM bus_state) FROM numbered
           WHERE numbered.id = o.id"""
    )
    newest: int = await pool.fetchval(
        "UPDATE bus_state SET last_seq = (SELECT max(bus_seq) FROM outbox),"
        " published_seq = (SELECT max(bus_seq) FROM outbox) RETURNING last_seq"
    )
    return newest


async def test_letters_are_listed_redriven_once_and_purged_by_their_workspace_only(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await pool.execute(LETTER, caller.workspace_id, "audit", "job.failed", 3)
    await pool.execute(LETTER, caller.workspace_id, "projection", "job.created", 2)

    page = (await caller.http.get("/v1/dead-letters", params={"limit": 2, "lane": "audit"})).json()
    rest = (await caller.http.get("/v1/dead-letters", params={"lane": "audit", "after": page["next"]})).json()
    shown = await caller.http.get(f"/v1/dead-letters/{page['items'][0]['id']}")
    async with world.caller("theirs") as theirs:
        assert (await theirs.http.get("/v1/dead-letters")).json()["items"] == []
        foreign = {"ids": [page["items"][0]["id"]]}
        assert (await theirs.http.post("/v1/dead-letters/redrive", json=foreign)).json() == {"letters": 0}
        assert (await theirs.http.post("/v1/dead-letters/purge", json=foreign)).json() == {"letters": 0}
    body = {"lane": "audit", "reason": "mended"}
    asked = [(await caller.http.post("/v1/dead-letters/redrive", json=body)).json() for _ in range(2)]
    purged = await caller.http.post("/v1/dead-letters/purge", json={"type": "job.created"})
    left = (await caller.http.get("/v1/dead-letters")).json()["items"]

    assert [letter["sequence"] for letter in (*page["items"], *rest["items"])] == [1, 2, 3]
    assert shown.json()["fields"] == {"id": "x"}
    assert asked == [{"letters": 3}, {"letters": 0}]
    assert purged.json() == {"letters": 2}
    assert {letter["status"] for letter in left} == {"asked"}
    assert_problem(await caller.http.post("/v1/dead-letters/purge", json={}), 422, "filter.empty")
    acts = await pool.fetch("SELECT data ->> 'action' AS action FROM outbox WHERE data ? 'action'")
    assert [row["action"] for row in acts] == ["dead_letters.redrive", "dead_letters.purge"]


async def test_events_are_found_by_type_subject_and_time_and_by_their_workspace_only(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    ours = [created(caller.workspace_id) for _ in range(3)] + [cancelled(caller.workspace_id)]
    await produce(pool, ours)
    await publish(pool)

    def got(answer: httpx2.Response) -> list[str]:
        assert answer.status_code == 200, answer.text
        return [each["event_id"] for each in answer.json()["items"]]

    newest_first = [str(event.id) for event in reversed(ours)]
    first = await caller.http.get("/v1/events", params={"type": "job.created", "limit": 2})
    rest = await caller.http.get("/v1/events", params={"type": "job.created", "after": first.json()["next"]})
    about = await caller.http.get("/v1/events", params={"subject": ours[3].subject})
    late = await caller.http.get("/v1/events", params={"since": "2100-01-01T00:00:00Z"})
    one = await caller.http.get(f"/v1/events/{about.json()['items'][0]['sequence']}")
    async with world.caller("theirs") as theirs, platform(world) as ops:
        hidden = got(await theirs.http.get("/v1/events", params={"type": "job.created"}))
        refused = await theirs.http.get(f"/v1/events/{one.json()['sequence']}")
        where = {"workspace": str(caller.workspace_id)}
        everywhere = got(await ops.get("/v1/platform/events", params=where))

    assert got(first) + got(rest) == newest_first[1:]
    assert got(about) == newest_first[:1]
    assert got(late) == []
    assert one.json()["data"]["job_id"] == str(ours[3].data["job_id"])
    assert hidden == []
    assert_problem(refused, 404, "event.not_found")
    assert everywhere[:4] == newest_first
    assert_problem(await caller.http.get("/v1/events", params={"after": "x"}), 422, "cursor.invalid")
    assert_problem(await caller.http.get("/v1/platform/events"), 403, "key.scope")


async def test_events_that_have_left_the_outbox_are_read_from_the_audit_trail(
    caller: Caller, pool: Pool
) -> None:
    await pool.execute(
        """INSERT INTO audit_events (workspace_id, event_id, bus_seq, type, subject, severity, actor_id, data,
                                     occurred_at)
           SELECT $1, gen_random_uuid(), n, 'job.cancelled', 'job/' || n, 'info', 'me', '{}', now()
           FROM generate_series(1, 4) n""",
        caller.workspace_id,
    )
    await pool.execute("UPDATE bus_state SET last_seq = 4, published_seq = 4, pruned_seq = 3")
    await produce(pool, [created(caller.workspace_id)])
    newest = await publish(pool)

    found = (await caller.http.get("/v1/events")).json()

    assert found["whole_after"] == 3
    kept = [(each["sequence"], each["kept_in"]) for each in found["items"]]
    assert kept[0] == (newest, "outbox")
    assert kept[-3:] == [(3, "audit"), (2, "audit"), (1, "audit")]
    assert (4, "audit") not in kept
    assert found["items"][-1]["attributes"] == {"actorid": "me"}


async def test_page_of_events_costs_no_more_when_others_have_many(
    caller: Caller, pool: Pool, settings: Settings
) -> None:
    await pool.execute(
        """INSERT INTO outbox (workspace_id, event_id, type, subject, data, bus_seq)
           SELECT CASE WHEN n % 100 = 0 THEN $1::uuid ELSE $2 END, gen_random_uuid(), 'job.created', 'job/x',
                  '{}', n
           FROM generate_series(1, 20000) n
        """,
        caller.workspace_id,
        uuid4(),
    )
    await pool.execute(
        """INSERT INTO audit_events (workspace_id, event_id, bus_seq, type, subject, severity, data,
                                     occurred_at)
           SELECT workspace_id, event_id, bus_seq, type, subject, 'info', data, occurred_at FROM outbox
           WHERE bus_seq IS NOT NULL"""
    )
    owner = await asyncpg.connect(settings.database_url)
    await owner.execute("ANALYZE outbox; ANALYZE audit_events")
    await owner.close()

    async def read(statement: str, workspace_id: UUID | None, cursor: int) -> int:
        (row,) = await pool.fetch(
            f"EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF, FORMAT JSON) {statement}",
            workspace_id, None, None, None, None, cursor, 51,
        )  # fmt: skip
        return most_rows(row[0][0]["Plan"])

    for cursor in (15_000, 20_001):
        assert await read(event_lists.LIST, caller.workspace_id, cursor) <= 200
        assert await read(event_lists.LIST_ALL, None, cursor) <= 200


def most_rows(plan: dict[str, object]) -> int:
    """The most rows that a node has read."""
    children = plan.get("Plans", [])
    assert isinstance(children, list)
    own = sum(int(str(plan.get(name, 0)).split(".")[0]) for name in ("Actual Rows", "Rows Removed by Filter"))
    return max([own, *(most_rows(child) for child in children)])


async def test_lanes_tell_how_they_fare_to_the_platform_and_to_a_scraper(
    world: ApiWorld, caller: Caller, pool: Pool, redis: Redis, settings: Settings, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    stop = asyncio.Event()
    process = asyncio.create_task(run_lanes(settings.model_copy(update={"lanes_metrics_port": port}), stop))
    await produce(pool, [cancelled(caller.workspace_id), created(caller.workspace_id)])

    async with platform(world) as ops, httpx2.AsyncClient() as scraper:

        async def audit() -> dict[str, object]:
            lanes = (await ops.get("/v1/platform/lanes")).json()["lanes"]
            return next((lane for lane in lanes if lane["lane"] == "audit"), {})

        async def has_reported() -> bool:
            found = await audit()
            return bool(found) and found["lag_events"] == 0 and int(str(found["acked"])) > 0

        await until(has_reported)
        status = await audit()
        theirs = await scraper.get(f"http://127.0.0.1:{port}/metrics")
        missing = await scraper.get(f"http://127.0.0.1:{port}/other")
        ours = await ops.get("/v1/platform/metrics")
    stop.set()
    await process

    assert (status["health"], status["lost"], status["dead_letters"]) == ("ok", 0, 0)
    assert int(str(status["skipped"])) >= 1
    assert ours.headers["content-type"].startswith("text/plain; version=0.0.4")
    for text in (ours.text, theirs.text):
        assert 'bridge_lane_up{lane="audit"} 1' in text
        assert 'bridge_lane_lag_events{lane="audit"} 0' in text
    assert 'bridge_handler_seconds_count{lane="audit"} ' in theirs.text
    assert "bridge_retention_seconds " in theirs.text
    assert missing.status_code == 404
    assert_problem(await caller.http.get("/v1/platform/lanes"), 403, "key.scope")
    assert_problem(await caller.http.get("/v1/platform/metrics"), 403, "key.scope")


async def test_events_letters_and_lanes_are_shown_on_the_command_line(
    world: ApiWorld, caller: Caller, pool: Pool, tmp_path: Path
) -> None:
    await pool.execute(LETTER, caller.workspace_id, "audit", "job.failed", 2)
    newest = await publish(pool)

    async with served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        listed, shown, letters, redriven, refused = await asyncio.gather(
            terminal.run("event", "list", "--json"),
            terminal.run("event", "show", str(newest), "--json"),
            terminal.run("dlq", "list"),
            terminal.run("dlq", "redrive", "--lane", "audit", "--json"),
            terminal.run("lane", "status"),
        )

    assert json.loads(listed.out)["items"][0]["sequence"] == newest
    assert json.loads(shown.out)["sequence"] == newest
    assert letters.out.count("ValueError: no") == 2
    assert json.loads(redriven.out) == {"letters": 2}
    assert "key.scope" in refused.err
