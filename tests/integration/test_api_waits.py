"""Why a job is pending: the answer follows the rows from one reason to the next."""

from uuid import UUID, uuid4

import asyncpg
import pytest

from runlane import names
from runlane.db.pool import Pool
from runlane.db.views import why
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.scan_host import enrol

pytestmark = [pytest.mark.integration, pytest.mark.breaks_invariants]  # rows are changed without their events

WORKER = """
INSERT INTO workers (scope, workspace_id, name, token_digest, incarnation, status, toolsets, slots)
VALUES ('workspace', $1, 'edge', $2, uuidv7(), $3, '{probe}', '{"probe": 4}')
ON CONFLICT DO NOTHING
"""


async def _why(caller: Caller, job_id: object) -> tuple[str | None, str]:
    answer = await caller.http.get(f"/v1/jobs/{job_id}/why")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    explanation = found["explanation"]
    return (explanation["reason"] if explanation else None), found["text"]


async def test_reason_of_a_pending_job_follows_its_rows(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    workspace_id = caller.workspace_id
    run = await dispatched_run(pool, workspace_id, Shape(batches=1, jobs_each=2))
    job_id = await pool.fetchval("SELECT id FROM jobs ORDER BY created_at, id LIMIT 1")
    last_id = await pool.fetchval("SELECT id FROM jobs ORDER BY created_at DESC, id DESC LIMIT 1")
    queue = names.scan_queue(workspace_id, "probe")

    reason, text = await _why(caller, job_id)
    assert (reason, text) == ("no_worker", "no live worker for the tool set probe")

    await pool.execute(WORKER, workspace_id, b"d" * 32, "draining")
    assert (await _why(caller, job_id))[1] == "no live worker for the tool set probe (1 draining)"

    await pool.execute("UPDATE workers SET status = 'online'")
    reason, text = await _why(caller, job_id)
    assert reason == "queued"
    assert text.startswith(f"dispatched; waits on {queue} since ")

    await pool.execute("UPDATE jobs SET dispatch_id = NULL")
    assert await _why(caller, last_id) == ("in_line", "in line; jobs of its step that come before it: 1")

    await pool.execute("UPDATE jobs SET due_at = clock_timestamp() + interval '1 hour', failures = 2")
    reason, text = await _why(caller, job_id)
    assert reason == "back_off"
    assert text.endswith("after failure 2 of 4")

    await pool.execute("UPDATE jobs SET target_id = NULL")
    assert (await _why(caller, job_id))[0] == "target_gone"

    for scope, of_workspace, of_run, expected in (
        ("run", workspace_id, run.run_id, "run_paused"),
        ("workspace", workspace_id, None, "workspace_paused"),
        ("platform", None, None, "maintenance"),
    ):
        await pool.execute(
            """INSERT INTO pauses (scope, workspace_id, run_id, reason, created_by)
               VALUES ($1, $2, $3, 'upgrade', 'ana')""",
            scope,
            of_workspace,
            of_run,
        )
        reason, text = await _why(caller, job_id)
        assert reason == expected
        assert "by ana" in text
        assert text.endswith(": upgrade")


async def test_limit_that_is_used_up_is_the_reason(caller: Caller, pool: Pool) -> None:
    workspace_id = caller.workspace_id
    run = await dispatched_run(pool, workspace_id, Shape(batches=2, jobs_each=1))
    host = await enrol(pool, workspace_id)
    limit_id = await pool.fetchval(
        "INSERT INTO limits (workspace_id, max_in_progress) VALUES ($1, 1) RETURNING id", workspace_id
    )
    (claimed,) = (await host.claim(run.dispatches[0], "key", 1)).jobs
    job_id = await pool.fetchval("SELECT id FROM jobs WHERE status = 'pending'")

    reached = await _why(caller, job_id)
    await pool.execute("UPDATE limits SET max_in_progress = 2 WHERE id = $1", limit_id)

    assert claimed.job_id != job_id
    assert reached == ("concurrency_limit", "1 of 1 in progress for the workspace")
    assert (await _why(caller, job_id))[0] == "queued"


async def test_job_that_does_not_wait_says_what_became_of_it(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await dispatched_run(pool, caller.workspace_id)
    await pool.execute(WORKER, caller.workspace_id, b"d" * 32, "online")
    job_id = await pool.fetchval(
        """UPDATE jobs SET status = 'in_progress', attempt = 1, picked_at = clock_timestamp(),
                           worker_id = (SELECT id FROM workers) RETURNING id"""
    )

    reason, text = await _why(caller, job_id)
    assert reason is None
    assert text.startswith("in progress on edge since ")

    await pool.execute(
        "UPDATE jobs SET status = 'failed', completed_at = clock_timestamp(), reason = 'budget'"
    )
    assert (await _why(caller, job_id))[1].endswith("UTC: budget")


async def test_run_groups_its_jobs_by_what_they_wait_for(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    target = await world.add_target(caller)
    run_id = await world.start_run(caller, target)
    accepted = (await caller.http.get(f"/v1/runs/{run_id}/why")).json()
    await pool.execute("UPDATE job_histories SET status = 'running', started_at = clock_timestamp()")

    found = (await caller.http.get(f"/v1/runs/{run_id}/why")).json()
    one = (await caller.http.get(f"/v1/runs/{run_id}/why", params={"step": "ports"})).json()

    assert accepted["steps"][0]["groups"][0]["explanation"]["reason"] == "run_not_started"
    told = {
        step["step_id"]: [(group["jobs"], group["explanation"]["reason"]) for group in step["groups"]]
        for step in found["steps"]
    }
    assert told == {
        "subdomains": [(1, "no_worker")],
        **{step: [(0, "upstream")] for step in ("ports", "http", "urls", "findings")},
    }
    assert [step["groups"][0]["explanation"]["text"] for step in one["steps"]] == ["waits for subdomains"]


async def test_job_and_run_of_others_are_404(world: ApiWorld, caller: Caller) -> None:
    run_id = await world.start_run(caller, await world.add_target(caller))
    job_id = (await caller.http.get("/v1/jobs")).json()["items"][0]["id"]

    async with world.caller("theirs") as other:
        for path, code in (
            (f"/v1/jobs/{job_id}/why", "job.not_found"),
            (f"/v1/runs/{run_id}/why", "run.not_found"),
            (f"/v1/jobs/{uuid4()}/why", "job.not_found"),
        ):
            assert_problem(await other.http.get(path), 404, code)
    assert UUID(run_id)


async def test_why_reads_a_job_by_its_id_and_those_of_a_run_by_live_rows(
    caller: Caller, pool: Pool, settings: Settings
) -> None:
    run = await dispatched_run(pool, caller.workspace_id, Shape(batches=1, jobs_each=2))
    job_id = await pool.fetchval("SELECT id FROM jobs LIMIT 1")
    await pool.execute(
        """INSERT INTO jobs (workspace_id, run_id, step_id, tool_id, toolset, category, subject_id, spec,
                             status, completed_at)
           SELECT workspace_id, run_id, step_id, tool_id, toolset, category, gen_random_uuid(), '{}',
                  'completed', clock_timestamp()
           FROM (SELECT * FROM jobs LIMIT 1) j, generate_series(1, 20000)"""
    )
    owner = await asyncpg.connect(settings.database_url)
    await owner.execute("ANALYZE jobs")
    await owner.close()

    async def plan(statement: str, *args: object) -> str:
        rows = await pool.fetch(f"EXPLAIN (COSTS OFF) {statement}", caller.workspace_id, *args)
        return "\n".join(row[0] for row in rows)

    plans = [
        await plan(why._OF_JOB, run.run_id, [], job_id),
        await plan(why._OF_RUN, run.run_id, []),
        await plan(why._AHEAD, job_id),
        await plan(why._BATCHES_AHEAD, job_id),
    ]

    assert all("Seq Scan on jobs" not in each for each in plans), plans
    assert "jobs_pkey" in plans[0]
    assert "jobs_dispatchable" in plans[2]


async def test_what_urgent_jobs_hold_back_is_seen_with_the_time_that_it_has_waited(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    run = await dispatched_run(pool, caller.workspace_id, Shape(batches=1, jobs_each=4))
    ids = [
        row["id"] for row in await pool.fetch("SELECT id FROM jobs WHERE run_id = $1 ORDER BY id", run.run_id)
    ]
    for job_id, priority, hours in zip(ids, (0, 4, 4, 3), (1, 9, 2, 5), strict=True):
        await pool.execute(
            """UPDATE jobs SET priority = $2::smallint,
                      created_at = clock_timestamp() - make_interval(hours => $3),
                      dispatch_id = CASE WHEN $2::smallint = 0 THEN dispatch_id END
               WHERE id = $1""",
            job_id,
            priority,
            hours,
        )

    found = (await caller.http.get("/v1/waiting")).json()["items"]
    async with world.caller("other") as other:
        assert (await other.http.get("/v1/waiting")).json() == {"items": []}

    assert [(each["toolset"], each["priority"], UUID(each["job_id"])) for each in found] == [
        ("probe", "critical", ids[0]),  # dispatched
        ("probe", "low", ids[3]),  # not yet
        ("probe", "background", ids[1]),
    ]
    assert [int(each["waited_s"] // 3600) for each in found] == [1, 5, 9]
