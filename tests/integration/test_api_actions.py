"""What people do to runs and jobs over HTTP: written at once, once and audited, or refused by a code."""

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from runlane.db.keys import NewKey, Scope, create_key
from runlane.db.pool import Pool
from tests.integration.api_world import ApiWorld, Caller, assert_problem

pytestmark = pytest.mark.integration

GRAPH = {
    "name": "test",
    "jobs": {
        "a": {"run": "noop"},
        "b": {"run": "noop", "needs": ["a"]},
        "c": {"run": "noop", "needs": ["b"]},
        "side": {"run": "noop"},
    },
}


@dataclass(frozen=True, slots=True)
class Started:
    """A run that nothing drives, and a job of its step `a`."""

    run: str
    job: str


async def start(world: ApiWorld, caller: Caller) -> Started:
    """Starts a run over one target."""
    target = await world.add_target(caller)
    answer = await caller.http.post("/v1/runs", json={"definition": GRAPH, "targets": [target]})
    run = str(answer.json()["run_id"])
    jobs = (await caller.http.get("/v1/jobs", params={"run": run, "step": "a"})).json()["items"]
    return Started(run, jobs[0]["id"])


async def acts(pool: Pool) -> list[str]:
    """What was audited of people, in order; each with its actor."""
    rows = await pool.fetch(
        """SELECT data ->> 'action' AS action, attributes ->> 'actortype' AS by FROM outbox
           WHERE data ? 'action' ORDER BY id"""
    )
    assert {row["by"] for row in rows} <= {"api_key"}
    return [row["action"] for row in rows]


async def end_jobs(pool: Pool, run: str, step: str) -> None:
    """Fails the jobs of a step, as a settle does; only the rows count here."""
    await pool.execute(
        """UPDATE jobs SET status = 'failed', completed_at = clock_timestamp(), reason = 'fatal'
           WHERE run_id = $1 AND step_id = $2 AND completed_at IS NULL""",
        UUID(run),
        step,
    )


async def test_every_action_on_a_thing_of_another_workspace_is_404(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    async with world.caller("theirs") as stranger:
        theirs = await start(world, stranger)
        paused = await stranger.http.post(f"/v1/runs/{theirs.run}/pause")
        begun = await stranger.http.post("/v1/jobs/cancel", json={"tool": "webprobe"})
    step = f"/v1/runs/{theirs.run}/steps/a"
    before = await acts(pool)

    for path, body, code in [
        (f"/v1/jobs/{theirs.job}/cancel", {}, "job.not_found"),
        (f"/v1/jobs/{theirs.job}/priority", {"priority": "high"}, "job.not_found"),
        (f"/v1/jobs/{theirs.job}/rerun", {}, "job.not_found"),
        ("/v1/jobs/cancel", {"run": theirs.run}, "run.not_found"),
        ("/v1/jobs/cancel", {"target": str(uuid4())}, "target.not_found"),
        (f"{step}/cancel", {}, "run.not_found"),
        (f"{step}/priority", {"priority": "high"}, "run.not_found"),
        (f"/v1/runs/{theirs.run}/priority", {"priority": "high"}, "run.not_found"),
        (f"/v1/runs/{theirs.run}/rerun", {}, "run.not_found"),
        (f"/v1/runs/{theirs.run}/pause", {}, "run.not_found"),
        (f"/v1/runs/{theirs.run}/resume", {}, "run.not_found"),
        (f"/v1/pauses/{paused.json()['id']}/lift", {}, "pause.not_found"),
        (f"/v1/operations/{begun.json()['id']}/abort", {}, "operation.not_found"),
    ]:
        assert_problem(await caller.http.post(path, json=body), 404, code)
    answer = await caller.http.get(f"/v1/operations/{begun.json()['id']}")
    assert_problem(answer, 404, "operation.not_found")
    assert (await caller.http.get("/v1/pauses")).json() == {"items": []}
    assert (await caller.http.get("/v1/operations")).json()["items"] == []
    assert await acts(pool) == before


async def test_job_is_cancelled_once_and_only_while_it_has_not_ended(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    started = await start(world, caller)
    path = f"/v1/jobs/{started.job}/cancel"

    first = await caller.http.post(path, json={"reason": "wrong scope"})
    again = await caller.http.post(path, json={"reason": "once more"})

    assert (first.json()["changed"], again.json()["changed"]) == (True, False)
    job = (await caller.http.get(f"/v1/jobs/{started.job}")).json()
    assert (job["status"], job["reason"]) == ("cancelled", "wrong scope")
    assert await acts(pool) == ["job.cancel"]
    assert await pool.fetchval("SELECT nudged_at IS NOT NULL FROM job_histories")
    assert_problem(
        await caller.http.post(f"/v1/jobs/{started.job}/priority", json={"priority": "high"}),
        409,
        "job.final",
    )


@pytest.mark.breaks_invariants  # jobs end without their events
async def test_ended_things_are_refused_with_a_stable_code(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    started = await start(world, caller)
    step = f"/v1/runs/{started.run}/steps"
    assert_problem(await caller.http.post(f"/v1/jobs/{started.job}/rerun"), 409, "job.not_final")
    assert_problem(await caller.http.post(f"/v1/runs/{started.run}/rerun"), 409, "run.open")
    answer = await caller.http.post(f"/v1/runs/{started.run}/rerun", json={"from_step": "a"})
    assert_problem(answer, 409, "step.open")
    answer = await caller.http.post(f"/v1/runs/{started.run}/rerun", json={"from_step": "nothing"})
    assert_problem(answer, 404, "step.not_found")
    assert_problem(await caller.http.post(f"{step}/nothing/cancel"), 404, "step.not_found")
    assert_problem(await caller.http.post("/v1/jobs/cancel", json={}), 422, "filter.empty")
    answer = await caller.http.post("/v1/jobs/cancel", json={"status": "completed"})
    assert_problem(answer, 422, "request.invalid")
    answer = await caller.http.post("/v1/pauses", json={"toolset": "nothing"})
    assert_problem(answer, 422, "toolset.unknown")

    await end_jobs(pool, started.run, "a")
    await pool.execute("UPDATE run_steps SET status = 'failed', closed_at = now() WHERE step_id = 'a'")
    assert_problem(await caller.http.post(f"/v1/jobs/{started.job}/cancel"), 409, "job.final")
    assert_problem(await caller.http.post(f"{step}/a/cancel"), 409, "step.closed")
    answer = await caller.http.post(f"{step}/a/priority", json={"priority": "low"})
    assert_problem(answer, 409, "step.closed")

    await caller.http.post(f"/v1/runs/{started.run}/cancel")
    for path, body in [
        (f"{step}/a/cancel", {}),
        (f"{step}/b/priority", {"priority": "low"}),
        (f"/v1/runs/{started.run}/priority", {"priority": "low"}),
        (f"/v1/runs/{started.run}/pause", {}),
        (f"/v1/runs/{started.run}/resume", {}),
    ]:
        assert_problem(await caller.http.post(path, json=body), 409, "run.closed")


async def test_priority_goes_to_rows_that_wait_and_to_those_that_are_to_come(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    started = await start(world, caller)
    dispatched = "UPDATE jobs SET dispatch_id = gen_random_uuid() WHERE completed_at IS NULL"
    await pool.execute(dispatched)

    job = await caller.http.post(f"/v1/jobs/{started.job}/priority", json={"priority": "critical"})
    ranks = await pool.fetch("SELECT priority, dispatch_id IS NULL FROM jobs ORDER BY step_id")
    again = await caller.http.post(f"/v1/jobs/{started.job}/priority", json={"priority": "critical"})
    step = await caller.http.post(f"/v1/runs/{started.run}/steps/b/priority", json={"priority": "low"})
    run = await caller.http.post(f"/v1/runs/{started.run}/priority", json={"priority": "high"})

    assert [tuple(row) for row in ranks] == [(0, True), (2, False)]
    assert [(a.json()["jobs"], a.json()["moved"]) for a in (job, again, step, run)] == [
        (1, 1), (0, 0), (0, 0), (2, 2),
    ]  # fmt: skip
    assert await acts(pool) == ["job.priority", "step.priority", "run.priority"]
    assert await pool.fetchval("SELECT bool_and(priority IS NULL) FROM run_steps")
    assert await pool.fetchval("SELECT priority FROM job_histories") == 1


async def test_cancelled_step_ends_its_jobs_and_no_other(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    started = await start(world, caller)
    path = f"/v1/runs/{started.run}/steps/a/cancel"

    first = await caller.http.post(path, json={"reason": "too loud"})
    again = await caller.http.post(path)

    assert (first.json()["jobs"], again.json()["jobs"]) == (1, 0)
    run = (await caller.http.get(f"/v1/runs/{started.run}")).json()
    assert {s["step_id"]: s["status"] for s in run["steps"]} == {
        "a": "cancelled", "b": "waiting", "c": "waiting", "side": "running",
    }  # fmt: skip
    assert run["jobs"] == {"cancelled": 1, "pending": 1}
    assert await acts(pool) == ["step.cancel"]
    assert await pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'workflow.step.cancelled'") == 1


async def test_cancel_by_filter_is_done_once_for_a_key(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    await start(world, caller)
    headers = {"Idempotency-Key": "k1"}

    first = await caller.http.post("/v1/jobs/cancel", json={"step": "a"}, headers=headers)
    again = await caller.http.post("/v1/jobs/cancel", json={"step": "a"}, headers=headers)
    other = await caller.http.post("/v1/jobs/cancel", json={"step": "b"}, headers=headers)

    assert first.status_code == again.status_code == 202
    assert first.json() == again.json()
    assert (first.json()["changed"], first.json()["filter"]) == (1, {"step_id": "a"})
    assert_problem(other, 422, "idempotency.body_mismatch")
    shown = await caller.http.get(first.headers["location"])
    assert shown.json() == first.json()
    assert await pool.fetchval("SELECT count(*) FROM operations") == 1


@pytest.mark.breaks_invariants  # jobs end without their events
async def test_rerun_of_a_job_is_a_new_row_in_its_open_step_else_a_new_run(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    started = await start(world, caller)
    path = f"/v1/jobs/{started.job}/rerun"
    await end_jobs(pool, started.run, "a")
    await pool.execute("UPDATE jobs SET retryable = true WHERE id = $1", UUID(started.job))

    inside = (await caller.http.post(path)).json()
    again = (await caller.http.post(path)).json()

    assert inside == {"run_id": started.run, "job_id": inside["job_id"], "changed": True}
    assert again == {**inside, "changed": False}
    assert not await pool.fetchval("SELECT retryable FROM jobs WHERE id = $1", UUID(started.job))
    row = await pool.fetchrow("SELECT * FROM jobs WHERE id = $1", UUID(inside["job_id"]))
    assert row is not None
    assert (str(row["retry_of"]), row["generation"], row["status"]) == (started.job, 1, "pending")
    retried = await pool.fetchval("SELECT data ->> 'retry_job_id' FROM outbox WHERE type = 'job.retried'")
    assert retried == inside["job_id"]

    await end_jobs(pool, started.run, "a")
    await pool.execute("UPDATE run_steps SET status = 'failed', closed_at = now() WHERE step_id = 'a'")
    headers = {"Idempotency-Key": "k1"}
    body = {"follow": True}
    apart = await caller.http.post(path, json=body, headers=headers)
    repeated = await caller.http.post(path, json=body, headers=headers)

    assert apart.json() == repeated.json()
    run = (await caller.http.get(f"/v1/runs/{apart.json()['run_id']}")).json()
    assert (run["rerun_of"], run["trigger"], run["jobs"]) == (started.run, "rerun", {"pending": 1})
    assert [(s["step_id"], s["status"], s["needs"]) for s in run["steps"]] == [
        ("a", "running", []), ("b", "waiting", ["a"]), ("c", "waiting", ["b"]),
    ]  # fmt: skip
    assert await pool.fetchval("SELECT count(*) FROM commands WHERE kind = 'start_run'") == 2
    assert await acts(pool) == ["job.rerun", "job.rerun"]


async def test_rerun_from_a_step_keeps_its_scope(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    started = await start(world, caller)
    await caller.http.post(f"/v1/runs/{started.run}/cancel")
    scope = await pool.fetchval("SELECT scope_as_of FROM run_steps WHERE step_id = 'a'")

    part = (await caller.http.post(f"/v1/runs/{started.run}/rerun", json={"from_step": "b"})).json()
    whole = (await caller.http.post(f"/v1/runs/{started.run}/rerun")).json()

    steps = await pool.fetch(
        "SELECT step_id, status, scope_as_of FROM run_steps WHERE run_id = $1 ORDER BY position",
        UUID(part["run_id"]),
    )
    assert [(row["step_id"], row["status"]) for row in steps] == [("b", "running"), ("c", "waiting")]
    assert steps[0]["scope_as_of"] > scope  # it had never been open
    of_whole = "SELECT scope_as_of FROM run_steps WHERE run_id = $1 AND step_id = 'a'"
    assert await pool.fetchval(of_whole, UUID(whole["run_id"])) == scope
    assert (await caller.http.get(f"/v1/runs/{whole['run_id']}")).json()["jobs"] == {"pending": 2}
    assert await acts(pool) == ["run.cancel", "run.rerun", "run.rerun"]


async def test_pauses_are_listed_with_who_and_why_until_they_are_lifted(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    started = await start(world, caller)
    pepper = world.settings.key_pepper.get_secret_value().encode()
    async with pool.acquire() as conn:
        key = await create_key(conn, NewKey("platform", None, [Scope.PLATFORM_ADMIN]), pepper)
    why = {"reason": "the customer called"}

    run = (await caller.http.post(f"/v1/runs/{started.run}/pause", json=why)).json()
    again = (await caller.http.post(f"/v1/runs/{started.run}/pause", json={"reason": "other"})).json()
    tools = (await caller.http.post("/v1/pauses", json={"toolset": "probe"})).json()
    whole = (await caller.http.post("/v1/pauses")).json()
    async with world.anybody(key.plaintext) as operator:
        everything = (await operator.post("/v1/platform/pauses", json={"reason": "upgrade"})).json()
        listed = (await caller.http.get("/v1/pauses")).json()["items"]
        assert_problem(await caller.http.post("/v1/platform/pauses"), 403, "key.scope")
        assert_problem(await caller.http.post(f"/v1/pauses/{everything['id']}/lift"), 404, "pause.not_found")
        lifted = (await operator.post(f"/v1/platform/pauses/{everything['id']}/lift")).json()
    resumed = await caller.http.post(f"/v1/runs/{started.run}/resume")
    for pause in (tools, whole):
        for _ in range(2):
            assert (await caller.http.post(f"/v1/pauses/{pause['id']}/lift")).status_code == 200

    assert again == run
    assert [(p["scope"], p["created_by"], p["reason"]) for p in listed] == [
        ("run", "test", "the customer called"), ("toolset", "test", None), ("workspace", "test", None),
        ("platform", "platform", "upgrade"),
    ]  # fmt: skip
    assert lifted["lifted_by"] == "platform"
    assert resumed.status_code == 202
    assert (await caller.http.get("/v1/pauses")).json() == {"items": []}
    assert await acts(pool) == ["pause.set"] * 4 + ["pause.lift"] * 2 + ["run.resume"] + ["pause.lift"] * 2
