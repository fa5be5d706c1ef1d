"""Sweeps that prune: what goes after its time, and what stays however old it is."""

import asyncio
import gzip
import io
import json
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import orjson
import pytest
from minio import Minio

from runlane import names
from runlane.db.pool import Pool
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import object_key
from runlane.sweeps import Part, Report
from tests.conftest import Database
from tests.integration.api_world import open_api
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.scan_host import Done, enrol
from tests.integration.sweep_world import SweepWorld, sweep_world

pytestmark = pytest.mark.integration

RUN = """
INSERT INTO job_histories (workspace_id, name, definition, status, closed_at)
VALUES ($1, $2, '{}', CASE WHEN $3 THEN 'completed' ELSE 'running' END,
        CASE WHEN $3 THEN clock_timestamp() - interval '190 days' END)
RETURNING id
"""
STEP = """
INSERT INTO run_steps (workspace_id, run_id, step_id, position, name, tool_id, status, closed_at, opened_at,
                       scope_as_of)
VALUES ($1, $2, 'a', 0, 'a', 'noop', CASE WHEN $3 THEN 'completed' ELSE 'running' END,
        CASE WHEN $3 THEN clock_timestamp() - interval '190 days' END, now(), now())
"""
JOB = """
INSERT INTO jobs (id, workspace_id, run_id, step_id, tool_id, toolset, category, subject_id, spec, status,
                  completed_at)
VALUES (uuidv7($4::text::interval), $1, $2, 'a', 'noop', 'probe', 'bench', gen_random_uuid(), '{}', $3,
        CASE WHEN $3 <> 'pending' THEN clock_timestamp() + $4::text::interval END)
RETURNING id
"""
EVIDENCE = """
WITH w AS (
  INSERT INTO workers (scope, workspace_id, name, token_digest, status, incarnation)
  VALUES ('workspace', $1, 'w', decode(repeat('00', 32), 'hex'), 'offline', gen_random_uuid()) RETURNING id
), a AS (
  INSERT INTO job_attempts (job_id, attempt, workspace_id, dispatch_id, worker_id, incarnation, claim_key,
                            ended_at, outcome)
  SELECT $2, 1, $1, gen_random_uuid(), w.id, gen_random_uuid(), 'k', now(), 'tool_failed' FROM w
)
INSERT INTO job_error_logs (workspace_id, job_id, attempt, outcome, message, digest)
VALUES ($1, $2, 1, 'tool_failed', 'm', decode(repeat('00', 32), 'hex'))
"""
RESULT = """
INSERT INTO job_results (workspace_id, run_id, category, body, object_key, size_bytes, sha256, kept,
                         created_at)
VALUES ($1, $2, 'bench', CASE WHEN $3::text IS NULL THEN 'x'::bytea END, $3, 1,
        decode(repeat('00', 32), 'hex'), $4, clock_timestamp() - $5::text::interval)
RETURNING id
"""


async def make_run(pool: Pool, workspace_id: UUID, name: str = "r", *, is_closed: bool = True) -> UUID:
    run_id: UUID = await pool.fetchval(RUN, workspace_id, name, is_closed)
    await pool.execute(STEP, workspace_id, run_id, is_closed)
    return run_id


async def make_job(pool: Pool, workspace_id: UUID, run_id: UUID, status: str, age: str) -> UUID:
    job_id: UUID = await pool.fetchval(JOB, workspace_id, run_id, status, age)
    return job_id


def bucket(settings: Settings) -> Minio:
    """The object storage itself."""
    config = settings.bucket
    host = config["endpoint"].removeprefix("http://")
    return Minio(host, config["access_key"], config["secret_key"], secure=False, region=config["region"])


@pytest.mark.breaks_invariants  # rows are written without their events
async def test_old_jobs_go_with_what_is_theirs_and_their_run_leaves_the_list(
    sweeps: SweepWorld, settings: Settings, pool: Pool, workspace_id: UUID
) -> None:
    gone, mixed, live = [
        await make_run(pool, workspace_id, name, is_closed=name != "live")
        for name in ("gone", "mixed", "live")
    ]
    old = [await make_job(pool, workspace_id, run_id, "failed", "-181 days") for run_id in (gone, mixed)]
    kept = {
        await make_job(pool, workspace_id, mixed, "completed", "-179 days"),
        await make_job(pool, workspace_id, live, "pending", "-400 days"),
    }
    await pool.execute(EVIDENCE, workspace_id, old[0])

    report = await sweeps.sweep(Part.OLD_JOBS)
    again = await sweeps.sweep(Part.OLD_JOBS)

    assert (report, again) == (Report(2, 2), Report())
    assert {row["id"] for row in await pool.fetch("SELECT id FROM jobs")} == kept
    assert await pool.fetchval("SELECT count(*) FROM job_attempts") == 0
    assert await pool.fetchval("SELECT count(*) FROM job_error_logs") == 0
    assert await pool.fetchval("SELECT count(*) FROM job_histories") == 3
    async with open_api(settings, pool) as api, api.caller_of(workspace_id) as caller:
        listed = (await caller.http.get("/v1/runs")).json()["items"]
        page = await caller.http.get(f"/v1/runs/{gone}")
    assert {run["name"] for run in listed} == {"mixed", "live"}
    assert page.status_code == 200


@pytest.mark.breaks_invariants  # rows are written without their events
async def test_job_that_cannot_be_deleted_is_counted_and_the_others_go(
    sweeps: SweepWorld, database: Database, pool: Pool, workspace_id: UUID
) -> None:
    run_id = await make_run(pool, workspace_id)
    jobs = [await make_job(pool, workspace_id, run_id, "completed", "-181 days") for _ in range(3)]
    owner = await asyncpg.connect(database.owner)
    await owner.execute(
        f"""CREATE FUNCTION bad_row() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF OLD.id = '{jobs[0]}' THEN RAISE EXCEPTION 'damaged'; END IF;
          RETURN OLD;
        END $$;
        CREATE TRIGGER bad_row BEFORE DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION bad_row()"""
    )
    await owner.close()

    report = await sweeps.sweep(Part.OLD_JOBS)

    assert report == Report(3, 2, 1)
    assert [row["id"] for row in await pool.fetch("SELECT id FROM jobs")] == jobs[:1]
    assert await pool.fetchval("SELECT jobs_pruned_at FROM job_histories") is None


async def test_staged_results_that_nobody_needs_are_removed_after_thirty_days(
    sweeps: SweepWorld, pool: Pool, workspace_id: UUID
) -> None:
    host = await enrol(pool, workspace_id, storage=sweeps.buckets.results)
    run = await dispatched_run(pool, workspace_id, Shape("dnsprobe"))
    jobs = (await host.claim(run.dispatches[0], "key", 1)).jobs
    await host.stage(await host.delivery(run.dispatches[0], [(jobs[0], Done(records=[{"name": "a.test"}]))]))
    await pool.execute("UPDATE job_results SET created_at = clock_timestamp() - interval '40 days'")
    needed = await pool.fetchval("SELECT id FROM job_results")
    key = object_key(workspace_id, run.dispatches[0])
    await sweeps.buckets.results.put(key, b"x")
    for of_key, kept, age in ((key, False, "31 days"), (None, True, "31 days"), (None, False, "29 days")):
        await pool.execute(RESULT, workspace_id, run.run_id, of_key, kept, age)

    report = await sweeps.sweep(Part.STAGED_RESULTS)
    again = await sweeps.sweep(Part.STAGED_RESULTS)

    assert (report, again) == (Report(2, 2), Report())
    left = await pool.fetch("SELECT id = $1 AS is_needed FROM job_results ORDER BY created_at", needed)
    assert [row["is_needed"] for row in left] == [True, False]
    assert key not in await sweeps.buckets.results.keys(f"{workspace_id}/")
    cleaned = await pool.fetch("SELECT data FROM outbox WHERE type = 'job.result.cleaned'")
    assert [row["data"]["run_id"] for row in cleaned] == [str(run.run_id)] * 2


def age_object(stack: Stack, key: str, age: timedelta) -> None:
    """Makes the object storage believe that an object is older."""
    sidecar = stack.folder / "s3" / "data" / names.RESULTS_BUCKET / ".nanio-meta" / f"{key}.json"
    known = json.loads(sidecar.read_text())
    known["last_modified"] = (datetime.now(UTC) - age).isoformat()
    sidecar.write_text(json.dumps(known))


async def test_objects_without_a_row_are_removed_but_those_of_others_and_young_ones_stay(
    sweeps: SweepWorld, stack: Stack, pool: Pool, workspace_id: UUID
) -> None:
    run_id = await make_run(pool, workspace_id, is_closed=False)
    orphan, young, referred = [object_key(workspace_id, uuid4()) for _ in range(3)]
    foreign = f"{workspace_id}/notes.txt"
    for key in (orphan, young, referred, foreign):
        await sweeps.buckets.results.put(key, b"x")
        age_object(stack, key, timedelta(days=29 if key == young else 31))
    await pool.execute(RESULT, workspace_id, run_id, referred, True, "1 day")

    report = await sweeps.sweep(Part.STAGED_OBJECTS)

    left = set(await sweeps.buckets.results.keys(f"{workspace_id}/"))
    assert left == {young, referred, foreign}
    assert (report.changed, report.failed) == (1, 0)
    cleaned = await pool.fetch("SELECT workspace_id, data FROM outbox WHERE type = 'job.result.cleaned'")
    assert [tuple(row) for row in cleaned] == [(workspace_id, {"result_ref": orphan, "run_id": None})]


AUDITED = """
INSERT INTO audit_events (workspace_id, event_id, bus_seq, type, subject, severity, data, occurred_at,
                          recorded_at)
SELECT $1, gen_random_uuid(), n, 'job.cancelled', 'job/' || n, 'info', jsonb_build_object('n', n),
       clock_timestamp(), clock_timestamp() - CASE WHEN n <= 3 THEN interval '91 days' ELSE interval '0' END
FROM generate_series(1, 4) n
"""


async def test_old_audit_events_are_in_the_archive_before_they_leave_the_table(
    sweeps: SweepWorld, settings: Settings, pool: Pool, workspace_id: UUID
) -> None:
    await pool.execute(AUDITED, workspace_id)

    report = await sweeps.sweep(Part.AUDIT_EVENTS)
    again = await sweeps.sweep(Part.AUDIT_EVENTS)

    assert (report, again) == (Report(3, 3), Report())
    assert await pool.fetchval("SELECT array_agg(bus_seq) FROM audit_events") == [4]
    (archived,) = await pool.fetch("SELECT * FROM audit_archives")
    assert (archived["first_id"], archived["last_id"], archived["events"]) == (1, 3, 3)
    client = bucket(settings)
    body = await asyncio.to_thread(_read, client, archived["object_key"])
    events = [orjson.loads(line) for line in gzip.decompress(body).splitlines()]
    assert [event["data"] for event in events] == [{"n": 1}, {"n": 2}, {"n": 3}]
    manifest_key = archived["object_key"].replace(".ndjson.gz", ".manifest.json")
    manifest = orjson.loads(await asyncio.to_thread(_read, client, manifest_key))
    assert (manifest["events"], manifest["sha256"]) == (3, archived["sha256"].hex())


def _read(client: Minio, key: str) -> bytes:
    answer = client.get_object(bucket_name=names.AUDIT_BUCKET, object_name=key)
    try:
        return io.BytesIO(answer.read()).getvalue()
    finally:
        answer.close()
        answer.release_conn()


async def test_audit_events_stay_while_the_archive_cannot_be_written(
    settings: Settings, pool: Pool, workspace_id: UUID
) -> None:
    await pool.execute(AUDITED, workspace_id)
    away = settings.model_copy(update={"s3_endpoint": "http://127.0.0.1:1"})

    async with sweep_world(away, pool) as sweeps:
        with pytest.raises(Exception, match="object storage"):
            await sweeps.sweep(Part.AUDIT_EVENTS)

    assert await pool.fetchval("SELECT count(*) FROM audit_events") == 4


OLD_DAYS = """
CREATE TABLE outbox_20200101 PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
CREATE TABLE outbox_20200102 PARTITION OF outbox FOR VALUES FROM ('2020-01-02') TO ('2020-01-03')
"""
OLD_EVENT = """
INSERT INTO outbox (created_at, workspace_id, event_id, type, subject, data, bus_seq)
VALUES ($1, gen_random_uuid(), gen_random_uuid(), 'job.created', 'test', '{}', $2)
"""


async def test_days_of_the_outbox_go_one_by_one_as_far_as_the_lanes_have_come(
    sweeps: SweepWorld, database: Database, pool: Pool
) -> None:
    owner = await asyncpg.connect(database.owner)
    await owner.execute(OLD_DAYS)
    await owner.close()
    for seq, (day, month) in enumerate(((1, 1), (2, 1), (1, 3)), start=1):
        await pool.execute(OLD_EVENT, datetime(2020, month, day, 12, tzinfo=UTC), seq)
    await pool.execute("UPDATE bus_state SET last_seq = 3, published_seq = 3")
    await pool.execute("INSERT INTO lane_checkpoints (lane, last_seq, live_at) VALUES ('audit', 1, now())")

    behind = await sweeps.sweep(Part.OUTBOX_DAYS)
    await pool.execute("UPDATE lane_checkpoints SET last_seq = 3")
    async with pool.acquire() as conn, conn.transaction():
        await conn.execute(OLD_EVENT, datetime.now(UTC), 4)  # somebody writes an event for long
        busy = await sweeps.sweep(Part.OUTBOX_DAYS)
        is_kept = await conn.fetchval("SELECT to_regclass('outbox_20200102') IS NOT NULL")
    await pool.execute("UPDATE bus_state SET last_seq = 4, published_seq = 4")
    done = await sweeps.sweep(Part.OUTBOX_DAYS)

    assert behind == Report(2, 1)
    assert busy == Report(2, 1, 1)  # the stray of March goes, which needs no lock of the table
    assert is_kept
    assert done == Report(1, 1)
    assert await pool.fetchval("SELECT count(*) FROM outbox") == 1


async def test_rows_that_only_served_what_is_over_go_by_their_rules(
    sweeps: SweepWorld, pool: Pool, workspace_id: UUID
) -> None:
    run = await dispatched_run(pool, workspace_id)
    await pool.execute("UPDATE commands SET done_at = clock_timestamp() - interval '8 days'")
    await pool.execute(
        """INSERT INTO commands (workspace_id, kind, workflow_id, created_at)
           VALUES ($1, 'nudge', 'x', '2020-01-01')""",
        workspace_id,
    )
    await pool.execute("UPDATE dispatches SET closed_at = clock_timestamp() - interval '1 year'")
    await pool.execute(
        """INSERT INTO dispatches (workspace_id, run_id, step_id, workflow_id, workflow_run_id, call_number,
                                   task_queue, priority, size, closed_at)
           VALUES ($1, $2, 'only', 'w', 'r', 2, 'q', 2, 1, clock_timestamp() - interval '1 year')""",
        workspace_id,
        run.run_id,
    )
    await pool.execute(
        """INSERT INTO idempotency_keys (workspace_id, route, key, body_sha256, status, response, created_at)
           VALUES ($1, 'r', 'old', decode(repeat('00', 32), 'hex'), 1, '{}', now() - interval '2 days'),
                  ($1, 'r', 'new', decode(repeat('00', 32), 'hex'), 1, '{}', now())""",
        workspace_id,
    )

    report = await sweeps.sweep(Part.OLD_ROWS)

    assert (report.changed, report.failed) == (3, 0)
    assert await pool.fetchval("SELECT kind FROM commands") == "nudge"
    assert await pool.fetchval("SELECT id FROM dispatches") == run.dispatches[0]
    assert await pool.fetchval("SELECT key FROM idempotency_keys") == "new"
