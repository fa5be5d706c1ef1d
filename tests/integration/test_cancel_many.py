"""Cancel of many jobs by a filter: in portions, each row once, one event each, whoever dies in the middle."""

import asyncio
import re
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from activities.verdicts import events_of
from lanes.operations import carry_on, run_operations
from runlane.db import cancel, operation_rows, operations, outbox, priorities, runs, settle
from runlane.db.acts import Act
from runlane.db.cancel import cancel_job
from runlane.db.operations import Which, abort, advance, begin_cancel
from runlane.db.pool import Pool
from runlane.definitions import parse_definition
from runlane.errors import Conflict, Invalid, NotFound
from runlane.events import Actor
from runlane.jobs import Outcome
from runlane.settings import Settings
from tests.conftest import Database
from tests.integration.dispatched_run import dispatched_run
from tests.integration.scan_host import enrol
from tests.integration.test_plans import plan
from tests.waiting import until

pytestmark = pytest.mark.integration

MANY = 100_000

_COUNT_TOUCHES = """
CREATE TABLE touches (id uuid);
CREATE FUNCTION count_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO touches VALUES (new.id); RETURN NULL; END $$;
GRANT ALL ON touches TO runlane_system;
CREATE TRIGGER count_touch AFTER UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION count_touch();
"""


_LISTENS = """
SELECT EXISTS (SELECT FROM pg_stat_activity
               WHERE datname = current_database() AND query LIKE 'LISTEN%operations%')
"""
_WAITS = """
SELECT EXISTS (SELECT FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock')
"""


async def attempts_read(pool: Pool, dispatch_ids: list[UUID]) -> list[settle.Attempt]:
    """Attempts as a settle reads them."""
    async with pool.acquire() as conn:
        return await settle.attempts_of(conn, dispatch_ids)


async def run_of(pool: Pool, workspace_id: UUID, jobs: int) -> UUID:
    """An open run of one step with so many jobs that wait."""
    definition = parse_definition({"name": "n", "jobs": {"a": {"run": "noop"}}}).as_json()
    run_id: UUID = await pool.fetchval(
        """INSERT INTO job_histories (workspace_id, name, definition, status) VALUES ($1, 'n', $2, 'running')
           RETURNING id""",
        workspace_id,
        definition,
    )
    await pool.execute(
        """INSERT INTO run_steps (workspace_id, run_id, step_id, position, name, tool_id, status, opened_at,
                                  scope_as_of, admitted_at)
           VALUES ($1, $2, 'a', 0, 'a', 'noop', 'running', now(), now(), now())""",
        workspace_id,
        run_id,
    )
    await add_jobs(pool, workspace_id, run_id, jobs)
    return run_id


async def add_jobs(pool: Pool, workspace_id: UUID, run_id: UUID, count: int) -> None:
    """More jobs that wait."""
    await pool.execute(
        """INSERT INTO jobs (workspace_id, run_id, step_id, tool_id, toolset, category, subject_id, spec)
           SELECT $1, $2, 'a', 'noop', 'probe', 'bench', gen_random_uuid(), '{}'
           FROM generate_series(1, $3)""",
        workspace_id,
        run_id,
        count,
    )


async def as_owner(database: Database, sql: str) -> None:
    """Runs statements that only the owner of the schema may run."""
    conn = await asyncpg.connect(database.owner)
    await conn.execute(sql)
    await conn.close()


async def begin(pool: Pool, workspace_id: UUID, which: Which) -> dict[str, object]:
    """Begins a cancel, as a request does."""
    act = Act(Actor("key", "api_key"), "ops", "wrong scope")
    async with pool.acquire() as conn, conn.transaction():
        return await begin_cancel(conn, workspace_id, which, act)


async def test_cancel_of_100000_jobs_by_filter_writes_one_event_each_and_touches_each_row_once(
    pool: Pool, workspace_id: UUID, database: Database
) -> None:
    run_id = await run_of(pool, workspace_id, MANY)
    await pool.execute("ANALYZE jobs")
    await as_owner(database, _COUNT_TOUCHES)

    begun = await begin(pool, workspace_id, Which(run_id=run_id))
    assert (begun["changed"], begun["finished_at"]) == (operation_rows.CHUNK, None)
    await add_jobs(pool, workspace_id, run_id, 3)

    async with pool.acquire() as conn:  # whoever carries it on dies before the commit
        dying = conn.transaction()
        await dying.start()
        await advance(conn)
        await dying.rollback()
    chunks = await asyncio.gather(*(carry_on(pool, asyncio.Event()) for _ in range(2)))

    row = await pool.fetchrow("SELECT matched, changed, finished_at FROM operations")
    assert row is not None
    assert (row["matched"], row["changed"]) == (MANY, MANY)
    assert row["finished_at"] is not None
    assert sum(chunks) == MANY // operation_rows.CHUNK
    statuses = await pool.fetch("SELECT status, count(*) FROM jobs GROUP BY status")
    assert dict(map(tuple, statuses)) == {"cancelled": MANY, "pending": 3}
    assert await pool.fetchval("SELECT count(*) FROM touches") == MANY
    events = """SELECT count(*), count(DISTINCT subject), bool_and(attributes ->> 'cause' = 'operation'),
                       bool_and(attributes ->> 'actorid' = 'key') FROM outbox WHERE type = 'job.cancelled'"""
    assert tuple(await pool.fetchrow(events) or ()) == (MANY, MANY, True, True)
    assert await pool.fetchval("SELECT count(*) FROM commands WHERE kind = 'nudge'") == 1


async def test_operation_goes_on_in_the_lanes_as_soon_as_it_is_written(
    pool: Pool, workspace_id: UUID, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_rows, "CHUNK", 2)
    stop = asyncio.Event()
    lane = asyncio.create_task(run_operations(settings, stop))
    await until(lambda: pool.fetchval(_LISTENS))
    run_id = await run_of(pool, workspace_id, 7)

    begun = await begin(pool, workspace_id, Which(run_id=run_id))

    assert begun["finished_at"] is None
    await until(lambda: pool.fetchval("SELECT finished_at IS NOT NULL FROM operations"))
    assert await pool.fetchval("SELECT changed FROM operations") == 7
    stop.set()
    await lane


async def test_cancel_that_meets_a_verdict_waits_for_it_and_is_refused(
    pool: Pool, workspace_id: UUID
) -> None:
    run = await dispatched_run(pool, workspace_id)
    host = await enrol(pool, workspace_id)
    (job,) = (await host.claim(run.dispatches[0], "key", 1)).jobs
    (attempt,) = await attempts_read(pool, run.dispatches)

    async def cancel_it() -> bool:
        async with pool.acquire() as conn, conn.transaction():
            return await cancel_job(conn, workspace_id, job.job_id)

    async with pool.acquire() as conn, conn.transaction():
        await settle.lock(conn, [attempt])
        cancelling = asyncio.create_task(cancel_it())
        await until(lambda: pool.fetchval(_WAITS))
        decision = settle.decide(attempt, Outcome.FATAL, "no")
        await settle.write(conn, [decision])
        await outbox.insert(conn, events_of([decision], datetime.now(UTC)))

    with pytest.raises(Conflict) as late:
        await cancelling
    assert late.value.code == "job.final"
    assert await pool.fetchval("SELECT status FROM jobs") == "failed"


async def test_filter_is_frozen_names_only_what_fits_and_ends_at_once_when_little_does(
    pool: Pool, workspace_id: UUID
) -> None:
    mine, other = [await run_of(pool, workspace_id, 5) for _ in range(2)]

    done = await begin(pool, workspace_id, Which(run_id=mine, tool_id="noop", status="pending"))

    assert done["finished_at"] is not None
    assert (done["matched"], done["changed"]) == (5, 5)
    left = await pool.fetch("SELECT DISTINCT run_id FROM jobs WHERE status = 'pending'")
    assert [row["run_id"] for row in left] == [other]
    assert await pool.fetchval("SELECT data ->> 'reason' FROM outbox WHERE type = 'operator.acted'") == (
        "wrong scope"
    )


async def test_empty_filter_and_foreign_things_are_refused(pool: Pool, workspace_id: UUID) -> None:
    stranger = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('other') RETURNING id")
    run_id = await run_of(pool, workspace_id, 1)

    with pytest.raises(Invalid) as empty:
        await begin(pool, workspace_id, Which())
    with pytest.raises(NotFound) as foreign:
        await begin(pool, stranger, Which(run_id=run_id))

    assert (empty.value.code, foreign.value.code) == ("filter.empty", "run.not_found")
    assert await pool.fetchval("SELECT count(*) FROM jobs WHERE status = 'pending'") == 1


async def test_aborted_operation_leaves_the_rest(
    pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_rows, "CHUNK", 2)
    run_id = await run_of(pool, workspace_id, 5)
    begun = await begin(pool, workspace_id, Which(run_id=run_id))
    operation_id = UUID(str(begun["id"]))

    async with pool.acquire() as conn, conn.transaction():
        first = await abort(conn, workspace_id, operation_id, Act())
        again = await abort(conn, workspace_id, operation_id, Act())

    assert first == again
    assert await carry_on(pool, asyncio.Event()) == 0
    assert await pool.fetchval("SELECT count(*) FROM jobs WHERE status = 'pending'") == 3
    done = await begin(pool, workspace_id, Which(step_id="a"))
    await carry_on(pool, asyncio.Event())
    with pytest.raises(Conflict) as late:
        async with pool.acquire() as conn:
            await abort(conn, workspace_id, UUID(str(done["id"])), Act())
    assert late.value.code == "operation.finished"


@pytest.mark.breaks_invariants  # rows are written without their events
async def test_acts_do_not_read_finished_jobs(pool: Pool, workspace_id: UUID) -> None:
    run_id = await run_of(pool, workspace_id, 100)
    await pool.execute(
        """INSERT INTO jobs (workspace_id, run_id, step_id, tool_id, toolset, category, subject_id, spec,
                             status, completed_at)
           SELECT $1, $2, 'a', 'noop', 'probe', 'bench', gen_random_uuid(), '{}', 'completed', now()
           FROM generate_series(1, 20000)""",
        workspace_id,
        run_id,
    )
    await pool.execute("VACUUM ANALYZE jobs")

    for sql, arguments in (
        (operations._MATCH, [workspace_id, *[None] * 5, datetime.now(UTC), 1000]),
        (cancel._FIRST, [run_id, "a", 1000]),
        (operations._LEFT, [run_id, None, 1000]),
        (priorities._JOBS_OF_STEP, [1, run_id, "a"]),
        (runs._EMPTY, [run_id, "run/x"]),
    ):
        found = await plan(pool, sql, *arguments)

        assert re.search(r"jobs_(live|dispatched)", found), found
        assert "Seq Scan on jobs" not in found
