"""The audit lane: one row per persisted event, in the order of the bus, whatever happens to its servers."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from lanes import turns
from lanes.turns import MAX_ATTEMPTS
from runlane import names
from runlane.db.pool import Pool
from runlane.events import EVENT_CATALOG, Actor, envelope, payloads
from runlane.settings import Settings
from tests.integration.event_bus import (
    are_published,
    audited,
    cancelled,
    checkpoint,
    created,
    entry_ids,
    lane,
    produce,
    relay,
    running,
)
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.each_redis]


@pytest.fixture(autouse=True)
def _quick_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "BLOCK", timedelta(milliseconds=100))


async def publish(pool: Pool, settings: Settings, workspace_id: UUID, count: int) -> None:
    """Has `count` more events published, each second one for the audit trail."""
    events = [(created, cancelled)[number % 2](workspace_id) for number in range(count)]
    await produce(pool, events)
    async with running(relay(settings)):
        await until(lambda: are_published(pool))


async def lane_reaches(pool: Pool, sequence: int) -> None:
    async def is_there() -> bool:
        return await checkpoint(pool) >= sequence

    await until(is_there)


async def pending(redis: Redis) -> int:
    return int((await redis.xpending(names.EVENT_STREAM, "audit"))["pending"])


async def test_it_keeps_what_the_policy_persists_and_passes_the_rest(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 250)

    async with running(lane(settings)):
        await lane_reaches(pool, 250)

    assert await audited(pool) == list(range(2, 251, 2))
    assert await pool.fetchval("SELECT count(*) FROM lane_inbox WHERE lane = 'audit'") == 125
    assert await pending(redis) == 0


async def test_a_row_says_who_did_what(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    target = uuid4()
    event = envelope(
        EVENT_CATALOG.target.created,
        payloads.TargetCreated(target_id=target, kind="domain", value="lab.test", network_id=None),
        workspace_id=workspace_id,
        subject=f"target/{target}",
        actor=Actor("key-1", "api_key"),
    )
    await produce(pool, [event])

    async with running(relay(settings)), running(lane(settings)):
        await lane_reaches(pool, 1)

    row = await pool.fetchrow("SELECT * FROM audit_events")
    assert row is not None
    outbox_time = await pool.fetchval("SELECT occurred_at FROM outbox")
    kept = {name: value for name, value in row.items() if name not in {"audit_id", "recorded_at"}}
    assert kept == {
        "workspace_id": workspace_id,
        "event_id": event.id,
        "bus_seq": 1,
        "type": "target.created",
        "subject": f"target/{target}",
        "actor_id": "key-1",
        "actor_type": "api_key",
        "outcome": None,
        "severity": "info",
        "data": {"target_id": str(target), "kind": "domain", "value": "lab.test", "network_id": None},
        "occurred_at": outbox_time,
    }


async def test_a_destroyed_group_is_made_again_and_repeats_nothing(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    async with running(lane(settings)):
        await publish(pool, settings, workspace_id, 100)
        await lane_reaches(pool, 100)
        await redis.xgroup_destroy(names.EVENT_STREAM, "audit")
        await publish(pool, settings, workspace_id, 100)
        await lane_reaches(pool, 200)

    assert await audited(pool) == list(range(2, 201, 2))


@pytest.mark.parametrize("loss", ["flush", "delete"])
async def test_a_lost_stream_costs_no_row_and_doubles_none(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, loss: str
) -> None:
    await publish(pool, settings, workspace_id, 300)
    async with running(lane(settings)):
        await lane_reaches(pool, 100)
        await (redis.flushdb() if loss == "flush" else redis.delete(names.EVENT_STREAM))
        await publish(pool, settings, workspace_id, 100)
        await lane_reaches(pool, 400)

    assert await audited(pool) == list(range(2, 401, 2))


async def test_entries_that_came_before_are_only_acknowledged(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 100)
    async with running(lane(settings)):
        await lane_reaches(pool, 100)
    await redis.xgroup_setid(names.EVENT_STREAM, "audit", "0")
    await publish(pool, settings, workspace_id, 2)

    async with running(lane(settings)):
        await lane_reaches(pool, 102)

    assert await audited(pool) == list(range(2, 103, 2))
    assert await pending(redis) == 0


async def test_a_gap_in_the_stream_is_filled_from_the_outbox_in_order(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 1500)
    ids = await entry_ids(redis)
    await redis.xdel(names.EVENT_STREAM, *ids[:20], *ids[50:1450])

    async with running(lane(settings)):
        await lane_reaches(pool, 1500)

    assert await audited(pool) == list(range(2, 1501, 2))
    assert await pool.fetchval("SELECT lost FROM lane_checkpoints") == 0


@pytest.mark.breaks_invariants
async def test_what_neither_has_any_more_is_counted_as_lost(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    async with running(lane(settings)):
        await publish(pool, settings, workspace_id, 10)
        await lane_reaches(pool, 10)
    await publish(pool, settings, workspace_id, 90)
    await redis.xdel(names.EVENT_STREAM, *(await entry_ids(redis))[20:60])
    await pool.execute("DELETE FROM outbox WHERE bus_seq BETWEEN 31 AND 40 OR bus_seq BETWEEN 51 AND 55")

    async with running(lane(settings)):
        await lane_reaches(pool, 100)

    lost = {*range(31, 41), *range(51, 56)}
    assert await audited(pool) == [number for number in range(2, 101, 2) if number not in lost]
    assert await pool.fetchval("SELECT lost FROM lane_checkpoints") == 15


async def test_a_new_lane_begins_with_the_oldest_event_that_the_outbox_has(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 100)
    await pool.execute("DELETE FROM outbox WHERE bus_seq <= 60")
    await redis.xtrim(names.EVENT_STREAM, maxlen=40, approximate=False)

    async with running(lane(settings)):
        await lane_reaches(pool, 100)

    assert await audited(pool) == list(range(62, 101, 2))
    assert await pool.fetchval("SELECT lost FROM lane_checkpoints") == 0


async def test_two_instances_write_each_row_once_and_in_order(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    async with running(relay(settings)), running(lane(settings)) as first, running(lane(settings)):
        for _ in range(10):
            await produce(pool, [cancelled(workspace_id) for _ in range(100)])
        await lane_reaches(pool, 500)
        await first.kill()
        await lane_reaches(pool, 1000)

    assert await audited(pool) == list(range(1, 1001))


async def test_an_idle_lane_shows_that_it_lives(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, workspace_id, 1)

    async with running(lane(settings)):
        await lane_reaches(pool, 1)
        seen = await pool.fetchval("SELECT live_at FROM lane_checkpoints")

        async def beats() -> bool:
            return bool(await pool.fetchval("SELECT live_at > $1 FROM lane_checkpoints", seen))

        await until(beats)


async def test_the_checkpoint_survives_attempts_that_were_cut(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    """More restarts than attempts: being stopped is not the event's fault."""
    await publish(pool, settings, workspace_id, 2000)

    async with running(lane(settings)) as run:
        for _ in range(MAX_ATTEMPTS + 2):
            await run.restart()
        await lane_reaches(pool, 2000)

    assert await audited(pool) == list(range(2, 2001, 2))
    assert not await redis.keys("oasm:events:dlq:*")
