"""The notifications lane: rows for those who are told, digests instead of floods, nothing twice."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
import structlog.testing
from redis.asyncio import Redis

from lanes import turns
from lanes.notifications import NotificationSink
from runlane import names
from runlane.db import notification_rules, notifications
from runlane.db.acts import Act
from runlane.db.notification_rules import NewMute, NewRule
from runlane.db.pool import Pool
from runlane.db.sweeps import pruning
from runlane.events import EVENT_CATALOG, Severity, envelope, payloads
from runlane.notifications import FIRST_IDS, MOST_ALONE, Mute
from runlane.settings import Settings
from runlane.sweeps import Retention
from tests.integration.event_bus import are_published, lane, produce, relay, running
from tests.integration.inboxes import add_key, cancelled, failed, inbox, tell
from tests.waiting import until

pytestmark = pytest.mark.integration


async def test_events_reach_those_who_may_read_them_once_each_though_the_lane_is_killed(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "BLOCK", timedelta(milliseconds=50))
    await add_key(pool, settings, workspace_id, "ann")
    await add_key(pool, settings, workspace_id, "ben", ["jobs:read", "notifications:read"])
    await add_key(pool, settings, workspace_id, "host", ["worker:join"])
    events = [failed(workspace_id) for _ in range(120)]

    async def is_told(count: int) -> bool:
        return len(await inbox(pool, "ann")) >= count

    with structlog.testing.capture_logs():
        async with running(relay(settings)), running(lane(settings, NotificationSink())) as driving:
            await until(lambda: pool.fetchval("SELECT 1 FROM lane_checkpoints WHERE lane = 'notifications'"))
            for start in range(0, 120, 40):
                await produce(pool, events[start : start + 40])
                await until(lambda start=start: is_told(start + 10))  # type: ignore[misc]  # bound now
                await driving.restart()
            await until(lambda: is_told(120))
            await until(lambda: are_published(pool))

    rows = await inbox(pool, "ann")
    assert [row["event_ids"] for row in rows] == [[event.id] for event in events]
    assert len(await inbox(pool, "ben")) == 120
    assert await inbox(pool, "host") == []
    assert rows[0]["severity"] == "medium"
    told = await pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'notification.created'")
    assert told == 240


async def test_cancel_of_a_large_run_makes_one_digest_for_each_recipient(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    for name in ("ann", "ben"):
        await add_key(pool, settings, workspace_id, name)
    await save(pool, NewRule(workspace_id, "all", [], Severity.INFO))
    run_id = uuid4()

    for _ in range(100):
        await tell(pool, [cancelled(workspace_id, run_id) for _ in range(100)])

    for name in ("ann", "ben"):
        (digest,) = await inbox(pool, name)
        assert (digest["is_digest"], digest["events"], digest["run_id"]) == (True, 10_000, run_id)
        assert len(digest["event_ids"]) == FIRST_IDS


async def test_what_exceeds_twenty_a_minute_goes_into_a_digest_that_is_unread_again_when_it_grows(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    await add_key(pool, settings, workspace_id, "ann")
    run_id = uuid4()

    await tell(pool, [failed(workspace_id, run_id) for _ in range(15)])
    await tell(pool, [failed(workspace_id, run_id) for _ in range(15)])
    await pool.execute("UPDATE notifications SET read_at = clock_timestamp()")
    before = (await inbox(pool, "ann"))[-1]["seq"]
    await tell(pool, [failed(workspace_id, run_id) for _ in range(70)])
    await tell(pool, [failed(workspace_id, uuid4())])

    rows = await inbox(pool, "ann")
    assert [row["events"] for row in rows] == [1] * MOST_ALONE + [80, 1]
    assert [row["read_at"] is None for row in rows[-3:]] == [False, True, True]
    assert rows[MOST_ALONE]["seq"] > before


async def test_digest_that_nothing_joined_for_a_minute_takes_in_no_more(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    await add_key(pool, settings, workspace_id, "ann")
    run_id = uuid4()
    await tell(pool, [failed(workspace_id, run_id) for _ in range(30)])
    await pool.execute(
        "UPDATE notifications SET created_at = created_at - interval '2 minutes',"
        " updated_at = updated_at - interval '2 minutes'"
    )

    await tell(pool, [failed(workspace_id, run_id)])

    assert [row["events"] for row in await inbox(pool, "ann")][-2:] == [10, 1]


async def test_rules_of_targets_and_groups_find_the_target_of_a_job_and_of_an_asset(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    for name in ("ann", "ben"):
        await add_key(pool, settings, workspace_id, name)
    target = await pool.fetchval(
        "INSERT INTO targets (workspace_id, kind, value, tags) VALUES ($1, 'domain', 'a.test', '{shop}')"
        " RETURNING id",
        workspace_id,
    )
    asset = await pool.fetchval(
        "INSERT INTO assets (workspace_id, target_id, value, first_seen, last_seen)"
        " VALUES ($1, $2, 'a.test', now(), now()) RETURNING id",
        workspace_id,
        target,
    )
    await pool.execute(
        "INSERT INTO target_groups (workspace_id, name, tags) VALUES ($1, 'shops', '{shop}')", workspace_id
    )
    await save(pool, NewRule(workspace_id, "default", [], Severity.MEDIUM, is_on=False))
    of_target = NewRule(workspace_id, "one", ["vulnerability"], Severity.LOW, target, recipients=["ann"])
    await save(pool, of_target)
    of_group = NewRule(workspace_id, "shops", [], Severity.HIGH, group="shops", recipients=["ben"])
    await save(pool, of_group)
    found = payloads.VulnerabilityDetected(
        vulnerability_id=uuid4(), asset_id=asset, check_id="x", severity="high", url=None
    )
    subject = names.vulnerability_subject(found.vulnerability_id)
    event = envelope(EVENT_CATALOG.vulnerability.detected, found, workspace_id=workspace_id, subject=subject)

    await tell(pool, [event, failed(workspace_id)])

    assert [(row["type"], row["target_id"]) for row in await inbox(pool, "ann")] == [
        ("vulnerability.detected", target)
    ]
    assert len(await inbox(pool, "ben")) == 1


async def test_what_is_muted_is_told_to_nobody_until_the_mute_is_over(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    await add_key(pool, settings, workspace_id, "ann")
    async with pool.acquire() as conn, conn.transaction():
        wanted = NewMute(workspace_id, Mute(type="job"), timedelta(hours=1))
        await notification_rules.mute(conn, wanted, Act())

    await tell(pool, [failed(workspace_id)])
    assert await inbox(pool, "ann") == []
    await pool.execute("UPDATE notification_mutes SET until = clock_timestamp()")
    await tell(pool, [failed(workspace_id)])

    assert len(await inbox(pool, "ann")) == 1


async def test_event_of_a_workspace_that_is_gone_is_told_to_nobody(pool: Pool, workspace_id: UUID) -> None:
    await tell(pool, [failed(uuid4()), failed(workspace_id)])

    assert await pool.fetchval("SELECT count(*) FROM notifications") == 0


async def test_old_notifications_and_mutes_that_are_over_are_pruned(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    await add_key(pool, settings, workspace_id, "ann")
    await tell(pool, [failed(workspace_id), failed(workspace_id)])
    await pool.execute(
        "UPDATE notifications SET updated_at = updated_at - interval '31 days'"
        " WHERE id = (SELECT id FROM notifications ORDER BY id LIMIT 1)"
    )
    await pool.execute(
        "INSERT INTO notification_mutes (workspace_id, event_type, until)"
        " VALUES ($1, 'job', now() - interval '2 days'), ($1, 'job', now())",
        workspace_id,
    )

    async with pool.acquire() as conn:
        mine = [rule for rule in pruning.rules(Retention()) if rule.table.startswith("notification")]
        pruned = {rule.table: await pruning.prune_rows(conn, rule, 100) for rule in mine}

    assert pruned == {"notifications": 1, "notification_mutes": 1}


async def test_what_is_alike_is_found_by_its_index_among_many_that_are_not(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    await add_key(pool, settings, workspace_id, "ann")
    await pool.execute(
        "INSERT INTO notifications (workspace_id, recipient, type, severity, subject, data, digest_key,"
        " is_digest, events, event_ids, occurred_at)"
        " SELECT $1, 'ann', 'job.failed', 'medium', 'job/1', '{}', 'k' || n, false, 1, '{}', now()"
        " FROM generate_series(1, 5000) n",
        workspace_id,
    )
    await pool.execute("ANALYZE notifications")

    rows = await pool.fetch(
        f"EXPLAIN (COSTS OFF) {notifications._PLACES}",
        [workspace_id], ["ann"], ["k1"], [timedelta(minutes=1)], timedelta(minutes=1), 20, timedelta(hours=1),
    )  # fmt: skip

    plan = "\n".join(row[0] for row in rows)
    assert "notifications_alike" in plan
    assert "Seq Scan on notifications" not in plan


async def save(pool: Pool, wanted: NewRule) -> None:
    async with pool.acquire() as conn, conn.transaction():
        await notification_rules.save_rule(conn, wanted, Act())
