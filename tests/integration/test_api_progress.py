"""How far a run is, and the list of runs: filters, orders, and what their statements read."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from runlane.db.pool import Pool
from runlane.db.views import tally
from runlane.db.views.runs import RunFilter, run_statement
from runlane.db.views.tally import Tallies
from runlane.jobs import JobStatus, RunStatus
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem

pytestmark = [pytest.mark.integration, pytest.mark.breaks_invariants]  # rows are written without their events

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


async def _add_jobs(pool: Pool, run_id: str, count: int, ended_s_ago: float) -> None:
    await pool.execute(
        """INSERT INTO jobs (workspace_id, run_id, step_id, tool_id, toolset, category, subject_id, spec,
                             status, completed_at)
           SELECT workspace_id, run_id, step_id, tool_id, toolset, category, gen_random_uuid(), '{}',
                  'completed', clock_timestamp() - make_interval(secs => $3)
           FROM (SELECT * FROM jobs WHERE run_id = $1 LIMIT 1) j, generate_series(1, $2)""",
        UUID(run_id),
        count,
        ended_s_ago,
    )


async def test_progress_counts_estimates_and_is_honest(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    run_id = await world.start_run(caller, await world.add_target(caller))
    await pool.execute("UPDATE run_steps SET opened_at = opened_at - interval '10 min' WHERE position = 0")

    first = (await caller.http.get(f"/v1/runs/{run_id}/progress")).json()
    await _add_jobs(pool, run_id, 60, 1.0)
    later = (await caller.http.get(f"/v1/runs/{run_id}/progress")).json()

    assert (first["total"], first["ended"]) == (1, 0)
    assert first["steps"][0]["estimate"]["unknown"] == "too few of its jobs have ended"
    assert first["steps"][1]["estimate"]["unknown"] == "it has not begun"
    assert (later["total"], later["ended"]) == (61, 60)
    assert later["steps"][0]["jobs"] == {"completed": 60, "pending": 1}
    assert later["steps"][0]["estimate"] == {"left_s": 1.0, "per_minute": 60.0, "unknown": None}
    assert later["estimate"]["unknown"] == "steps that have not begun: 4"
    run = (await caller.http.get(f"/v1/runs/{run_id}")).json()
    assert run["jobs"] == {"completed": 60, "pending": 1}
    async with world.caller("theirs") as other:
        assert_problem(await other.http.get(f"/v1/runs/{run_id}/progress"), 404, "run.not_found")


async def test_remembered_tally_equals_a_fresh_one_and_reads_no_old_rows(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    run_id = await world.start_run(caller, await world.add_target(caller))
    ours = (caller.workspace_id, UUID(run_id))
    remembered = Tallies()
    await _add_jobs(pool, run_id, 20_000, 3_600.0)
    async with pool.acquire() as conn:
        await remembered.tally(conn, *ours)
        await _add_jobs(pool, run_id, 30, 61.0)  # older than what is counted anew
        await _add_jobs(pool, run_id, 40, 5.0)
        # those that ended unseen before the moment that is remembered are found by the next full count only
        known = await remembered.tally(conn, *ours)
        fresh = await Tallies().tally(conn, *ours)
        await conn.execute("VACUUM ANALYZE jobs")
        rows = await conn.fetch(
            f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {tally._TALLY}",
            *ours,
            datetime.now(UTC) - timedelta(seconds=60),
            60.0,
        )
    plan = "\n".join(row[0] for row in rows)

    key = ("subdomains", JobStatus.COMPLETED)
    assert fresh.jobs[key] == 20_070
    assert known.jobs[key] in (20_040, 20_070)
    assert known.recent == fresh.recent == {"subdomains": 40}
    assert "jobs_ended" in plan
    assert "Seq Scan" not in plan


async def test_runs_are_filtered_and_sorted_as_a_console_needs(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    target = await world.add_target(caller)
    ids = [await world.start_run(caller, target) for _ in range(3)]
    for run_id, name, kind, by, days in (
        (ids[0], "weekly external", "workflow", "ana", 3),
        (ids[1], "100% of it", "discovery", "ben", 2),
        (ids[2], "Weekly internal", "workflow", "ana", 1),
    ):
        await pool.execute(
            """UPDATE job_histories SET name = $2, kind = $3, created_by = $4,
                      created_at = $5::timestamptz + make_interval(days => $6) WHERE id = $1""",
            UUID(run_id),
            name,
            kind,
            by,
            LONG_AGO,
            days,
        )

    async def found(query: str) -> list[int]:
        answer = await caller.http.get(f"/v1/runs{query}")
        assert answer.status_code == 200, answer.text
        return [ids.index(row["id"]) for row in answer.json()["items"]]

    assert await found("") == [0, 1, 2]  # the newest first
    assert await found("?sort=created_at") == [2, 1, 0]
    assert await found("?sort=name") in ([1, 0, 2], [1, 2, 0])  # as the database's collation has it
    assert await found("?sort=-started_by") == [1, 0, 2]
    assert await found("?name=WEEKLY") == [0, 2]
    assert await found("?name=100%25") == [1]
    assert await found("?kind=workflow&started_by=ana&until=2026-01-03T00:00:00Z") == [2]
    assert await found("?since=2026-01-03T00:00:00%2B00:00") == [0, 1]
    assert await found("?limit=2&sort=status") == [2, 1]
    for query in ("?since=2026-01-03T00:00:00", "?since=0001-01-01T00:00:00%2B14:00", "?name=a%00", "?by=x"):
        assert_problem(await caller.http.get(f"/v1/runs{query}"), 422, "request.invalid")


async def test_list_of_runs_reads_them_in_the_order_of_its_index(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings
) -> None:
    dialect = world.app.state.resources.engine.dialect
    await pool.execute(
        """INSERT INTO job_histories (workspace_id, name, definition, created_at)
           SELECT $1, 'n', '{}', $2::timestamptz + make_interval(mins => n)
           FROM generate_series(1, 20000) n""",
        caller.workspace_id,
        LONG_AGO,
    )
    owner = await asyncpg.connect(settings.database_url)
    await owner.execute("ANALYZE job_histories")
    await owner.close()
    wanted = RunFilter(
        [RunStatus.ACCEPTED], "workflow", "n", since=LONG_AGO, until=LONG_AGO + timedelta(days=2)
    )
    for each in (RunFilter(), wanted):
        query = str(
            run_statement(caller.workspace_id, each).compile(
                dialect=dialect, compile_kwargs={"literal_binds": True}
            )
        ).replace("%%", "%")
        rows = await pool.fetch(f"EXPLAIN (COSTS OFF) {query} ORDER BY created_at DESC, id DESC LIMIT 51")
        plan = "\n".join(row[0] for row in rows)

        assert "job_histories_list" in plan
        assert "Sort" not in plan
