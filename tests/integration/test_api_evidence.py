"""Attempts, errors and kept results of a job, as an operator reads them."""

from uuid import UUID

import orjson
import pytest

from runlane.db.pool import Pool
from runlane.db.staging import Delivery, StagedMember
from runlane.jobs import Outcome
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from tests.integration.api_world import ApiWorld, Caller, assert_problem
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.scan_host import Done, ScanHost, enrol

pytestmark = [pytest.mark.integration, pytest.mark.breaks_invariants]  # rows are changed without their events


async def _staged(host: ScanHost, pool: Pool) -> list[UUID]:
    """Two jobs of one batch, claimed and staged in one delivery; their ids."""
    run = await dispatched_run(pool, host.workspace_id, Shape(batches=1, jobs_each=2))
    answer = await host.claim(run.dispatches[0], "key", 10)
    said = [(job, Done(records=[{"of": str(job.job_id)}])) for job in answer.jobs]
    await host.stage(await host.delivery(run.dispatches[0], said))
    return [job.job_id for job in answer.jobs]


@pytest.mark.parametrize("in_bucket", [False, True])
async def test_result_of_a_batch_is_given_member_by_member(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings, in_bucket: bool
) -> None:
    storage = Storage(StorageConfig(**settings.bucket))
    await storage.ensure_bucket()
    host = await enrol(pool, caller.workspace_id, storage=storage if in_bucket else None)
    for job_id in await _staged(host, pool):
        answer = await caller.http.get(f"/v1/jobs/{job_id}/result")

        assert answer.status_code == 200, answer.text
        assert [orjson.loads(line) for line in answer.content.splitlines()] == [
            {"job": str(job_id), "attempt": 1, "records": [{"of": str(job_id)}]}
        ]
        name = f"job-{job_id}-attempt-1.ndjson"
        assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert_problem(
            await caller.http.get(f"/v1/jobs/{job_id}/result", params={"attempt": 2}), 404, "result.gone"
        )


async def test_object_that_is_not_the_announced_one_is_not_given(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings
) -> None:
    storage = Storage(StorageConfig(**settings.bucket))
    await storage.ensure_bucket()
    host = await enrol(pool, caller.workspace_id, storage=storage)
    job_id = (await _staged(host, pool))[0]
    await pool.execute("UPDATE job_results SET sha256 = $1", b"x" * 32)

    assert_problem(await caller.http.get(f"/v1/jobs/{job_id}/result"), 409, "result.unreadable")


async def test_attempt_says_who_ran_what_without_credentials(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    host = await enrol(pool, caller.workspace_id)
    run = await dispatched_run(pool, caller.workspace_id)
    answer = await host.claim(run.dispatches[0], "key", 10)
    job = answer.jobs[0]
    member = StagedMember(
        job.job_id,
        job.attempt,
        Outcome.TOOL_FAILED,
        "no answer",
        complete=False,
        reachable=False,
        coverage={},
        argv=["nuclei", "-H", "Authorization: Bearer x", "-u", "https://a.test"],
        tool_version="3.4.1",
    )
    await host.stage(Delivery(host.worker_id, host.incarnation, run.dispatches[0], [member]))

    (attempt,) = (await caller.http.get(f"/v1/jobs/{job.job_id}/attempts")).json()["items"]

    assert (attempt["worker"], attempt["staged_outcome"], attempt["tool_version"]) == (
        "test host",
        "tool_failed",
        "3.4.1",
    )
    assert attempt["argv"] == ["nuclei", "-H", "Authorization: ***", "-u", "https://a.test"]
    assert (attempt["outcome"], attempt["charged"], attempt["result_bytes"]) == (None, False, None)


async def test_argument_lists_of_several_members_do_not_fall_into_one_another(
    caller: Caller, pool: Pool
) -> None:
    host = await enrol(pool, caller.workspace_id)
    run = await dispatched_run(pool, caller.workspace_id, Shape(batches=1, jobs_each=3))
    answer = await host.claim(run.dispatches[0], "key", 10)
    lists = (["a", "b"], ["c", "d"], None)
    members = [
        StagedMember(
            job.job_id, 1, Outcome.FATAL, "x", complete=False, reachable=False, coverage={}, argv=argv
        )
        for job, argv in zip(answer.jobs, lists, strict=True)
    ]

    await host.stage(Delivery(host.worker_id, host.incarnation, run.dispatches[0], members))

    rows = await pool.fetch("SELECT job_id, argv FROM job_attempts")
    assert {row["job_id"]: row["argv"] for row in rows} == {
        job.job_id: argv for job, argv in zip(answer.jobs, lists, strict=True)
    }


async def test_errors_come_with_what_was_found_until_then(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await dispatched_run(pool, caller.workspace_id)
    job_id = await pool.fetchval("SELECT id FROM jobs")
    await pool.executemany(
        """INSERT INTO job_error_logs (workspace_id, job_id, attempt, outcome, message, partial, digest)
           VALUES ($1, $2, $3, 'tool_failed', $4, $5, $6)""",
        [
            (caller.workspace_id, job_id, 1, "no answer", None, b"a" * 32),
            (caller.workspace_id, job_id, 2, "cut off", '[{"port":80}]', b"b" * 32),
        ],
    )

    items = (await caller.http.get(f"/v1/jobs/{job_id}/errors")).json()["items"]

    assert [(each["attempt"], each["message"], each["partial"]) for each in items] == [
        (2, "cut off", '[{"port":80}]'),
        (1, "no answer", None),
    ]


async def test_evidence_of_another_workspace_is_404(world: ApiWorld, caller: Caller, pool: Pool) -> None:
    job_id = (await _staged(await enrol(pool, caller.workspace_id), pool))[0]

    async with world.caller("theirs") as other:
        for view in ("attempts", "errors", "result"):
            assert_problem(await other.http.get(f"/v1/jobs/{job_id}/{view}"), 404, "job.not_found")
