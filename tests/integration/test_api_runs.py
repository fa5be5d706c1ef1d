"""Runs: what is written when one is accepted, once per Idempotency-Key, and what is refused."""

import asyncio
from uuid import UUID, uuid4

import pytest

from runlane.db import idempotency
from runlane.db.pool import Pool
from tests.integration.api_world import ApiWorld, Caller, assert_problem

pytestmark = pytest.mark.integration

TABLES = (
    "job_histories",
    "run_steps",
    "run_needs",
    "run_targets",
    "jobs",
    "commands",
    "assets",
    "idempotency_keys",
)
CYCLE = {
    "name": "circle",
    "jobs": {"a": {"run": "dnsprobe", "needs": ["b"]}, "b": {"run": "portprobe", "needs": ["a"]}},
}


async def _rows(pool: Pool) -> dict[str, int]:
    return {table: await pool.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES}  # noqa: S608


def _discovery(target: str, **more: object) -> dict[str, object]:
    return {"definition": "domain_discovery", "targets": [target], **more}


async def test_accepted_run_is_rows_at_once_with_temporal_away(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    target = await world.add_target(caller)

    answer = await caller.http.post("/v1/runs", json=_discovery(target, name="weekly", priority="high"))

    assert answer.status_code == 202
    assert answer.json()["status"] == "accepted"
    run_id = answer.json()["run_id"]
    assert answer.headers["location"] == f"/v1/runs/{run_id}"
    command = await pool.fetchrow("SELECT * FROM commands WHERE kind = 'start_run' AND done_at IS NULL")
    assert command is not None
    assert command["workflow_id"] == f"run/{run_id}"
    run = (await caller.http.get(f"/v1/runs/{run_id}")).json()
    assert (run["name"], run["priority"], run["jobs"], run["targets"]) == (
        "weekly",
        1,
        {"pending": 1},
        [target],
    )
    assert [step["step_id"] for step in run["steps"]] == ["subdomains", "ports", "http", "urls", "findings"]
    assert run["steps"][1]["needs"] == ["subdomains"]


async def test_options_are_frozen_with_the_step(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    target = await world.add_target(caller)
    config = {"*": {"resolver": "127.7.0.1:5300"}, "subdomains": {"wordlist": ["a"]}}

    answer = await caller.http.post("/v1/runs", json=_discovery(target, config=config))

    assert answer.status_code == 202
    rows = await pool.fetch("SELECT step_id, config FROM run_steps ORDER BY position")
    assert rows[0]["config"] == {"resolver": "127.7.0.1:5300", "wordlist": ["a"]}
    assert all(row["config"] == {"resolver": "127.7.0.1:5300"} for row in rows[1:])


async def test_bad_run_is_refused_with_its_reason_and_leaves_nothing(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    target = await world.add_target(caller)
    unknown_tool = {"name": "x", "jobs": {"a": {"run": "nmap5000"}}}
    before = await _rows(pool)
    for body, status, code, field in [
        (_discovery(target) | {"definition": "no_such"}, 422, "definition.unknown", "definition"),
        (_discovery(target) | {"definition": unknown_tool}, 422, "definition.invalid", "jobs.a.run"),
        (_discovery(target) | {"definition": CYCLE}, 422, "definition.invalid", "jobs.a.needs"),
        (_discovery(target) | {"definition": {}}, 422, "definition.invalid", "jobs"),
        (_discovery(target) | {"targets": []}, 422, "run.no_target", "targets"),
        (_discovery(target) | {"targets": ["x"]}, 422, "request.invalid", "targets.0"),
        (_discovery(target, groups=["x" * 101]), 422, "request.invalid", "groups.0"),
        (_discovery(target, tags=["x" * 65]), 422, "request.invalid", "tags.0"),
        (_discovery(target, name="a\x1b[2J"), 422, "request.invalid", "name"),
        (_discovery(target, priority="now"), 422, "request.invalid", "priority"),
        (_discovery(target, colour="red"), 422, "request.invalid", "colour"),
        (_discovery(target, config={"nowhere": {}}), 422, "definition.invalid", "config.nowhere"),
        (_discovery(target, config={"*": {"a": "\0"}}), 422, "request.invalid", "config"),
        (_discovery(target, config={"*": {"a": 2**64}}), 422, "request.invalid", "config"),
    ]:
        problem = assert_problem(await caller.http.post("/v1/runs", json=body), status, code)

        fields = problem["fields"]
        assert isinstance(fields, dict)
        assert field in fields, problem
    assert await _rows(pool) == before


async def test_all_faults_of_a_definition_are_told_at_once(world: ApiWorld, caller: Caller) -> None:
    target = await world.add_target(caller)
    definition = {
        "name": "",
        "jobs": {"a": {"run": "nope", "tolerance": "lots"}, "b": {"needs": ["c"]}},
        "x": 1,
    }

    answer = await caller.http.post("/v1/runs", json=_discovery(target) | {"definition": definition})

    fields = assert_problem(answer, 422, "definition.invalid")["fields"]
    assert isinstance(fields, dict)
    assert {"name", "x", "jobs.a.run", "jobs.a.tolerance", "jobs.b.run", "jobs.b.needs"} <= fields.keys()


async def test_unknown_target_is_404_and_leaves_nothing(caller: Caller, pool: Pool) -> None:
    before = await _rows(pool)

    answer = await caller.http.post("/v1/runs", json=_discovery(str(uuid4())))

    assert_problem(answer, 404, "target.not_found")
    assert await _rows(pool) == before


async def test_same_idempotency_key_and_body_is_one_run(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    target = await world.add_target(caller)
    headers = {"Idempotency-Key": "monday"}
    reordered = dict(reversed(_discovery(target, config={}).items()))

    first = await caller.http.post("/v1/runs", json=_discovery(target), headers=headers)
    again = await caller.http.post("/v1/runs", json=reordered, headers=headers)

    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert await pool.fetchval("SELECT count(*) FROM job_histories") == 1


async def test_same_idempotency_key_with_another_body_is_422(world: ApiWorld, caller: Caller) -> None:
    target = await world.add_target(caller)
    headers = {"Idempotency-Key": "monday"}
    await caller.http.post("/v1/runs", json=_discovery(target), headers=headers)

    answer = await caller.http.post("/v1/runs", json=_discovery(target, name="other"), headers=headers)

    assert_problem(answer, 422, "idempotency.body_mismatch")


async def test_refused_request_does_not_use_up_its_idempotency_key(world: ApiWorld, caller: Caller) -> None:
    target = await world.add_target(caller)
    headers = {"Idempotency-Key": "monday"}
    refused = await caller.http.post("/v1/runs", json=_discovery(str(uuid4())), headers=headers)
    assert refused.status_code == 404

    assert (await caller.http.post("/v1/runs", json=_discovery(target), headers=headers)).status_code == 202


async def test_idempotency_key_is_good_for_a_day_and_for_one_workspace(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    target = await world.add_target(caller)
    headers = {"Idempotency-Key": "monday"}
    first = await caller.http.post("/v1/runs", json=_discovery(target), headers=headers)

    async with world.caller("theirs") as other:
        their_target = await world.add_target(other)
        theirs = await other.http.post("/v1/runs", json=_discovery(their_target), headers=headers)
    await pool.execute("UPDATE idempotency_keys SET created_at = created_at - interval '25 hours'")
    later = await caller.http.post("/v1/runs", json=_discovery(target, name="other"), headers=headers)

    assert theirs.status_code == later.status_code == 202
    assert len({answer.json()["run_id"] for answer in (first, theirs, later)}) == 3


async def test_request_in_flight_answers_409_with_retry_after(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    target = await world.add_target(caller)
    request = idempotency.IdempotentRequest(caller.workspace_id, "POST /v1/runs", "monday", b"x" * 32)

    async with pool.acquire() as conn, conn.transaction():
        await idempotency.begin(conn, request)
        headers = {"Idempotency-Key": "monday"}
        answer = await caller.http.post("/v1/runs", json=_discovery(target), headers=headers)

    assert_problem(answer, 409, "idempotency.in_flight")
    assert answer.headers["retry-after"] == "1"


async def test_twenty_same_requests_at_once_are_one_run(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    target = await world.add_target(caller)
    headers = {"Idempotency-Key": "monday"}

    async def send() -> int:
        answer = await caller.http.post("/v1/runs", json=_discovery(target), headers=headers)
        return answer.status_code

    statuses = await asyncio.gather(*(send() for _ in range(20)))

    assert set(statuses) <= {202, 409}
    assert 202 in statuses
    assert await pool.fetchval("SELECT count(*) FROM job_histories") == 1


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "a b", "ä"])
async def test_strange_idempotency_key_is_refused(caller: Caller, key: str) -> None:
    headers = [(b"Idempotency-Key", key.encode())]

    answer = await caller.http.post("/v1/runs", json=_discovery(str(uuid4())), headers=headers)

    assert_problem(answer, 422, "request.invalid")


async def test_cancel_is_final_at_once_and_may_be_repeated(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    run_id = await world.start_run(caller, await world.add_target(caller))

    first = await caller.http.post(f"/v1/runs/{run_id}/cancel", json={"reason": "wrong target"})
    again = await caller.http.post(f"/v1/runs/{run_id}/cancel")

    assert first.json() == {"run_id": run_id, "status": "cancelled", "jobs": 1}
    assert again.json() == {"run_id": run_id, "status": "cancelled", "jobs": 0}
    run = (await caller.http.get(f"/v1/runs/{run_id}")).json()
    assert (run["status"], run["jobs"]) == ("cancelled", {"cancelled": 1})
    assert await pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'workflow.run.cancelled'") == 1


async def test_resume_writes_a_start_and_a_closed_run_refuses_it(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    run_id = await world.start_run(caller, await world.add_target(caller))

    answer = await caller.http.post(f"/v1/runs/{run_id}/resume")
    await caller.http.post(f"/v1/runs/{run_id}/cancel")
    refused = await caller.http.post(f"/v1/runs/{run_id}/resume")

    assert (answer.status_code, answer.json()["run_id"]) == (202, run_id)
    assert await pool.fetchval("SELECT count(*) FROM commands WHERE kind = 'start_run'") == 2
    assert_problem(refused, 409, "run.closed")


async def test_lists_filter_by_status_run_step_and_tool(world: ApiWorld, caller: Caller) -> None:
    target = await world.add_target(caller)
    first, second = await world.start_run(caller, target), await world.start_run(caller, target)
    await caller.http.post(f"/v1/runs/{first}/cancel")

    async def ids(path: str) -> list[str]:
        items = (await caller.http.get(path)).json()["items"]
        return [row.get("run_id", row["id"]) for row in items]

    assert await ids("/v1/runs") == [second, first]
    assert await ids("/v1/runs?sort=created_at") == [first, second]
    assert await ids("/v1/runs?status=cancelled") == [first]
    assert await ids("/v1/runs?status=cancelled&status=accepted&status=running") == [second, first]
    assert await ids(f"/v1/jobs?run={second}") == [second]
    assert await ids("/v1/jobs?status=pending&step=subdomains&tool=dnsprobe") == [second]
    assert await ids("/v1/jobs?tool=portprobe") == []


async def test_job_shows_attempts_and_errors(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    run_id = await world.start_run(caller, await world.add_target(caller))
    job_id = (await caller.http.get("/v1/jobs")).json()["items"][0]["id"]
    await pool.execute("UPDATE jobs SET attempt = 1, failures = 1")
    await pool.execute(
        """
        WITH worker AS (
          INSERT INTO workers (scope, workspace_id, name, token_digest) VALUES ('workspace', $1, 'w', $3)
          RETURNING id
        ), attempt AS (
          INSERT INTO job_attempts (job_id, attempt, workspace_id, dispatch_id, worker_id, incarnation,
                                    claim_key, ended_at, outcome, charged, argv)
          SELECT $2, 1, $1, uuidv7(), id, uuidv7(), 'k', clock_timestamp(), 'tool_failed', true, '{dig,-x}'
          FROM worker
        )
        INSERT INTO job_error_logs (workspace_id, job_id, attempt, outcome, message, digest)
        VALUES ($1, $2, 1, 'tool_failed', 'no answer', $3)
        """,
        caller.workspace_id,
        UUID(job_id),
        b"d" * 32,
    )

    job = (await caller.http.get(f"/v1/jobs/{job_id}")).json()

    assert job["run_id"] == run_id
    assert [(a["attempt"], a["outcome"], a["charged"], a["argv"]) for a in job["attempts"]] == [
        (1, "tool_failed", True, ["dig", "-x"])
    ]
    assert [(e["message"], e["times"]) for e in job["errors"]] == [("no answer", 1)]
