"""What leaves the database of the event bridge, and what cannot: days of the outbox, the audit trail."""

from uuid import UUID

import asyncpg
import pytest

from runlane.db.pool import Pool
from tests.conftest import Database

pytestmark = pytest.mark.integration

OLD_DAY = """
CREATE TABLE outbox_20200101 PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')
"""
OLD_EVENT = """
INSERT INTO outbox (created_at, workspace_id, event_id, type, subject, data, bus_seq)
VALUES ('2020-01-01 12:00', gen_random_uuid(), gen_random_uuid(), 'job.created', 'test', '{}', $1)
"""
DROP = "SELECT runlane_drop_outbox_partition('outbox_20200101')"
AUDITED = """
INSERT INTO audit_events (workspace_id, event_id, bus_seq, type, subject, severity, data, occurred_at,
                          recorded_at)
SELECT $1, gen_random_uuid(), n, 'job.cancelled', 'job/' || n, 'info', '{}', clock_timestamp(),
       clock_timestamp() - $2::text::interval
FROM generate_series(1, 3) n RETURNING audit_id
"""


@pytest.fixture
async def old_day(database: Database, pool: Pool) -> str:
    """A day of the outbox long ago with one event, number 7; everything is published up to number 9."""
    owner = await asyncpg.connect(database.owner)
    await owner.execute(OLD_DAY)
    await owner.close()
    await pool.execute(OLD_EVENT, 7)
    await pool.execute("UPDATE bus_state SET last_seq = 9, published_seq = 9")
    return "outbox_20200101"


async def test_day_of_the_outbox_that_everybody_has_handled_is_dropped(pool: Pool, old_day: str) -> None:
    await pool.execute("INSERT INTO lane_checkpoints (lane, last_seq, live_at) VALUES ('audit', 7, now())")

    assert await pool.fetchval(DROP)

    assert await pool.fetchval("SELECT to_regclass($1)", old_day) is None
    assert await pool.fetchval("SELECT pruned_seq FROM bus_state") == 7


@pytest.mark.parametrize(
    "reason",
    [
        "INSERT INTO lane_checkpoints (lane, last_seq, live_at) VALUES ('audit', 6, now())",
        "UPDATE bus_state SET published_seq = 6",
        "UPDATE outbox SET bus_seq = NULL",
    ],
    ids=["a live lane is behind", "not published", "without a number"],
)
async def test_day_of_the_outbox_stays_while_somebody_needs_it(pool: Pool, old_day: str, reason: str) -> None:
    await pool.execute(reason)

    assert not await pool.fetchval(DROP)

    assert await pool.fetchval("SELECT count(*) FROM outbox") == 1


async def test_lane_that_is_dead_for_long_does_not_keep_the_outbox(pool: Pool, old_day: str) -> None:
    await pool.execute(
        "INSERT INTO lane_checkpoints (lane, last_seq, live_at) VALUES ('audit', 1, now() - interval '1 h')"
    )

    assert await pool.fetchval(DROP)


async def test_recent_day_and_other_tables_cannot_be_dropped(pool: Pool) -> None:
    today = await pool.fetchval("SELECT 'outbox_' || to_char(current_date, 'YYYYMMDD')")

    assert not await pool.fetchval("SELECT runlane_drop_outbox_partition($1)", today)
    with pytest.raises(asyncpg.PostgresError):
        await pool.fetchval("SELECT runlane_drop_outbox_partition('outbox_default')")


async def test_audit_trail_cannot_be_changed_by_anybody(
    database: Database, pool: Pool, workspace_id: UUID
) -> None:
    """Neither by the roles of the processes nor by the owner of the tables."""
    await pool.execute(AUDITED, workspace_id, "100 days")
    refused = []

    for url in (database.system, database.api, database.owner):
        conn = await asyncpg.connect(url)
        for act in ("DELETE FROM audit_events", "UPDATE audit_events SET type = ''", "TRUNCATE audit_events"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError) as refusal:
                await conn.execute(act)
            refused.append(refusal.value)
        await conn.close()

    assert len(refused) == 9
    assert await pool.fetchval("SELECT count(*) FROM audit_events") == 3


@pytest.mark.parametrize(
    ("age", "count"), [("100 days", 2), ("10 days", 3)], ids=["not all are archived", "too young"]
)
async def test_audit_events_leave_only_when_archived_and_old(
    pool: Pool, workspace_id: UUID, age: str, count: int
) -> None:
    ids = [row[0] for row in await pool.fetch(AUDITED, workspace_id, age)]

    with pytest.raises(asyncpg.PostgresError):
        await pool.execute(
            "SELECT runlane_drop_archived_audit($1, $2, $3, 'key', $4)", ids[0], ids[-1], count, bytes(32)
        )

    assert await pool.fetchval("SELECT count(*) FROM audit_events") == 3
    assert await pool.fetchval("SELECT count(*) FROM audit_archives") == 0
