"""A lane that sets failures aside: what fails waits, the others go on, nothing is lost or doubled."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from uuid import UUID

import pytest
import structlog.testing
from redis.asyncio import Redis

from lanes import outages, turns, unordered
from lanes.audit import AuditSink
from lanes.turns import BATCH, MAX_ATTEMPTS
from runlane import names
from runlane.db.pool import Connection, Pool
from runlane.events import BusEvent, Envelope
from runlane.settings import Settings
from tests.integration.event_bus import (
    are_published,
    audited,
    cancelled,
    checkpoint,
    entries,
    entry_ids,
    lane,
    produce,
    relay,
    running,
)
from tests.waiting import until

# the sink writes the audit trail in any order, which the audit lane itself never does
pytestmark = [pytest.mark.integration, pytest.mark.each_redis, pytest.mark.breaks_invariants]


@pytest.fixture(autouse=True)
def _quick_lane(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(outages, "FIRST_PAUSE", timedelta(milliseconds=5))
    monkeypatch.setattr(turns, "BLOCK", timedelta(milliseconds=50))
    monkeypatch.setattr(unordered, "IDLE", timedelta(milliseconds=100))
    monkeypatch.setattr(unordered, "LOOK", timedelta(0))
    with structlog.testing.capture_logs():
        yield


class Failing(AuditSink):
    """Writes the audit trail in any order, and fails on some events until it is told to stop."""

    is_ordered = False

    def __init__(self, *failing: Envelope) -> None:
        self.failing = {event.id for event in failing}
        self.tries: list[UUID] = []

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        self.tries += [event.envelope.id for event in events]
        await super().handle(conn, events)
        if self.failing & {event.envelope.id for event in events}:
            raise ValueError("no")


async def publish(pool: Pool, settings: Settings, events: Sequence[Envelope]) -> None:
    await produce(pool, events)
    async with running(relay(settings)):
        await until(lambda: are_published(pool))


async def lane_reaches(pool: Pool, sequence: int) -> None:
    async def is_there() -> bool:
        return await checkpoint(pool) >= sequence

    await until(is_there)


async def are_audited(pool: Pool, count: int) -> None:
    async def is_there() -> bool:
        return len(await audited(pool)) >= count

    await until(is_there)


async def pending(redis: Redis) -> int:
    return int((await redis.xpending(names.EVENT_STREAM, "audit"))["pending"])


async def test_an_event_that_fails_holds_up_no_other_and_the_checkpoint_waits_for_it(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MAX_ATTEMPTS", 1_000)
    monkeypatch.setattr(unordered, "MAX_ATTEMPTS", 1_000)
    events = [cancelled(workspace_id) for _ in range(30)]
    await publish(pool, settings, events)
    sink = Failing(events[9])

    async with running(lane(settings, sink)):
        await are_audited(pool, 29)
        await lane_reaches(pool, 9)
        assert await checkpoint(pool) == 9
        assert await pending(redis) == 1
        await until(lambda: sink.tries.count(events[9].id) > 3)
        sink.failing.clear()
        await lane_reaches(pool, 30)

    assert sorted(await audited(pool)) == list(range(1, 31))
    assert (await audited(pool))[-1] == 10
    assert await pending(redis) == 0


async def test_an_event_that_fails_five_times_is_dead_lettered_once(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    events = [cancelled(workspace_id) for _ in range(30)]
    await publish(pool, settings, events)
    sink = Failing(events[9])

    async with running(lane(settings, sink)):
        await lane_reaches(pool, 30)

    assert sorted(await audited(pool)) == [*range(1, 10), *range(11, 31)]
    (letter,) = await entries(redis, f"{names.DLQ_PREFIX}{workspace_id}")
    assert letter[b"id"].decode() == str(events[9].id)
    assert letter[b"dlqerror"] == b"ValueError: no"
    # once in its batch, then alone
    assert sink.tries.count(events[9].id) == 1 + MAX_ATTEMPTS
    assert await redis.hlen(f"{names.EVENT_STREAM}:failures:audit") == 0


async def test_what_was_set_aside_survives_the_loss_of_the_stream(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unordered, "MAX_ATTEMPTS", 1_000)
    events = [cancelled(workspace_id) for _ in range(30)]
    await publish(pool, settings, events)
    sink = Failing(events[9], events[20])

    async with running(relay(settings)), running(lane(settings, sink)):
        await are_audited(pool, 28)
        await lane_reaches(pool, 9)
        await redis.flushdb()
        sink.failing.clear()
        await lane_reaches(pool, 30)

    assert sorted(await audited(pool)) == list(range(1, 31))
    handled = [event_id for event_id in sink.tries if event_id == events[15].id]
    assert len(handled) <= 2  # in the batch that failed and alone: never again


async def test_what_was_set_aside_is_handled_though_the_server_forgot_that_it_was_pending(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unordered, "MAX_ATTEMPTS", 1_000)
    events = [cancelled(workspace_id) for _ in range(30)]
    await publish(pool, settings, events)
    sink = Failing(events[9])

    async with running(lane(settings, sink)):
        await are_audited(pool, 29)
        await lane_reaches(pool, 9)
        sink.failing.clear()
        # as after a crash without the last second: nothing is pending, and the group is where it was before
        ids = await entry_ids(redis)
        async with redis.pipeline(transaction=True) as pipe:
            pipe.xack(names.EVENT_STREAM, "audit", ids[9])
            pipe.xgroup_setid(names.EVENT_STREAM, "audit", ids[8])
            await pipe.execute()
        await are_audited(pool, 30)

    assert sorted(await audited(pool)) == list(range(1, 31))


async def test_an_event_whose_handling_takes_too_long_holds_up_no_other(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    class Slow(Failing):
        async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
            if self.failing & {event.envelope.id for event in events}:
                await conn.execute("SELECT pg_sleep(60)", timeout=0.05)
            await super().handle(conn, events)

    events = [cancelled(workspace_id) for _ in range(30)]
    await publish(pool, settings, events)

    async with running(lane(settings, Slow(events[9]))):
        await lane_reaches(pool, 30)

    assert sorted(await audited(pool)) == [*range(1, 10), *range(11, 31)]
    assert len(await entries(redis, f"{names.DLQ_PREFIX}{workspace_id}")) == 1


async def test_a_foreign_entry_with_a_sequence_that_is_no_number_stops_no_lane(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, [cancelled(workspace_id) for _ in range(3)])
    await redis.xadd(names.EVENT_STREAM, {"sequence": "abc"})
    await redis.xgroup_create(names.EVENT_STREAM, "audit", id="0")
    await redis.xreadgroup("audit", "audit", {names.EVENT_STREAM: ">"})  # read, and then its reader died

    async with running(lane(settings, Failing())):
        await lane_reaches(pool, 3)

    assert sorted(await audited(pool)) == [1, 2, 3]


async def test_what_was_trimmed_while_it_was_set_aside_is_read_from_the_outbox(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unordered, "MAX_ATTEMPTS", 1_000)
    events = [cancelled(workspace_id) for _ in range(30)]
    await publish(pool, settings, events)
    sink = Failing(events[9])

    async with running(lane(settings, sink)):
        await are_audited(pool, 29)
        await lane_reaches(pool, 9)
        await redis.xdel(names.EVENT_STREAM, (await entry_ids(redis))[9])
        sink.failing.clear()
        await lane_reaches(pool, 30)

    assert sorted(await audited(pool)) == list(range(1, 31))
    assert await pool.fetchval("SELECT lost FROM lane_checkpoints WHERE lane = 'audit'") == 0


async def test_trimmed_tail_is_read_from_the_outbox_though_nothing_follows(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, [cancelled(workspace_id) for _ in range(30)])
    await redis.xdel(names.EVENT_STREAM, *(await entry_ids(redis))[20:])

    async with running(lane(settings, Failing())):
        await lane_reaches(pool, 30)

    assert sorted(await audited(pool)) == list(range(1, 31))


async def test_a_lane_that_is_killed_again_and_again_handles_each_event_once(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, [cancelled(workspace_id) for _ in range(1_000)])
    events = [cancelled(workspace_id) for _ in range(3)]

    async with running(lane(settings, Failing())) as driving:
        for count in range(100, 1_000, 200):
            await are_audited(pool, count)
            await driving.restart()
        await publish(pool, settings, events)
        await lane_reaches(pool, 1_003)

    assert sorted(await audited(pool)) == list(range(1, 1_004))
    assert await entries(redis, f"{names.DLQ_PREFIX}{workspace_id}") == []


async def test_many_that_fail_do_not_starve_what_is_new(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unordered, "MAX_ATTEMPTS", 1_000)
    monkeypatch.setattr(unordered, "IDLE", timedelta(0))
    bad = [cancelled(workspace_id) for _ in range(2 * BATCH)]
    await publish(pool, settings, bad)
    sink = Failing(*bad)

    async with running(lane(settings, sink)):
        await until(lambda: len(set(sink.tries)) == len(bad))
        good = [cancelled(workspace_id) for _ in range(BATCH)]
        await publish(pool, settings, good)
        before = len(sink.tries)
        await are_audited(pool, BATCH)
        # two turns, each at most half stalled: not once through all that fail for each new event
        assert len(sink.tries) - before < 20 * BATCH


async def test_a_lane_that_tells_others_begins_with_the_next_event_in_an_old_installation(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    class Telling(Failing):
        from_oldest = False

    await publish(pool, settings, [cancelled(workspace_id) for _ in range(10)])
    async with running(lane(settings, Telling())):
        await lane_reaches(pool, 10)
        await publish(pool, settings, [cancelled(workspace_id)])
        await lane_reaches(pool, 11)

    assert await audited(pool) == [11]


async def test_two_instances_share_the_work_and_double_nothing(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    sink = Failing()
    async with (
        running(lane(settings, sink)),
        running(lane(settings, sink)) as other,
        running(relay(settings)),
    ):
        for _ in range(10):
            await produce(pool, [cancelled(workspace_id) for _ in range(50)])
            await asyncio.wait_for(other.restart(), 10)
        await lane_reaches(pool, 500)

    assert sorted(await audited(pool)) == list(range(1, 501))
    assert await pending(redis) == 0
