"""A lane whose sink fails, and entries that nobody can handle."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import orjson
import pytest
import structlog.testing
from redis.asyncio import Redis

from lanes import outages, turns
from lanes.audit import AuditSink
from lanes.turns import MAX_ATTEMPTS
from runlane import names
from runlane.db.pool import Connection, Pool
from runlane.events import BusEvent, Envelope, scrub_data
from runlane.settings import Settings
from tests.integration.event_bus import (
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

LONG_TOKEN = "Q" * 45
HEX = "af09" * 16


@pytest.fixture(autouse=True)
def _quick_lane(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(outages, "FIRST_PAUSE", timedelta(milliseconds=5))
    monkeypatch.setattr(turns, "BLOCK", timedelta(milliseconds=100))
    with structlog.testing.capture_logs():
        yield


class Failing(AuditSink):
    """An audit sink that fails on one event, so many times, and writes down what it was given."""

    def __init__(self, event: Envelope, times: int, error: Exception) -> None:
        self._event = event
        self._left = times
        self._error = error
        self.seen: list[int] = []

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        self.seen += [event.sequence for event in events]
        await super().handle(conn, events)
        if self._left and any(event.envelope.id == self._event.id for event in events):
            self._left -= 1
            raise self._error


async def publish(pool: Pool, settings: Settings, events: Sequence[Envelope]) -> None:
    await produce(pool, events)
    async with running(relay(settings)):
        await until(lambda: are_published(pool))


async def lane_reaches(pool: Pool, sequence: int) -> None:
    async def is_there() -> bool:
        return await checkpoint(pool) >= sequence

    await until(is_there)


async def dead_letters(redis: Redis, owner: UUID | str) -> list[dict[bytes, bytes]]:
    return await entries(redis, f"{names.DLQ_PREFIX}{owner}")


async def test_order_holds_when_an_event_fails_a_few_times(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    events = [cancelled(workspace_id) for _ in range(30)]
    await publish(pool, settings, events)
    sink = Failing(events[9], MAX_ATTEMPTS - 1, ValueError("no"))

    async with running(lane(settings, sink)):
        await lane_reaches(pool, 30)

    assert await audited(pool) == list(range(1, 31))
    assert await dead_letters(redis, workspace_id) == []


async def test_an_event_that_fails_five_times_is_dead_lettered_and_the_lane_goes_on(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    events = [cancelled(workspace_id) for _ in range(30)]
    await publish(pool, settings, events)
    sink = Failing(events[9], 1000, ValueError(f"refused {LONG_TOKEN}"))

    async with running(lane(settings, sink)):
        await lane_reaches(pool, 30)

    assert await audited(pool) == [*range(1, 10), *range(11, 31)]
    (letter,) = await dead_letters(redis, workspace_id)
    assert letter[b"id"].decode() == str(events[9].id)
    assert letter[b"sequence"] == b"00000000000000000010"
    assert letter[b"dlqlane"] == b"audit"
    assert letter[b"dlqerror"] == b"ValueError: refused ***"
    # once in its batch, then five times alone
    assert sink.seen.count(10) == 1 + MAX_ATTEMPTS
    assert int((await redis.xpending(names.EVENT_STREAM, "audit"))["pending"]) == 0
    assert not await redis.exists("oasm:events:failures:audit")


async def test_an_event_that_ends_the_process_each_time_is_dead_lettered(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    events = [cancelled(workspace_id) for _ in range(3)]
    await publish(pool, settings, events)
    await redis.hset("oasm:events:failures:audit", "1", str(MAX_ATTEMPTS))

    async with running(lane(settings)):
        await lane_reaches(pool, 3)

    assert await audited(pool) == [2, 3]
    (letter,) = await dead_letters(redis, workspace_id)
    assert letter[b"id"].decode() == str(events[0].id)


async def test_an_outage_is_not_held_against_an_event(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    events = [cancelled(workspace_id) for _ in range(5)]
    await publish(pool, settings, events)
    sink = Failing(events[0], MAX_ATTEMPTS + 2, asyncpg.CannotConnectNowError("starting up"))

    async with running(lane(settings, sink)):
        await lane_reaches(pool, 5)

    assert await audited(pool) == [1, 2, 3, 4, 5]
    assert await dead_letters(redis, workspace_id) == []


async def test_a_failing_event_in_a_gap_is_dead_lettered_too(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    events = [cancelled(workspace_id) for _ in range(30)]
    await publish(pool, settings, events)
    await redis.xtrim(names.EVENT_STREAM, maxlen=5, approximate=False)

    async with running(lane(settings, Failing(events[9], 1000, ValueError("no")))):
        await lane_reaches(pool, 30)

    assert await audited(pool) == [*range(1, 10), *range(11, 31)]
    assert [letter[b"id"].decode() for letter in await dead_letters(redis, workspace_id)] == [
        str(events[9].id)
    ]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"type": "job.abolished"}, b"not in the catalog"),
        ({"workspaceid": None}, b"no workspace"),
        ({"workspaceid": "nobody"}, b"malformed: ValueError"),
        ({"data": "[1]"}, b"not a CloudEvent of this bus"),
        ({"data": "{"}, b"malformed: JSONDecodeError"),
        ({"time": "2026-11-30"}, b"not a CloudEvent of this bus"),
        ({"sequence": None}, b"no sequence"),
    ],
)
async def test_an_entry_that_nobody_can_handle_is_set_aside(
    pool: Pool,
    redis: Redis,
    settings: Settings,
    workspace_id: UUID,
    change: dict[str, str | None],
    fault: bytes,
) -> None:
    fields: dict[str, str | None] = {
        "id": str(uuid4()),
        "type": "job.cancelled",
        "source": names.EVENT_SOURCE,
        "specversion": "1.0",
        "time": "2026-11-30T10:00:00.000000Z",
        "subject": "job/x",
        "workspaceid": str(workspace_id),
        "sequence": "00000000000000000001",
        "datacontenttype": "application/json",
        "data": "{}",
        **change,
    }
    await redis.xadd(names.EVENT_STREAM, {name: text for name, text in fields.items() if text is not None})

    async def is_set_aside() -> bool:
        return bool(await dead_letters(redis, "_unroutable"))

    async with running(lane(settings)):
        await until(is_set_aside)

    (letter,) = await dead_letters(redis, "_unroutable")
    assert letter[b"dlqerror"] == fault
    assert await audited(pool) == []
    assert int((await redis.xpending(names.EVENT_STREAM, "audit"))["pending"]) == 0


async def test_what_another_program_put_on_the_stream_is_scrubbed_once_more(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await redis.xadd(
        names.EVENT_STREAM,
        {
            "id": str(uuid4()),
            "type": "job.cancelled",
            "specversion": "1.0",
            "time": "2026-11-30T10:00:00Z",
            "subject": "job/x",
            "workspaceid": str(workspace_id),
            "sequence": "1",
            "data": f'{{"password": "hunter2", "note": "{LONG_TOKEN}", "n": 1}}',
        },
    )

    async with running(lane(settings)):
        await lane_reaches(pool, 1)

    assert await pool.fetchval("SELECT data FROM audit_events") == {
        "note": "***",
        "n": 1,
        "metadata": {"redactedFields": ["password"]},
    }


async def test_a_changed_password_is_named_in_outbox_stream_and_trail_and_shown_in_none(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    web_token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    changes = {
        "password": {"before": "hunter2", "after": web_token},
        "proxy": f"https://me:hunter2@{HEX}.test",
    }
    data = {"changes": changes, "certificate": {"sha256": HEX}, "note": f"sent {web_token}"}
    event = replace(cancelled(workspace_id), data=dict(scrub_data(data)))
    await produce(pool, [event])

    async with running(relay(settings)), running(lane(settings)):
        await until(lambda: is_audited(pool))

    (entry,) = await entries(redis)
    rows = await pool.fetch("SELECT data FROM outbox UNION ALL SELECT data FROM audit_events")
    assert len(rows) == 2
    for seen in (*(row["data"] for row in rows), orjson.loads(entry[b"data"])):
        assert seen == {
            "changes": {"proxy": f"https://me:***@{HEX}.test"},
            "certificate": {"sha256": HEX},
            "note": "sent ***",
            "metadata": {"redactedFields": ["changes.password"]},
        }


async def is_audited(pool: Pool) -> bool:
    return bool(await audited(pool))


async def test_entries_trimmed_while_pending_are_healed(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    await publish(pool, settings, [cancelled(workspace_id) for _ in range(10)])
    await redis.xgroup_create(names.EVENT_STREAM, "audit", "0")
    await redis.xreadgroup("audit", "audit", {names.EVENT_STREAM: ">"}, count=5)
    await redis.xtrim(names.EVENT_STREAM, maxlen=5, approximate=False)
    await publish(pool, settings, [created(workspace_id)])

    async with running(lane(settings)):
        await lane_reaches(pool, 11)

    assert await audited(pool) == list(range(1, 11))
    assert int((await redis.xpending(names.EVENT_STREAM, "audit"))["pending"]) == 0
