"""The publish script: steps of exactly one, whoever publishes and whatever was lost."""

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from runlane import names, stream
from runlane.settings import Settings
from runlane.stream import Published, Publisher
from tests.integration.event_bus import entries, sequences

pytestmark = [pytest.mark.integration, pytest.mark.each_redis]


@pytest_asyncio.fixture
async def publisher(redis: Redis) -> Publisher:
    return Publisher(redis, cap=1000)


def batch(first: int, last: int) -> list[tuple[int, dict[str, str]]]:
    return [(n, {"id": f"event-{n}", "sequence": f"{n:020d}"}) for n in range(first, last + 1)]


async def test_an_empty_stream_takes_nothing_without_a_base(publisher: Publisher, redis: Redis) -> None:
    answer = await publisher.publish(batch(1, 3))

    assert answer == Published(accepted=0, last=None, begun=False)
    assert not await redis.exists(names.EVENT_STREAM)


async def test_an_empty_stream_begins_at_the_base(publisher: Publisher, redis: Redis) -> None:
    answer = await publisher.publish(batch(41, 43), base=41)

    assert answer == Published(accepted=3, last=43, begun=True)
    assert await sequences(redis) == [41, 42, 43]


async def test_a_base_does_not_move_a_stream_that_has_entries(publisher: Publisher) -> None:
    await publisher.publish(batch(1, 3), base=1)

    answer = await publisher.publish(batch(10, 12), base=10)

    assert answer == Published(accepted=0, last=3, begun=False)


async def test_a_repeated_batch_is_refused_and_told_where_the_stream_is(
    publisher: Publisher, redis: Redis
) -> None:
    await publisher.publish(batch(1, 3), base=1)

    answer = await publisher.publish(batch(1, 3))

    assert answer == Published(accepted=0, last=3, begun=False)
    assert await sequences(redis) == [1, 2, 3]


async def test_a_batch_with_a_hole_is_taken_up_to_the_hole(publisher: Publisher, redis: Redis) -> None:
    answer = await publisher.publish([*batch(1, 2), *batch(4, 5)], base=1)

    assert answer == Published(accepted=2, last=2, begun=True)
    assert await sequences(redis) == [1, 2]


async def test_entries_of_others_do_not_hide_the_newest_sequence(publisher: Publisher, redis: Redis) -> None:
    await publisher.publish(batch(1, 3), base=1)
    for _ in range(25):
        await redis.xadd(names.EVENT_STREAM, {"type": "of somebody else"})

    newest = await publisher.newest()
    answer = await publisher.publish(batch(4, 4))

    assert newest == stream.Newest(3, "event-3")
    assert answer == Published(accepted=1, last=4, begun=False)


async def test_the_stream_is_trimmed_and_expires(redis: Redis) -> None:
    publisher = Publisher(redis, cap=200)

    await publisher.publish(batch(1, 1000), base=1)

    assert 200 <= await redis.xlen(names.EVENT_STREAM) < 400  # trimming is by whole nodes
    left_ms = await redis.pttl(names.EVENT_STREAM)
    assert 0 < left_ms <= stream.RETENTION.total_seconds() * 1000


async def test_remove_leaves_a_stream_that_has_moved_on(publisher: Publisher, redis: Redis) -> None:
    await publisher.publish(batch(1, 3), base=1)

    await publisher.remove(2)
    assert await sequences(redis) == [1, 2, 3]
    await publisher.remove(3)
    assert await sequences(redis) == []


async def test_text_of_any_language_survives_the_script(publisher: Publisher, redis: Redis) -> None:
    text = 'ключ "é" \\ \n 鍵 \U0001f511'

    await publisher.publish([(1, {"sequence": "1", "data": text})], base=1)

    (fields,) = await entries(redis)
    assert fields[b"data"].decode() == text


async def test_a_client_of_the_bus_repeats_nothing_by_itself(settings: Settings) -> None:
    client = stream.connect(settings.redis_url, block_s=2)
    options = client.connection_pool.connection_kwargs
    try:
        assert options["retry"].get_retries() == 0
        assert options["protocol"] == 2
        assert options["socket_timeout"] == 2 + stream.COMMAND_TIMEOUT_S
    finally:
        await client.aclose()
