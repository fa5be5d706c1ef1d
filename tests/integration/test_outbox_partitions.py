"""Partitions of the outbox after the installation stood still for longer than it had made them ahead."""

import asyncpg
import pytest

from runlane.db import outbox
from runlane.db.pool import Pool
from tests.conftest import Database

pytestmark = pytest.mark.integration

DAYS = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^outbox_[0-9]+$' ORDER BY 1"
EVENT = """
INSERT INTO outbox (workspace_id, event_id, type, subject, data)
VALUES (gen_random_uuid(), gen_random_uuid(), 'job.created', 'test', '{}')
"""


async def test_events_that_came_before_their_partition_do_not_keep_later_days_from_theirs(
    database: Database, pool: Pool
) -> None:
    owner = await asyncpg.connect(database.owner)
    for day in await owner.fetch(DAYS):
        await owner.execute(f"DROP TABLE {day['relname']}")
    await owner.close()
    await pool.execute(EVENT)

    made = await pool.fetchval("SELECT runlane_ensure_outbox_partitions(7)")

    assert made == outbox.PARTITION_DAYS_AHEAD
    assert len(await pool.fetch(DAYS)) == 7
    assert await pool.fetchval("SELECT count(*) FROM outbox_default") == 1
