"""What the relay does when the stream or the database is not what it was: it fills the stream again."""

from uuid import UUID

import pytest
from redis.asyncio import Redis

from runlane import names
from runlane.db.event_counts import count_unpublished
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.event_bus import (
    are_published,
    created,
    entries,
    entry_ids,
    produce,
    relay,
    running,
    sequences,
)
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.each_redis]


async def publish(pool: Pool, settings: Settings, workspace_id: UUID, count: int) -> None:
    """Has `count` more events published, by a relay that is gone afterwards."""
    await produce(pool, [created(workspace_id) for _ in range(count)])
    async with running(relay(settings)):
        await until(lambda: are_published(pool))


async def place_lane(pool: Pool, last_seq: int, *, seconds_ago: int = 0, lane: str = "audit") -> None:
    """Says that a lane came that far and was alive so long ago."""
    await pool.execute(
        "INSERT INTO lane_checkpoints (lane, last_seq, live_at)"
        " VALUES ($1, $2, clock_timestamp() - make_interval(secs => $3))"
        " ON CONFLICT (lane) DO UPDATE SET last_seq = excluded.last_seq, live_at = excluded.live_at",
        lane,
        last_seq,
        seconds_ago,
    )


async def stream_ends(redis: Redis, last: int) -> None:
    async def has_it() -> bool:
        found = await sequences(redis)
        return bool(found) and found[-1] == last

    await until(has_it)


async def epoch(pool: Pool) -> int:
    number: int = await pool.fetchval("SELECT epoch FROM bus_state")
    return number


async def test_a_flushed_stream_begins_again_behind_the_slowest_live_lane(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 50)
    await place_lane(pool, 30)
    await place_lane(pool, 40, lane="other")
    async with running(relay(settings)):
        await redis.flushdb()
        await stream_ends(redis, 50)

    assert await sequences(redis) == list(range(31, 51))
    assert await epoch(pool) == 2
    assert await pool.fetchval("SELECT base_seq FROM bus_state") == 31


async def test_a_stream_lost_before_anybody_read_it_is_filled_from_the_start(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 50)
    await place_lane(pool, 0)
    await redis.delete(names.EVENT_STREAM)

    async with running(relay(settings)):
        await stream_ends(redis, 50)

    assert await sequences(redis) == list(range(1, 51))


async def test_a_flushed_stream_goes_on_at_the_next_number_when_all_was_handled(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 50)
    await place_lane(pool, 50)
    await redis.flushdb()

    async with running(relay(settings)):
        await produce(pool, [created(workspace_id)])
        await stream_ends(redis, 51)

    assert await sequences(redis) == [51]


async def test_a_lost_tail_is_sent_again_though_it_is_marked_as_published(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 120)
    ids_before = [fields[b"id"] for fields in await entries(redis)]
    async with running(relay(settings)):
        await redis.xdel(names.EVENT_STREAM, *(await entry_ids(redis))[-70:])
        await stream_ends(redis, 120)

    assert await sequences(redis) == list(range(1, 121))
    assert [fields[b"id"] for fields in await entries(redis)] == ids_before
    assert await epoch(pool) == 1


async def test_a_stream_ahead_of_a_restored_database_is_begun_anew(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 50)
    await pool.execute("DELETE FROM outbox WHERE bus_seq > 20")
    await pool.execute("UPDATE bus_state SET last_seq = 20")
    await place_lane(pool, 10)
    await produce(pool, [created(workspace_id)])

    async with running(relay(settings)):
        await stream_ends(redis, 21)

    assert await sequences(redis) == list(range(11, 22))


async def test_a_stream_of_another_history_is_begun_anew(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 50)
    await pool.execute("UPDATE outbox SET event_id = uuidv7()")
    await place_lane(pool, 0)

    async with running(relay(settings)):
        await until(lambda: _has_the_ids_of_the_outbox(pool, redis))

    assert await sequences(redis) == list(range(1, 51))


async def _has_the_ids_of_the_outbox(pool: Pool, redis: Redis) -> bool:
    rows = await pool.fetch("SELECT event_id FROM outbox ORDER BY bus_seq")
    return [fields[b"id"].decode() for fields in await entries(redis)] == [
        str(row["event_id"]) for row in rows
    ]


async def test_a_stream_older_than_what_the_outbox_still_has_is_begun_anew(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 50)
    await redis.xdel(names.EVENT_STREAM, *(await entry_ids(redis))[10:])
    await pool.execute("DELETE FROM outbox WHERE bus_seq <= 30")
    await place_lane(pool, 30)

    async with running(relay(settings)):
        await stream_ends(redis, 50)

    assert await sequences(redis) == list(range(31, 51))


async def test_the_relay_waits_for_the_slowest_live_lane(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await place_lane(pool, 0)
    await produce(pool, [created(workspace_id) for _ in range(300)])

    async def are_waiting() -> bool:
        async with pool.acquire() as conn:
            return await count_unpublished(conn) == 220

    async with running(relay(settings, cap=100)):
        await until(are_waiting)
        await stream_ends(redis, 80)
        await place_lane(pool, 15)
        await stream_ends(redis, 95)
        await place_lane(pool, 300)
        await stream_ends(redis, 300)


async def test_a_dead_lane_is_not_waited_for(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await place_lane(pool, 0, seconds_ago=11 * 60)
    await place_lane(pool, 200, lane="other")
    await produce(pool, [created(workspace_id) for _ in range(300)])

    async with running(relay(settings, cap=100)):
        await stream_ends(redis, 280)
