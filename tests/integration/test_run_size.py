"""Runs that are large, started and cancelled by requests that are small: others must not notice."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from runlane.db import outbox, starting
from runlane.db.acts import Act
from runlane.db.cancel import cancel_run
from runlane.db.pool import Connection, Pool
from runlane.db.starting import StartedRun, StartRun, start_run
from runlane.definitions import parse_definition
from runlane.errors import Invalid
from runlane.events import Envelope

pytestmark = pytest.mark.integration

OPEN = "SELECT count(*) FROM run_steps WHERE status = 'running'"
CANCELLED = "SELECT count(*) FROM outbox WHERE type = 'job.cancelled'"


async def begin(pool: Pool, workspace_id: UUID, steps: int, targets: int) -> StartedRun:
    """Writes a run of so many root steps over so many targets."""
    definition = parse_definition(
        {"name": "test", "jobs": {f"s{number}": {"run": "noop"} for number in range(steps)}}
    )
    async with pool.acquire() as conn, conn.transaction():
        rows = await conn.fetch(
            """INSERT INTO targets (workspace_id, kind, value)
               SELECT $1, 'domain', 'h' || n || '.lab.test' FROM generate_series(1, $2) n RETURNING id""",
            workspace_id,
            targets,
        )
        return await start_run(conn, StartRun(workspace_id, definition, [row["id"] for row in rows], "test"))


async def test_request_admits_few_jobs_and_leaves_the_rest_to_the_workflow(
    pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "ADMITTED_AT_ONCE", 10)

    started = await begin(pool, workspace_id, steps=5, targets=6)

    assert started.jobs == 12
    assert await pool.fetchval("SELECT count(*) FROM jobs") == 12
    assert await pool.fetchval(OPEN) == 5
    assert await pool.fetchval("SELECT count(*) FROM run_steps WHERE admitted_at IS NULL") == 3


async def test_cancel_of_many_jobs_makes_their_events_in_portions(
    pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = await begin(pool, workspace_id, steps=1, targets=120)
    portions: list[int] = []
    insert = outbox.insert

    async def counting(conn: Connection, envelopes: Sequence[Envelope]) -> None:
        portions.append(len(envelopes))
        await insert(conn, envelopes)

    monkeypatch.setattr(outbox, "INSERT_CHUNK", 50)
    monkeypatch.setattr(outbox, "insert", counting)
    async with pool.acquire() as conn, conn.transaction():
        result = await cancel_run(conn, workspace_id, started.run_id)

    assert result.jobs == await pool.fetchval(CANCELLED) == 120
    assert portions == [50, 50, 20, 2]


async def test_reason_of_a_cancel_is_masked_in_every_event(pool: Pool, workspace_id: UUID) -> None:
    started = await begin(pool, workspace_id, steps=1, targets=1)

    async with pool.acquire() as conn, conn.transaction():
        await cancel_run(conn, workspace_id, started.run_id, Act(reason="leaked: sk-live-0123456789"))

    reasons = await pool.fetch("SELECT data ->> 'reason' FROM outbox WHERE type LIKE '%.cancelled'")
    assert [row[0] for row in reasons] == ["leaked: ***", "leaked: ***"]


async def test_networks_of_more_addresses_than_one_request_can_write_are_refused(
    pool: Pool, workspace_id: UUID
) -> None:
    definition = parse_definition({"name": "test", "jobs": {"only": {"run": "noop"}}})
    rows = await pool.fetch(
        """INSERT INTO targets (workspace_id, kind, value)
           SELECT $1, 'cidr', '10.' || n || '.0.0/22' FROM generate_series(1, 17) n RETURNING id""",
        workspace_id,
    )
    targets = [row["id"] for row in rows]

    async with pool.acquire() as conn, conn.transaction():
        await start_run(conn, StartRun(workspace_id, definition, targets[:16], "test"))
    with pytest.raises(Invalid) as refusal:
        async with pool.acquire() as conn, conn.transaction():
            await start_run(conn, StartRun(workspace_id, definition, targets, "test"))

    assert refusal.value.code == "run.too_large"
    assert await pool.fetchval("SELECT count(*) FROM assets") == starting.MAX_ADDRESSES
