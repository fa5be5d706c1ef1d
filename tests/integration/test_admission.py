"""Admission of a step's jobs: what is written once, and from which scope."""

import asyncio
import re
from datetime import UTC, datetime
from uuid import UUID

import pytest

from runlane.db import admit
from runlane.db.admit import admit_chunk, open_step
from runlane.db.cancel import cancel_run
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from runlane.tools import FansOut
from tests.integration.test_plans import plan
from tests.waiting import until

pytestmark = pytest.mark.integration

TARGET = """
INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', $2 || '.lab.test') RETURNING id
"""
BEGIN_ANEW = "UPDATE run_steps SET admit_cursor = NULL, admitted_at = NULL"
MANY_TARGETS = """
WITH made AS (
  INSERT INTO targets (workspace_id, kind, value)
  SELECT $1, 'domain', 'many-' || n || '.lab.test' FROM generate_series(1, 20000) n RETURNING id
)
INSERT INTO run_targets (workspace_id, run_id, target_id) SELECT $1, $2, id FROM made
"""
CREATED = "SELECT count(*) FROM outbox WHERE type = 'job.created'"


async def begin(pool: Pool, workspace_id: UUID, *hosts: str) -> UUID:
    """Writes a run of one step over these hosts, its jobs admitted."""
    definition = parse_definition({"name": "test", "jobs": {"only": {"run": "noop"}}})
    targets = [await pool.fetchval(TARGET, workspace_id, host) for host in hosts]
    async with pool.acquire() as conn, conn.transaction():
        return (await start_run(conn, StartRun(workspace_id, definition, targets, "test"))).run_id


async def admit_next(pool: Pool, run_id: UUID) -> int:
    """Admits the next chunk; returns how many jobs that were."""
    async with pool.acquire() as conn, conn.transaction():
        await open_step(conn, run_id, "only")
        return (await admit_chunk(conn, run_id, "only")).jobs


async def test_admission_that_is_repeated_writes_no_job_and_no_event_twice(
    pool: Pool, workspace_id: UUID
) -> None:
    run_id = await begin(pool, workspace_id, "a", "b", "c")
    await pool.execute(BEGIN_ANEW)

    again = await admit_next(pool, run_id)

    assert again == 0
    assert await pool.fetchval("SELECT count(*) FROM jobs") == await pool.fetchval(CREATED) == 3
    assert await pool.fetchval("SELECT jobs_total FROM run_steps") == 3


async def test_target_that_came_after_the_step_had_opened_is_not_in_its_scope(
    pool: Pool, workspace_id: UUID
) -> None:
    run_id = await begin(pool, workspace_id, "a")
    late = await pool.fetchval(TARGET, workspace_id, "late")
    await pool.execute("INSERT INTO run_targets VALUES ($1, $2, $3)", workspace_id, run_id, late)
    await pool.execute(BEGIN_ANEW)

    assert await admit_next(pool, run_id) == 0


async def test_chunk_of_a_large_step_reads_no_target_before_its_cursor(
    pool: Pool, workspace_id: UUID
) -> None:
    run_id = await begin(pool, workspace_id, *(f"h{number}" for number in range(3)))
    await pool.execute(MANY_TARGETS, workspace_id, run_id)
    await pool.execute("ANALYZE targets, run_targets")

    found = await plan(pool, admit._SUBJECTS[FansOut.TARGETS], run_id, datetime.now(UTC), admit._FIRST, 1000)

    assert re.search(r"Index (Only )?Scan using run_targets_pkey.*\n.*target_id > ", found), found
    assert not re.search(r"Sort|Hash|Seq Scan", found), found


async def test_steps_of_a_run_that_are_admitted_at_once_leave_its_row_to_others_in_between(
    pool: Pool, workspace_id: UUID
) -> None:
    definition = parse_definition({"name": "t", "jobs": {"a": {"run": "noop"}, "b": {"run": "noop"}}})
    target_id = await pool.fetchval(TARGET, workspace_id, "h")
    async with pool.acquire() as conn, conn.transaction():
        request = StartRun(workspace_id, definition, [target_id], "t")
        run_id = (await start_run(conn, request)).run_id
    await pool.execute(BEGIN_ANEW)

    async def admitted(step_id: str) -> None:
        async with pool.acquire() as conn, conn.transaction():
            await admit_chunk(conn, run_id, step_id)

    async with pool.acquire() as conn, conn.transaction():
        await admit_chunk(conn, run_id, "a")
        other = asyncio.create_task(admitted("b"))
        await until(lambda: _waits_or_ended(pool, other))
        is_over = other.done()
    await other

    assert not is_over  # or the next chunk of "a" would begin before this one of "b" lets go of the row


async def _waits_or_ended(pool: Pool, task: "asyncio.Task[None]") -> bool:
    return task.done() or bool(await pool.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))


async def test_cancelled_run_admits_no_more(pool: Pool, workspace_id: UUID) -> None:
    run_id = await begin(pool, workspace_id, "a", "b")
    await pool.execute(BEGIN_ANEW)
    await pool.execute("DELETE FROM jobs")
    async with pool.acquire() as conn, conn.transaction():
        await cancel_run(conn, workspace_id, run_id)

    assert await admit_next(pool, run_id) == 0
    assert await pool.fetchval("SELECT count(*) FROM jobs") == 0
