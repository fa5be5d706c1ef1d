"""The hot statements use the indexes that they name, whatever the tables hold."""

import re
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from runlane.db import (
    blackouts,
    claims,
    fires,
    interruptions,
    limits,
    nudges,
    preparing,
    queries,
    settle,
    sharing,
    staging,
    taking,
    target_moves,
    triggers,
    waiting_fires,
)
from runlane.db.pool import Pool
from runlane.db.views import heads
from runlane.definitions import parse_definition

pytestmark = pytest.mark.breaks_invariants  # rows are written without their events


async def plan(pool: Pool, sql: str, *args: object) -> str:
    """The plan that is used once statistics say that finished rows outnumber live ones by far."""
    async with pool.acquire() as conn, conn.transaction():
        await conn.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        rows = await conn.fetch(f"EXPLAIN (COSTS OFF) {sql}", *args)
    return "\n".join(row[0] for row in rows)


@pytest.fixture
async def many_finished(pool: Pool, workspace_id: UUID) -> UUID:
    """A run with 20,000 finished jobs and 10,000 that wait."""
    definition = parse_definition({"name": "n", "jobs": {"a": {"run": "noop"}}}).as_json()
    run_id: UUID = await pool.fetchval(
        "INSERT INTO job_histories (workspace_id, name, definition) VALUES ($1, 'n', $2) RETURNING id",
        workspace_id,
        definition,
    )
    await pool.execute(
        """INSERT INTO run_steps (workspace_id, run_id, step_id, position, name, tool_id)
           VALUES ($1, $2, 'a', 0, 'a', 'noop')""",
        workspace_id,
        run_id,
    )
    await pool.execute(
        """INSERT INTO jobs (workspace_id, run_id, step_id, tool_id, toolset, category, subject_id, spec,
                             status, completed_at)
           SELECT $1, $2, 'a', 'noop', 'probe', 'bench', gen_random_uuid(), '{}',
                  CASE WHEN n > 10000 THEN 'completed' ELSE 'pending' END,
                  CASE WHEN n > 10000 THEN clock_timestamp() END
           FROM generate_series(1, 30000) n""",
        workspace_id,
        run_id,
    )
    await pool.execute("VACUUM ANALYZE jobs")
    return run_id


async def test_taking_due_jobs_reads_only_those_that_can_be_dispatched(
    pool: Pool, many_finished: UUID
) -> None:
    found = await plan(pool, taking._TAKE, many_finished, "a", True, [], [], 100)

    assert "jobs_dispatchable" in found
    assert "Seq Scan" not in found


async def test_claim_reads_only_rows_of_its_dispatch(pool: Pool, many_finished: UUID) -> None:
    found = await plan(pool, claims._CLAIM, uuid4(), uuid4(), uuid4(), 100, "key", None)

    assert "jobs_dispatched" in found
    assert "Seq Scan on jobs" not in found


async def test_what_has_waited_longest_is_looked_up_however_many_jobs_wait_or_have_ended(
    pool: Pool, many_finished: UUID
) -> None:
    workspace_id = await pool.fetchval("SELECT workspace_id FROM jobs LIMIT 1")
    await pool.execute("ANALYZE")

    async with pool.acquire() as conn:
        rows = await conn.fetch(
            f"EXPLAIN (ANALYZE, TIMING OFF, BUFFERS, FORMAT JSON) {heads._HEADS}", workspace_id
        )
        found = await heads.heads(conn, workspace_id)

    text = await plan(pool, heads._HEADS, workspace_id)
    assert "jobs_dispatchable" in text
    assert "Seq Scan on jobs" not in text
    assert rows[0][0][0]["Plan"]["Shared Hit Blocks"] < 500
    assert [each.priority for each in found] == ["normal"]


async def test_looking_for_live_jobs_does_not_read_finished_ones(pool: Pool, many_finished: UUID) -> None:
    found = await plan(pool, taking._LIVE, many_finished, "a")

    assert "Seq Scan on jobs" not in found
    assert re.search(r"jobs_(live|dispatchable)", found)


async def test_move_of_a_target_and_a_look_at_a_worker_read_no_finished_jobs(
    pool: Pool, workspace_id: UUID, many_finished: UUID
) -> None:
    moved = await plan(pool, target_moves._JOBS, [many_finished], uuid4())
    shown = await plan(pool, queries._HELD, workspace_id, uuid4())

    assert "jobs_live" in moved
    assert "jobs_dispatched" in shown
    assert "Seq Scan" not in moved + shown


async def test_jobs_of_a_lost_worker_are_looked_for_among_those_that_are_out(
    pool: Pool, many_finished: UUID
) -> None:
    found = await plan(pool, nudges._OF_WORKER, uuid4())

    assert "jobs_dispatched" in found
    assert "Seq Scan on jobs" not in found


async def test_writes_by_id_go_by_the_primary_key_when_nothing_was_in_progress_at_the_last_analyze(
    pool: Pool, many_finished: UUID
) -> None:
    """The planner then believes that live rows are few and likes any index that holds only those."""
    verdicts = await plan(pool, settle._WRITE_JOBS, *([] for _ in range(10)))
    stage = await plan(pool, staging._STAGE, uuid4(), uuid4(), uuid4(), None, *([] for _ in range(9)))

    assert "jobs_pkey" in verdicts
    assert "jobs_pkey" in stage
    assert "Seq Scan" not in verdicts + stage


async def test_suspects_are_looked_for_in_an_index_of_their_own(pool: Pool, many_finished: UUID) -> None:
    found = await plan(pool, taking._IS_SUSPECT_OUT, uuid4(), "probe")

    assert "jobs_suspect" in found


async def test_use_of_a_shared_queue_is_read_from_its_open_batches(pool: Pool, many_finished: UUID) -> None:
    found = await plan(pool, sharing._USE, "scan.shared.probe", uuid4(), "probe", [])

    assert "dispatches_queued" in found
    assert "Seq Scan on jobs" not in found


async def test_claims_under_a_limit_look_jobs_up_by_id(pool: Pool, many_finished: UUID) -> None:
    used = await plan(pool, limits._USED, [uuid4()])
    asking = await plan(pool, limits._ASKING, [uuid4()])

    assert "jobs_pkey" in used
    assert "Seq Scan on jobs" not in used + asking


async def test_close_of_a_run_and_the_sweep_of_fires_read_what_waits_and_is_overdue_only(
    pool: Pool, workspace_id: UUID
) -> None:
    await pool.execute(
        """INSERT INTO schedules (workspace_id, name, run, spec, expected_at)
           SELECT $1, n::text, '{}', '{"catch_up_s": 60, "jitter_s": 0}', now() + interval '1 day'
           FROM generate_series(1, 5000) n""",
        workspace_id,
    )
    await pool.execute(
        """INSERT INTO schedule_fires (schedule_id, workspace_id, due_at, outcome)
           SELECT id, workspace_id, to_timestamp(n * 3600), 'skipped'
           FROM schedules, generate_series(1, 5) n"""
    )
    await pool.execute("VACUUM ANALYZE schedules")
    await pool.execute("VACUUM ANALYZE schedule_fires")

    closing = await plan(pool, waiting_fires._AFTER_RUN, uuid4())
    overdue = await plan(pool, fires._OVERDUE, uuid4(), 1000)

    assert "schedule_fires_waiting" in closing
    assert "Seq Scan on schedule" not in closing
    assert "schedules_expected" in overdue
    assert "Seq Scan" not in overdue


async def test_blackout_windows_look_at_what_waits_in_a_step_and_at_what_is_in_flight(
    pool: Pool, many_finished: UUID
) -> None:
    about = (None, uuid4(), None)
    held = await plan(pool, blackouts._HOLD_STEP, datetime.now(UTC), *about, many_finished, "a")
    batch = await plan(pool, blackouts._HOLD_DISPATCHED, datetime.now(UTC), *about, uuid4())
    running = await plan(pool, interruptions._RUNNING, uuid4(), *about, 1_000)

    assert "jobs_dispatched" in batch
    assert "jobs_dispatched" in running
    assert "Seq Scan on jobs" not in held + batch + running


async def test_relay_finds_gathered_targets_and_admit_unprepared_ones_without_reading_them_all(
    pool: Pool, many_finished: UUID
) -> None:
    await pool.execute(
        """INSERT INTO targets (workspace_id, kind, value)
           SELECT workspace_id, 'domain', 'h' || n FROM job_histories, generate_series(1, 20000) n"""
    )
    await pool.execute(
        "INSERT INTO run_targets (workspace_id, run_id, target_id) SELECT workspace_id, $1, id FROM targets",
        many_finished,
    )
    await pool.execute(
        """INSERT INTO workflow_definitions (workspace_id, name, body)
           SELECT workspace_id, 'd' || n, '{"on": ["target.created"]}'
           FROM job_histories, generate_series(1, 9) n"""
    )
    await pool.execute(
        """INSERT INTO gathered_targets (workspace_id, definition_id, hops, event, rule, target_id)
           SELECT t.workspace_id, (SELECT min(id::text)::uuid FROM workflow_definitions), 1, 'x', 1, t.id
           FROM targets t"""
    )
    await pool.execute("VACUUM ANALYZE gathered_targets, workflow_definitions, run_targets, targets")

    called = await plan(pool, triggers._CALL)
    unprepared = await plan(pool, f"SELECT {preparing.is_unprepared('$1::uuid')}", many_finished)
    taken = await plan(pool, preparing._TAKE_SOME, many_finished, 1_000)

    assert "gathered_targets_of" in called
    assert "Seq Scan on gathered_targets" not in called
    assert "run_targets_new" in unprepared
    assert "Seq Scan" not in unprepared + taken
