"""Ten thousand events while everything between them and the audit trail is cut, flushed and restarted."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from runlane import names
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.event_bus import (
    Running,
    are_published,
    audited,
    cancelled,
    checkpoint,
    created,
    entries,
    lane,
    produce,
    relay,
    running,
)
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.each_redis]

EVENTS = 10_000
BATCH = 50
MISCHIEFS = 40
SEED = 20261130


async def produce_all(pool: Pool, workspace_id: UUID) -> None:
    """In batches of one transaction, two events of each job, `created` before `cancelled`."""
    for _ in range(EVENTS // BATCH):
        jobs = [uuid4() for _ in range(BATCH // 2)]
        await produce(pool, [created(workspace_id, job) for job in jobs])
        await produce(pool, [cancelled(workspace_id, job) for job in jobs])


async def cut_connections(pool: Pool) -> None:
    await pool.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name IN ('runlane-relay', 'runlane-audit')"
    )


LOSE_TAIL = """
for _, entry in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 30)) do
  redis.call('XDEL', KEYS[1], entry[1])
end
"""


async def lose_tail(redis: Redis) -> None:
    await redis.eval(LOSE_TAIL, 1, names.EVENT_STREAM)


async def destroy_group(redis: Redis) -> None:
    with suppress(RedisError):
        await redis.xgroup_destroy(names.EVENT_STREAM, "audit")


async def flush(redis: Redis) -> None:
    await redis.flushdb()


async def do_mischief(mischiefs: list[Callable[[], Awaitable[None]]]) -> None:
    chance = random.Random(SEED)
    for _ in range(MISCHIEFS):
        await chance.choice(mischiefs)()
        await asyncio.sleep(chance.uniform(0.02, 0.25))  # something must be going on between two of them


async def test_every_event_is_on_the_bus_once_and_in_the_trail_once(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    async with (
        running(relay(settings)) as one,
        running(relay(settings)) as two,
        running(lane(settings)) as audit,
    ):
        restarts: list[Running] = [one, two, audit]
        mischiefs: list[Callable[[], Awaitable[None]]] = [
            *(run.restart for run in restarts),
            lambda: cut_connections(pool),
            lambda: lose_tail(redis),
            lambda: destroy_group(redis),
            lambda: flush(redis),
        ]
        await asyncio.gather(produce_all(pool, workspace_id), do_mischief(mischiefs))

        async def is_done() -> bool:
            return await are_published(pool) and await checkpoint(pool) == EVENTS

        await until(is_done, limit_s=300)

    stream = [int(fields[b"sequence"]) for fields in await entries(redis)]
    breaks = [(a, b) for a, b in pairwise(stream) if b != a + 1]
    assert not breaks
    assert not stream or stream[-1] == EVENTS
    rows = await pool.fetch("SELECT bus_seq, subject FROM outbox ORDER BY bus_seq")
    assert [row["bus_seq"] for row in rows] == list(range(1, EVENTS + 1))
    unordered = await pool.fetchval(
        "SELECT count(*) FROM (SELECT bus_seq, lag(bus_seq) OVER (PARTITION BY subject ORDER BY id) AS before"
        " FROM outbox) o WHERE before >= bus_seq"
    )
    assert unordered == 0
    kept = await pool.fetch("SELECT bus_seq FROM outbox WHERE type = 'job.cancelled' ORDER BY bus_seq")
    assert await audited(pool) == [row["bus_seq"] for row in kept]
    assert await pool.fetchval("SELECT lost FROM lane_checkpoints") == 0
    assert not await redis.keys("oasm:events:dlq:*")
