"""The relay in good and bad times: every committed event is on the stream once, in steps of exactly one."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg
import pytest
from cloudevents.core.v1.event import CloudEvent
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from lanes.outages import is_transient
from runlane.db import outbox
from runlane.db.pool import Pool, open_pool
from runlane.errors import UnknownEvent
from runlane.events import Envelope
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from tests.conftest import Database
from tests.integration.event_bus import (
    are_published,
    cancelled,
    created,
    entries,
    produce,
    relay,
    running,
    sequences,
)
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.each_redis]


async def published(pool: Pool, redis: Redis, count: int) -> None:
    async def are_there() -> bool:
        return await redis.xlen("oasm:events") >= count and await are_published(pool)

    await until(are_there)


async def test_events_arrive_in_the_order_of_their_causes(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    jobs = [uuid4() for _ in range(150)]
    await produce(pool, [created(workspace_id, job) for job in jobs])
    await produce(pool, [cancelled(workspace_id, job) for job in jobs])

    async with running(relay(settings)):
        await published(pool, redis, 300)

    stream = await entries(redis)
    assert [int(fields[b"sequence"]) for fields in stream] == list(range(1, 301))
    assert [fields[b"type"] for fields in stream] == [b"job.created"] * 150 + [b"job.cancelled"] * 150
    assert [fields[b"subject"].decode() for fields in stream[:150]] == [f"job/{job}" for job in jobs]


async def test_an_entry_is_a_cloud_event(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    event = cancelled(workspace_id, reason="asked for")
    await produce(pool, [event])

    async with running(relay(settings)):
        await published(pool, redis, 1)

    (fields,) = await entries(redis)
    text = {name.decode(): value.decode() for name, value in fields.items()}
    data = text.pop("data")
    moment = datetime.fromisoformat(text["time"])
    CloudEvent({**text, "time": moment}, data)
    assert text["id"] == str(event.id)
    assert text["source"] == "oasm://core-api"
    assert text["specversion"] == "1.0"
    assert text["workspaceid"] == str(workspace_id)
    assert text["sequence"] == "00000000000000000001"
    assert text["datacontenttype"] == "application/json"
    assert text["time"].endswith("Z")
    assert abs((datetime.now(UTC) - moment).total_seconds()) < 60


async def test_what_is_rolled_back_is_never_published_and_leaves_no_hole(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    async with running(relay(settings)):
        async with pool.acquire() as conn:
            transaction = conn.transaction()
            await transaction.start()
            await outbox.insert(conn, [created(workspace_id)])
            await transaction.rollback()
        kept = created(workspace_id)
        await produce(pool, [kept])
        await published(pool, redis, 1)

    assert [fields[b"id"].decode() for fields in await entries(redis)] == [str(kept.id)]
    assert await sequences(redis) == [1]


async def test_a_transaction_that_commits_late_is_published_late(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    late, early = created(workspace_id), created(workspace_id)
    async with running(relay(settings)):
        async with pool.acquire() as conn, conn.transaction():
            await outbox.insert(conn, [late])
            await produce(pool, [early])
            await until(lambda: _is_on_stream(redis, early))
        await published(pool, redis, 2)

    assert [fields[b"id"].decode() for fields in await entries(redis)] == [str(early.id), str(late.id)]
    assert await sequences(redis) == [1, 2]


async def _is_on_stream(redis: Redis, event: Envelope) -> bool:
    return str(event.id).encode() in [fields[b"id"] for fields in await entries(redis)]


async def test_of_two_relays_one_leads_and_the_other_takes_over(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    async with running(relay(settings)) as first, running(relay(settings)):
        await produce(pool, [created(workspace_id) for _ in range(700)])
        await published(pool, redis, 700)
        assert await _leaders(pool) == 1
        await first.kill()
        await produce(pool, [created(workspace_id) for _ in range(700)])
        await published(pool, redis, 1400)
        assert await _leaders(pool) == 1

    assert await sequences(redis) == list(range(1, 1401))


async def _leaders(pool: Pool) -> int:
    found: int = await pool.fetchval(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND objid::bigint = hashtext('relay.leader')::bigint & 4294967295"
    )
    return found


async def test_a_relay_whose_connection_is_cut_goes_on(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    async with running(relay(settings)):
        for round_number in range(1, 4):
            await produce(pool, [created(workspace_id) for _ in range(120)])
            await published(pool, redis, 120 * round_number)
            await pool.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'runlane-relay' AND datname = current_database()"
            )

    assert await sequences(redis) == list(range(1, 361))


async def test_events_of_an_outage_of_the_stream_arrive_after_it(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, stack: Stack
) -> None:
    async with running(relay(settings)):
        await produce(pool, [created(workspace_id) for _ in range(100)])
        await published(pool, redis, 100)
        killed = stack.kill("valkey")
        await produce(pool, [created(workspace_id) for _ in range(100)])
        await stack.recovered("valkey", killed)
        await published(pool, redis, 200)

    assert await sequences(redis) == list(range(1, 201))


async def test_the_relay_makes_the_partitions_of_the_next_days(
    pool: Pool, redis: Redis, settings: Settings, database: Database
) -> None:
    async def partitions() -> int:
        count: int = await pool.fetchval(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass"
        )
        return count

    before = await partitions()
    owner = await asyncpg.connect(database.owner)
    last = await owner.fetchval(
        "SELECT max(inhrelid::regclass::text) FROM pg_inherits"
        " WHERE inhparent = 'outbox'::regclass AND inhrelid::regclass::text <> 'outbox_default'"
    )
    await owner.execute(f"DROP TABLE {last}")
    await owner.close()

    async def are_back() -> bool:
        return await partitions() == before

    async with running(relay(settings)):
        await until(are_back)


async def test_an_event_of_no_leaf_is_refused_when_it_is_written(pool: Pool, workspace_id: UUID) -> None:
    event = Envelope(uuid4(), "job.invented", workspace_id, "job/x", {})

    with pytest.raises(UnknownEvent, match=r"job\.invented"):
        await produce(pool, [event])
    assert not await pool.fetchval("SELECT count(*) FROM outbox")


async def test_the_api_role_writes_events_of_its_own_workspace_only(
    database: Database, workspace_id: UUID
) -> None:
    async with await open_pool(database.api, size=1) as api, api.acquire() as conn:
        await conn.execute("SELECT set_config('runlane.workspace', $1, false)", str(workspace_id))

        await outbox.insert(conn, [created(workspace_id)])
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await outbox.insert(conn, [created(uuid4())])


def test_only_faults_of_servers_are_transient() -> None:
    assert is_transient(asyncpg.InterfaceError("connection is closed"))
    assert is_transient(TimeoutError())
    assert is_transient(RedisConnectionError())
    assert not is_transient(asyncpg.DataError("bad argument"))
    assert not is_transient(ValueError())
