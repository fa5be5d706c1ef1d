"""The projection lane: statistics equal what happened, and summaries equal the inventory."""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from random import Random
from uuid import UUID, uuid4

import pytest
import structlog.testing
from redis.asyncio import Redis

from lanes import outages, summaries, turns, unordered
from lanes.projection import ProjectionSink
from runlane import names
from runlane.db import lanes, statistics
from runlane.db import summaries as summaries_db
from runlane.db.pool import Connection, Pool
from runlane.db.sweeps import pruning
from runlane.events import EVENT_CATALOG, BusEvent, Envelope, envelope, payloads
from runlane.settings import Settings
from runlane.statistics import METRICS, Granularity
from runlane.sweeps import Retention
from runlane.tools import Category
from tests.integration.event_bus import cancelled, created, lane, produce, relay, running
from tests.integration.inboxes import failed
from tests.integration.merge_world import World
from tests.waiting import until

pytestmark = pytest.mark.integration

PORTS, FINDINGS, NAMES = Category.PORTS_SCANNER, Category.VULNERABILITIES, Category.SUBDOMAINS
ORIGIN = "http://app.lab.test:8080/"
TRUTH = """
SELECT (SELECT count(*) FROM assets a WHERE a.target_id = $1 AND a.gone_at IS NULL) AS assets,
       (SELECT count(*) FROM ports p JOIN assets a ON a.id = p.asset_id
        WHERE a.target_id = $1 AND a.gone_at IS NULL AND p.closed_at IS NULL) AS ports,
       (SELECT count(*) FROM asset_services s JOIN assets a ON a.id = s.asset_id
        WHERE a.target_id = $1 AND a.gone_at IS NULL AND s.closed_at IS NULL) AS services,
       (SELECT count(*) FROM vulnerabilities v JOIN assets a ON a.id = v.asset_id
        WHERE a.target_id = $1 AND v.status = 'open' AND v.severity = 'high') AS high
"""
KEPT = "SELECT assets, ports, services, findings_high AS high FROM target_summaries WHERE target_id = $1"


@pytest.fixture
def _quick_lane(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(outages, "FIRST_PAUSE", timedelta(milliseconds=5))
    monkeypatch.setattr(turns, "BLOCK", timedelta(milliseconds=50))
    monkeypatch.setattr(unordered, "IDLE", timedelta(milliseconds=100))
    monkeypatch.setattr(unordered, "LOOK", timedelta(0))
    with structlog.testing.capture_logs():
        yield


class Stumbling(ProjectionSink):
    """Fails once on each batch that holds one of these events, after it has written."""

    def __init__(self, events: Sequence[Envelope]) -> None:
        self.failing = {event.id for event in events}

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        await super().handle(conn, events)
        met = self.failing & {event.envelope.id for event in events}
        if met:
            self.failing -= met if len(events) == 1 else set()
            raise ValueError("no")


def completed(workspace_id: UUID) -> Envelope:
    job = uuid4()
    payload = payloads.JobCompleted(
        job_id=job, run_id=job, step_id="a", tool_id="noop", attempt=1, records=0, quarantined=0, new=0
    )
    return envelope(
        EVENT_CATALOG.job.completed, payload, workspace_id=workspace_id, subject=names.job_subject(job)
    )


def run_event(world: World, what: str) -> Envelope:
    leaf = EVENT_CATALOG.workflow.run.completed if what == "completed" else EVENT_CATALOG.workflow.run.started
    payload = payloads.RunPayload(run_id=world.run_id, name="r", kind="workflow", reason=None)
    subject = names.run_subject(world.run_id)
    return envelope(leaf, payload, workspace_id=world.workspace_id, subject=subject)


async def values(pool: Pool, workspace_id: UUID) -> dict[str, int]:
    rows = await pool.fetch(
        "SELECT metric, sum(value)::int AS value FROM daily_statistics WHERE workspace_id = $1 GROUP BY 1",
        workspace_id,
    )
    return {row["metric"]: row["value"] for row in rows}


async def hand(pool: Pool, events: Sequence[Envelope]) -> None:
    """Hands events to the sink as a turn of the lane would: what its inbox knows goes no further."""
    async with pool.acquire() as conn, conn.transaction():
        now = await conn.fetchval("SELECT clock_timestamp()")
        new = await lanes.receive(conn, "projection", list({event.id for event in events}))
        by_id = {event.id: event for event in events if event.id in new}
        await ProjectionSink().handle(conn, [BusEvent(event, 1, now) for event in by_id.values()])


async def settle(pool: Pool) -> None:
    while await summaries.turn(pool):
        pass


@pytest.mark.usefixtures("_quick_lane")
async def test_statistics_equal_what_happened_though_the_lane_fails_dies_and_loses_the_stream(
    pool: Pool, redis: Redis, settings: Settings, workspace_id: UUID
) -> None:
    sources = (created, completed, failed, cancelled)
    events = [source(workspace_id) for _ in range(60) for source in sources]
    sink = Stumbling(events[10:240:37])

    async def is_done(upto: int) -> bool:
        return (
            await pool.fetchval("SELECT last_seq FROM lane_checkpoints WHERE lane = 'projection'") or 0
        ) >= upto

    async with running(relay(settings)), running(lane(settings, sink)) as one, running(lane(settings, sink)):
        for start in range(0, 240, 80):
            await produce(pool, events[start : start + 80])
            await until(lambda start=start: is_done(start + 5))  # type: ignore[misc]  # bound now
            await one.restart()
            if start == 80:
                await redis.flushdb()
        await until(lambda: is_done(240))

    assert not sink.failing
    assert await values(pool, workspace_id) == dict.fromkeys(
        ("jobs.created", "jobs.completed", "jobs.failed", "jobs.cancelled"), 60
    )


async def test_summary_equals_the_inventory_whatever_the_order_of_events_and_however_often_they_come(
    pool: Pool,
) -> None:
    world = await World.make(pool)
    await pool.execute(
        "INSERT INTO run_targets (workspace_id, run_id, target_id) VALUES ($1, $2, $3)",
        world.workspace_id,
        world.run_id,
        world.target_id,
    )
    told = await scans(world)
    random = Random(7)
    for _ in range(3):
        events = random.sample(told, len(told))
        size = random.randint(1, 5)
        for start in range(0, len(events), size):
            await hand(pool, events[start : start + size])
            await summaries.turn(pool)
    await settle(pool)

    assert await pool.fetchrow(KEPT, world.target_id) == await pool.fetchrow(TRUTH, world.target_id)
    kept = await pool.fetchrow("SELECT * FROM target_summaries WHERE target_id = $1", world.target_id)
    assert kept is not None
    assert (kept["ports"], kept["findings_high"], kept["stale_since"]) == (2, 1, None)
    assert (kept["last_run_id"], kept["scanned_at"] is not None) == (world.run_id, True)
    assert await values(pool, world.workspace_id) == {
        "assets.discovered": 2,
        "assets.disappeared": 1,
        "ports.opened": 3,
        "ports.closed": 1,
        "services.discovered": 3,
        "services.closed": 1,
        "findings.detected.high": 2,
        "findings.resolved.high": 2,
        "findings.reopened.high": 1,
        "runs.started": 1,
        "runs.completed": 1,
    }


async def test_summaries_that_are_made_anew_equal_those_that_events_have_made(pool: Pool) -> None:
    world = await World.make(pool)
    await pool.execute(
        "INSERT INTO run_targets (workspace_id, run_id, target_id) VALUES ($1, $2, $3)",
        world.workspace_id,
        world.run_id,
        world.target_id,
    )
    await hand(pool, await scans(world))
    await settle(pool)
    kept = "SELECT to_jsonb(s) - 'marks' - 'refreshed_at' FROM target_summaries s"
    before = await pool.fetchval(kept)

    await pool.execute("DELETE FROM target_summaries")
    for _ in range(2):
        async with pool.acquire() as conn, conn.transaction():
            assert await summaries_db.rebuild(conn) == 1
        await settle(pool)

    assert await pool.fetchval(kept) == before


async def scans(world: World) -> list[Envelope]:
    """Things are found, vanish, and some come back; the events of all that."""
    told = [run_event(world, "started"), run_event(world, "completed")]
    await world.pool.execute(
        "UPDATE job_histories SET status = 'completed', started_at = now(), closed_at = now() WHERE id = $1",
        world.run_id,
    )

    async def scan(category: Category, *raws: object, minute: int, coverage: dict[str, object]) -> None:
        job = world.job(category, *raws, minute=minute, coverage=coverage)
        told.extend((await world.merge(category, job)).envelopes)

    ports: list[object] = [
        {"host": "app.lab.test", "address": "127.7.0.3", "port": port, "protocol": "tcp"} for port in (22, 80)
    ]
    findings: list[object] = [
        {"check": check, "name": check, "severity": "high", "url": f"{ORIGIN}{check}"} for check in "ab"
    ]
    looked: dict[str, object] = {"address": "127.7.0.3", "ports": "1-100"}
    checked: dict[str, object] = {"url": ORIGIN, "checks": ["a", "b"]}
    zone: dict[str, object] = {"zone": "lab.test", "method": ["axfr"]}
    await scan(NAMES, {"name": "b.lab.test", "records": {}}, minute=1, coverage=zone)
    await scan(PORTS, *ports, minute=1, coverage=looked)
    await scan(FINDINGS, *findings, minute=1, coverage=checked)
    for minute in (2, 3):
        await scan(NAMES, {"name": "app.lab.test", "records": {}}, minute=minute, coverage=zone)
        await scan(PORTS, ports[0], minute=minute, coverage=looked)
        await scan(FINDINGS, minute=minute, coverage=checked)
    await scan(PORTS, *ports, minute=4, coverage=looked)
    await scan(FINDINGS, findings[0], minute=4, coverage=checked)
    return told


async def test_what_changes_while_a_summary_is_counted_leaves_it_stale(pool: Pool) -> None:
    world = await World.make(pool)
    await pool.execute(
        "INSERT INTO target_summaries (workspace_id, target_id) VALUES ($1, $2)",
        world.workspace_id,
        world.target_id,
    )
    seen = ([world.workspace_id], [world.target_id], [0])
    touched = run_event(world, "completed")
    await hand(pool, [touched])  # no target of this run
    (event,) = (await world.merge(NAMES, world.job(NAMES, {"name": "lab.test", "records": {}}))).envelopes
    await hand(pool, [event])

    await pool.execute(summaries_db._COUNT, *seen)  # by what was read before the mark

    assert await pool.fetchval("SELECT stale_since IS NOT NULL AND assets = 2 FROM target_summaries")
    await settle(pool)
    assert await pool.fetchval("SELECT stale_since IS NULL FROM target_summaries")


async def test_a_count_waits_for_no_lane_and_no_lane_for_a_count(pool: Pool) -> None:
    world = await World.make(pool)
    await pool.execute(
        "INSERT INTO target_summaries (workspace_id, target_id) VALUES ($1, $2)",
        world.workspace_id,
        world.target_id,
    )
    async with pool.acquire() as other, other.transaction():
        await other.execute("UPDATE target_summaries SET marks = marks + 1")
        assert await summaries.turn(pool) == 0

    assert await summaries.turn(pool) == 1


async def test_a_snapshot_is_taken_once_a_day_of_each_workspace_and_told(pool: Pool) -> None:
    world = await World.make(pool)
    empty: UUID = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('e') RETURNING id")
    await pool.execute(
        "INSERT INTO target_summaries (workspace_id, target_id) VALUES ($1, $2)",
        world.workspace_id,
        world.target_id,
    )
    await settle(pool)
    assert await values(pool, world.workspace_id) == {}  # it was made today
    await pool.execute("UPDATE workspaces SET created_at = created_at - interval '1 day'")
    for _ in range(3):
        await summaries.turn(pool)

    gauges = await values(pool, world.workspace_id)
    assert gauges.keys() == {name for name, kind in METRICS.items() if kind == "gauge"}
    assert (gauges["live.targets"], (await values(pool, empty))["live.assets"]) == (1, 0)
    told = await pool.fetch("SELECT workspace_id, data FROM outbox WHERE type = 'statistic.snapshot.created'")
    assert sorted(row["workspace_id"] for row in told) == sorted([world.workspace_id, empty])


async def test_weeks_add_counters_up_and_keep_the_last_of_gauges(pool: Pool, workspace_id: UUID) -> None:
    rows = [("jobs.failed", 1), ("live.assets", 5)]
    for day in (date(2026, 11, 29), date(2026, 11, 30), date(2026, 12, 1)):
        for metric, value in rows:
            await pool.execute(
                "INSERT INTO daily_statistics VALUES ($1, $2, $3, $4)",
                workspace_id,
                metric,
                day,
                value + day.day,
            )
    asked = statistics.Asked(["jobs.failed", "live.assets"], 3, date(2026, 12, 1), Granularity.WEEK)
    async with pool.acquire() as conn:
        found = await statistics.read(conn, workspace_id, asked)

    assert [(point.metric, point.since.day, point.value) for point in found] == [
        ("jobs.failed", 23, 30),
        ("jobs.failed", 30, 33),
        ("live.assets", 23, 34),
        ("live.assets", 30, 6),
    ]


async def test_old_days_are_pruned_and_statistics_are_read_by_index(pool: Pool, workspace_id: UUID) -> None:
    await pool.execute(
        "INSERT INTO daily_statistics SELECT $1, m, current_date - n, 1 FROM generate_series(0, 999) n,"
        " unnest($2::text[]) m",
        workspace_id,
        list(METRICS)[:10],
    )
    await pool.execute(
        """WITH made AS (
             INSERT INTO targets (workspace_id, kind, value)
             SELECT $1, 'domain', 'd' || n || '.test' FROM generate_series(1, 3000) n RETURNING id
           )
           INSERT INTO target_summaries (workspace_id, target_id, stale_since) SELECT $1, id, NULL FROM made
        """,
        workspace_id,
    )
    await pool.execute("ANALYZE daily_statistics, target_summaries")

    read = await pool.fetch(
        f"EXPLAIN (COSTS OFF) {statistics._READ}", workspace_id, ["jobs.failed"], None, 30, "day"
    )
    stale = await pool.fetch(f"EXPLAIN (COSTS OFF) {summaries_db._STALE}", 50)
    (rule,) = (rule for rule in pruning.rules(Retention()) if rule.table == "daily_statistics")
    async with pool.acquire() as conn:
        pruned = await pruning.prune_rows(conn, rule, 10_000)

    assert "daily_statistics_pkey" in str(read)
    assert "Seq Scan" not in str(read)
    assert "target_summaries_stale" in str(stale)
    assert pruned == 10 * (1_000 - Retention().statistics_days)
