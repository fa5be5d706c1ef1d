"""Dead letters: kept once, shown to whom they belong, redriven in their lane only, purged for good."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
import structlog.testing
from redis.asyncio import Redis

from lanes import outages, redrive, turns, unordered
from lanes.audit import AuditSink
from lanes.turns import MAX_ATTEMPTS
from runlane import names
from runlane.db import dead_letter_lists, dead_letters
from runlane.db.acts import Act
from runlane.db.dead_letter_lists import Letters
from runlane.db.dead_letters import Failure, GivenUp
from runlane.db.pool import Connection, Pool
from runlane.events import SUBSCRIPTIONS, Actor, BusEvent, Envelope
from runlane.settings import Settings
from runlane.stream import LaneReader, Letter
from tests.integration.event_bus import (
    are_published,
    cancelled,
    entries,
    lane,
    produce,
    relay,
    running,
)
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.each_redis]

ACT = Act(Actor("key-1", "api_key"), "ops", "fixed")


@pytest.fixture(autouse=True)
def _quick_lane(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(outages, "FIRST_PAUSE", timedelta(milliseconds=5))
    monkeypatch.setattr(turns, "BLOCK", timedelta(milliseconds=50))
    monkeypatch.setattr(unordered, "IDLE", timedelta(milliseconds=50))
    monkeypatch.setattr(unordered, "LOOK", timedelta(0))
    monkeypatch.setattr(redrive, "LOOK", timedelta(0))
    with structlog.testing.capture_logs():
        yield


class Failing(AuditSink):
    """An audit lane without order that fails on everything until it is mended."""

    is_ordered = False

    def __init__(self, name: str = "audit") -> None:
        self.lane = name  # type: ignore[assignment]  # a lane of the test's own
        self.is_broken = True
        self.seen: list[UUID] = []

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        if self.is_broken:
            raise ValueError("no")
        self.seen += [event.envelope.id for event in events]


async def give_up(pool: Pool, settings: Settings, sink: Failing, events: Sequence[Envelope]) -> None:
    """Has a lane give events up."""
    await produce(pool, events)
    async with running(relay(settings)), running(lane(settings, sink)):
        await until(lambda: are_published(pool))
        await until(lambda: has_letters(pool, len(events)))


async def has_letters(pool: Pool, count: int, status: str = "open") -> bool:
    found = await pool.fetchval("SELECT count(*) FROM dead_letters WHERE status = $1", status)
    return bool(found == count)


async def ask(pool: Pool, workspace_id: UUID, which: Letters) -> int:
    async with pool.acquire() as conn, conn.transaction():
        return await dead_letter_lists.redrive(conn, workspace_id, which, ACT)


async def told(pool: Pool, name: str) -> list[dict[str, object]]:
    return [
        row["data"] for row in await pool.fetch("SELECT data FROM outbox WHERE type = $1 ORDER BY id", name)
    ]


async def test_an_event_that_is_given_up_is_a_letter_with_its_whole_story(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    event = cancelled(workspace_id, reason="was not needed")

    await give_up(pool, settings, Failing(), [event])

    (row,) = await pool.fetch("SELECT * FROM dead_letters")
    assert (row["workspace_id"], row["lane"], row["event_id"], row["bus_seq"]) == (
        workspace_id, "audit", event.id, 1,
    )  # fmt: skip
    assert (row["attempts"], row["error"]) == (MAX_ATTEMPTS, "ValueError: no")
    assert row["first_failed_at"] < row["created_at"]
    (letter,) = await entries(redis, f"{names.DLQ_PREFIX}{workspace_id}")
    noted = {b"dlqlane", b"dlqerror", b"dlqkey", b"dlqentry", b"dlqattempts", b"dlqfirst", b"dlqtime"}
    assert row["fields"] == {k.decode(): v.decode() for k, v in letter.items() if k not in noted}
    assert letter[b"dlqentry"].decode() == row["entry_id"]
    (said,) = await told(pool, "dead_letter.created")
    assert said["letter_id"] == str(row["id"])


async def test_event_that_is_given_up_twice_makes_one_letter(
    pool: Pool, redis: Redis, workspace_id: UUID
) -> None:
    event_id = uuid4()
    given_up = GivenUp("audit", workspace_id, event_id, 1, "job.failed", "job/x", {"id": "x"}, "1-0")
    reader = LaneReader(redis, "audit")

    async with pool.acquire() as conn, conn.transaction():
        written = [await dead_letters.write(conn, given_up, Failure(5, "no")) for _ in range(2)]
    for _ in range(2):
        await reader.dead_letter(Letter(workspace_id, f"audit/{event_id}", {"id": "x"}, {"dlqerror": "no"}))

    assert written == [True, False]
    assert len(await told(pool, "dead_letter.created")) == 1
    assert len(await entries(redis, f"{names.DLQ_PREFIX}{workspace_id}")) == 1
    for key in (names.DLQ_PREFIX, names.DLQ_INDEX_PREFIX):
        assert 0 < await redis.ttl(f"{key}{workspace_id}") <= timedelta(days=30).total_seconds()


async def test_event_about_a_dead_letter_that_fails_makes_no_further_event(
    pool: Pool, workspace_id: UUID
) -> None:
    given_up = GivenUp("audit", workspace_id, uuid4(), 1, "dead_letter.created", "dead-letter/x", {}, None)

    async with pool.acquire() as conn, conn.transaction():
        assert await dead_letters.write(conn, given_up, Failure(5, "no"))

    assert await told(pool, "dead_letter.created") == []


async def test_redriven_letter_reaches_its_own_lane_only_once_in_order_and_is_audited(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUBSCRIPTIONS, "other", None)  # type: ignore[misc]  # a lane of the test's own
    events = [cancelled(workspace_id) for _ in range(3)]
    sink, other = Failing(), Failing("other")
    await give_up(pool, settings, sink, events)
    sink.is_broken = other.is_broken = False

    async with running(lane(settings, sink)), running(lane(settings, other)):
        await until(lambda: len([each for each in other.seen if each in {e.id for e in events}]) == 3)
        asked = [await ask(pool, workspace_id, Letters(lane="audit")) for _ in range(2)]
        await until(lambda: has_letters(pool, 3, "redriven"))

    assert asked[0] == 3
    assert sink.seen[-3:] == [event.id for event in events]
    assert sorted(other.seen) == sorted(set(other.seen))
    assert await redis.hlen(f"{names.EVENT_STREAM}:failures:audit") == 0
    said = await told(pool, "dead_letter.redriven")
    assert [(each["has_succeeded"], each["sequence"]) for each in said] == [(True, 1), (True, 2), (True, 3)]
    (act,) = await told(pool, "operator.acted")
    assert (act["action"], act["value"]) == ("dead_letters.redrive", "3")
    assert await pool.fetchval("SELECT count(*) FROM outbox WHERE attributes ->> 'actorid' = 'key-1'") == 4


async def test_letter_that_fails_once_more_is_open_again_with_the_reason(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    sink = Failing()
    await give_up(pool, settings, sink, [cancelled(workspace_id)])
    await ask(pool, workspace_id, Letters(type="job.cancelled"))

    async def has_failed() -> bool:
        return bool(await pool.fetchval("SELECT redrives FROM dead_letters") == 1)

    async with running(lane(settings, sink)):
        await until(has_failed)

    (row,) = await pool.fetch("SELECT status, redrive_error, redriven_at FROM dead_letters")
    assert tuple(row) == ("open", "ValueError: no", None)
    assert [each["has_succeeded"] for each in await told(pool, "dead_letter.redriven")] == [False]


async def test_letter_whose_handling_ends_the_process_each_time_is_not_tried_for_ever(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    sink = Failing()
    await give_up(pool, settings, sink, [cancelled(workspace_id)])
    sink.is_broken = False
    await redis.hset(f"{names.EVENT_STREAM}:failures:audit", "1", str(MAX_ATTEMPTS))
    await ask(pool, workspace_id, Letters(lane="audit"))

    async def is_given_up() -> bool:
        return bool(await pool.fetchval("SELECT redrive_error FROM dead_letters"))

    async with running(lane(settings, sink)):
        await until(is_given_up)

    assert sink.seen == []
    assert await has_letters(pool, 1)


async def test_purged_letter_leaves_its_row_and_its_stream(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    sink = Failing()
    events = [cancelled(workspace_id) for _ in range(3)]
    await give_up(pool, settings, sink, events)
    gone = await pool.fetchval("SELECT id FROM dead_letters WHERE event_id = $1", events[1].id)

    async with pool.acquire() as conn, conn.transaction():
        assert await dead_letter_lists.purge(conn, workspace_id, Letters(ids=[gone]), ACT) == 1
    async with running(lane(settings, sink)):
        await until(lambda: has_letters(pool, 0, "purging"))

    left = {str(events[0].id), str(events[2].id)}
    assert {str(row["event_id"]) for row in await pool.fetch("SELECT event_id FROM dead_letters")} == left
    letters = await entries(redis, f"{names.DLQ_PREFIX}{workspace_id}")
    assert {letter[b"id"].decode() for letter in letters} == left


async def test_letters_past_their_time_or_beyond_the_cap_go_and_so_do_those_of_a_workspace(
    pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pool.execute(
        """INSERT INTO dead_letters (workspace_id, lane, event_id, bus_seq, type, subject, fields, attempts,
                                     error, first_failed_at, created_at)
           SELECT $1, 'audit', gen_random_uuid(), n, 'job.failed', 'job/x', '{}', 5, 'no', now(),
                  now() - n * interval '4 days'
           FROM generate_series(1, 10) n""",
        workspace_id,
    )
    monkeypatch.setattr(dead_letters, "CAP", 5)

    async with pool.acquire() as conn:
        assert await dead_letters.prune(conn, 3) == 3
        assert await dead_letters.prune(conn, 100) == 2
        left = await conn.fetch("SELECT bus_seq FROM dead_letters ORDER BY bus_seq")
        await conn.execute("DELETE FROM workspaces WHERE id = $1", workspace_id)

    assert [row["bus_seq"] for row in left] == [1, 2, 3, 4, 5]
    assert await pool.fetchval("SELECT count(*) FROM dead_letters") == 0


async def test_letter_of_a_workspace_that_is_gone_is_not_kept(pool: Pool) -> None:
    given_up = GivenUp("audit", uuid4(), uuid4(), 1, "job.failed", "job/x", {}, None)

    async with pool.acquire() as conn, conn.transaction():
        assert not await dead_letters.write(conn, given_up, Failure(5, "no", datetime.now(UTC)))


async def test_entry_that_every_lane_meets_is_one_letter_without_credentials(
    pool: Pool, redis: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUBSCRIPTIONS, "other", None)  # type: ignore[misc]  # a lane of the test's own
    secret = "sk-" + "a1" * 30
    fields = {b"type": b"job.abolished", b"note": secret.encode(), b"raw": b"\x00\xff", b"password": b"x"}
    await redis.xadd(names.EVENT_STREAM, fields)  # type: ignore[arg-type]  # bytes, which its types do not know

    async def is_acknowledged(group: str) -> bool:
        groups = {row["name"]: row for row in await redis.xinfo_groups(names.EVENT_STREAM)}
        found = groups.get(group.encode())
        return found is not None and found["pending"] == 0 and found["last-delivered-id"] != b"0-0"

    async with running(lane(settings, Failing())), running(lane(settings, Failing("other"))):
        await until(lambda: is_acknowledged("audit"))
        await until(lambda: is_acknowledged("other"))

    (row,) = await pool.fetch("SELECT * FROM dead_letters")
    assert row["workspace_id"] is None
    assert row["fields"] == {"type": "job.abolished", "note": "***", "raw": "\ufffd\ufffd"}
    (letter,) = await entries(redis, f"{names.DLQ_PREFIX}_unroutable")
    assert secret.encode() not in letter.values()
