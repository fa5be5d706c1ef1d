"""Each promise is kept by a healthy database, and its breach is seen."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from runlane import names
from runlane.db.invariants import INVARIANTS, check
from runlane.db.pool import Connection, Pool
from runlane.events import Lane

pytestmark = [pytest.mark.integration, pytest.mark.breaks_invariants]

# One run: step a (tried twice), then step b with a job of every final state.
HEALTHY = """
INSERT INTO workspaces (id, name) VALUES ('{w}', 'w'), ('{other}', 'other');
INSERT INTO workers (id, scope, workspace_id, name, token_digest)
  VALUES ('{worker}', 'workspace', '{w}', 'k', decode(repeat('ab', 32), 'hex'));
INSERT INTO targets (id, workspace_id, kind, value) VALUES ('{target}', '{w}', 'domain', 'lab.test');
INSERT INTO job_histories (id, workspace_id, name, status, definition, closed_at)
  VALUES ('{run}', '{w}', 'r', 'completed', '{{}}', now());
INSERT INTO run_steps (workspace_id, run_id, step_id, position, name, tool_id, status, scope_as_of, opened_at,
                       closed_at)
  VALUES ('{w}', '{run}', 'a', 0, 'a', 'dnsprobe', 'completed', now(), now(), now() - interval '8 minutes'),
         ('{w}', '{run}', 'b', 1, 'b', 'portprobe', 'completed', now(), now(), now());
INSERT INTO run_needs (workspace_id, run_id, step_id, needs) VALUES ('{w}', '{run}', 'b', 'a');
INSERT INTO jobs (id, workspace_id, run_id, step_id, tool_id, toolset, category, target_id, subject_id,
                  ordinal, spec, status, attempt, failures, worker_id, picked_at, completed_at)
  SELECT id, '{w}', '{run}', step, 'noop', 'probe', 'bench', '{target}', '{target}',
         n, '{{}}', status, attempt, failures, '{worker}', now(), now()
  FROM (VALUES ('{first}'::uuid, 'a', 0, 'completed', 2, 1), ('{second}', 'b', 1, 'completed', 1, 0),
               ('{failed}', 'b', 2, 'failed', 1, 0), ('{skipped}', 'b', 3, 'skipped', 0, 0),
               ('{cancelled}', 'b', 4, 'cancelled', 0, 0)) AS j (id, step, n, status, attempt, failures);
INSERT INTO job_attempts (job_id, attempt, workspace_id, dispatch_id, worker_id, incarnation, claim_key,
                          claimed_at, ended_at, outcome, charged)
  SELECT id, attempt, '{w}', '{target}', '{worker}', '{worker}', 'key', now() - age, now(), outcome, charged
  FROM (VALUES ('{first}'::uuid, 1, interval '10 minutes', 'tool_failed', true),
               ('{first}', 2, interval '9 minutes', 'completed', false),
               ('{second}', 1, interval '7 minutes', 'completed', false),
               ('{failed}', 1, interval '7 minutes', 'fatal', false))
    AS a (id, attempt, age, outcome, charged);
INSERT INTO outbox (workspace_id, event_id, type, subject, data, bus_seq)
  SELECT '{w}', gen_random_uuid(), 'job.' || what, 'job/' || j.id, '{{}}',
         row_number() OVER (ORDER BY what = 'created' DESC, j.id)
  FROM jobs j CROSS JOIN LATERAL unnest(ARRAY['created', j.status]) AS what
  ORDER BY what = 'created' DESC, j.id;
UPDATE bus_state SET published_seq = 10, last_seq = 10;
INSERT INTO audit_events (workspace_id, event_id, bus_seq, type, subject, severity, data, occurred_at)
  SELECT workspace_id, event_id, bus_seq, type, subject, 'info', data, now() FROM outbox
  WHERE type = 'job.cancelled';
"""

BREACHES = {
    "I1.one_attempt": """
        UPDATE job_attempts SET ended_at = NULL, outcome = NULL, charged = false WHERE job_id = '{first}'
        """,
    "I1.one_owner": "UPDATE job_attempts SET ended_at = NULL, outcome = NULL WHERE job_id = '{second}'",
    "I2.one_verdict_one_event": "UPDATE outbox SET type = 'job.failed' WHERE type = 'job.skipped'",
    "I3.no_double_merge": """
        UPDATE job_attempts SET outcome = 'completed' WHERE job_id = '{first}' AND attempt = 1
        """,
    "I3.merged_is_completed": """
        UPDATE job_attempts SET outcome = 'lost' WHERE job_id = '{second}'
        """,
    "I4.blame": "UPDATE jobs SET failures = 0 WHERE id = '{first}'",
    "I5.closed_runs_have_no_live_jobs": """
        UPDATE jobs SET status = 'pending', completed_at = NULL WHERE id = '{skipped}'
        """,
    "I5.closed_runs_have_no_open_steps": """
        UPDATE run_steps SET status = 'running', closed_at = NULL WHERE step_id = 'b'
        """,
    "I5.cancels_end": """
        INSERT INTO operations (workspace_id, action, filter) VALUES ('{w}', 'jobs.cancel', '{{}}')
        """,
    "I5.runs_close": "UPDATE job_histories SET status = 'running', closed_at = NULL",
    "I6.cause_before_effect": "UPDATE run_steps SET closed_at = now() WHERE step_id = 'a'",
    "I6.subjects_keep_their_order": """
        UPDATE outbox SET bus_seq = 11 - bus_seq
        """,
    "I7.steps_of_one": "UPDATE outbox SET bus_seq = bus_seq + 1 WHERE bus_seq > 5",
    "I7.all_published": "UPDATE bus_state SET published_seq = 9",
    "I7.stream_is_the_outbox": "UPDATE outbox SET bus_seq = bus_seq + 1",
    "I8.lanes_are_done": "UPDATE lane_checkpoints SET last_seq = 9",
    "I8.audit_is_complete": """
        INSERT INTO outbox (workspace_id, event_id, type, subject, data)
        VALUES ('{w}', gen_random_uuid(), 'job.cancelled', 'job/x', '{{}}')
        """,
    "I8.audit_keeps_order": """
        INSERT INTO audit_events (workspace_id, event_id, bus_seq, type, subject, severity, data, occurred_at)
        VALUES ('{w}', gen_random_uuid(), 1, 'job.cancelled', 'job/x', 'info', '{{}}', now())
        """,
    "I8.deliveries_have_an_endpoint": """
        WITH i AS (
          INSERT INTO integrations (workspace_id, kind, name, config, deleted_at)
          VALUES ('{w}', 'webhook', 'gone', '{{}}', now()) RETURNING id)
        INSERT INTO deliveries (workspace_id, integration_id, event_id, type, subject, sequence, body)
        SELECT '{w}', id, gen_random_uuid(), 'job.failed', 'job/x', 1, '{{}}' FROM i
        """,
    "I9.workspace": "UPDATE workers SET workspace_id = '{other}'",
    "I9.network": """
        WITH n AS (INSERT INTO internal_networks (workspace_id, name) VALUES ('{w}', 'n') RETURNING id)
        UPDATE jobs SET network_id = n.id FROM n
        """,
    "I9.shared": "UPDATE workers SET scope = 'shared', workspace_id = NULL",
    "I9.inside": """
        UPDATE jobs SET own_only = true;
        UPDATE workers SET scope = 'shared', workspace_id = NULL;
        UPDATE workspaces SET allow_shared = true
        """,
    "I9.projects": """
        WITH p AS (
          INSERT INTO projects (workspace_id, name, deleted_at) VALUES ('{w}', 'gone', now()) RETURNING id
        ), a AS (
          INSERT INTO assets (workspace_id, target_id, value, first_seen, last_seen)
          VALUES ('{w}', '{target}', 'x.test', now(), now()) RETURNING id
        )
        INSERT INTO project_assets (workspace_id, project_id, asset_id) SELECT '{w}', p.id, a.id FROM p, a
        """,
    "I9.tools": "UPDATE tools SET workspace_id = '{other}' WHERE id = 'dnsprobe'",
}
ROLES = ("w", "other", "worker", "target", "run", "first", "second", "failed", "skipped", "cancelled")


@dataclass(frozen=True, slots=True)
class Scene:
    """A healthy database and stream, and the ids in it."""

    conn: Connection
    redis: Redis
    ids: dict[str, UUID]

    async def plant(self, sql: str) -> None:
        """Runs statements in which `{role}` stands for an id."""
        await self.conn.execute(sql.format(**self.ids))

    async def broken(self, *, at_rest: bool = True, dead_letters: int = 0) -> set[str]:
        """Names of the promises that do not hold."""
        found = await check(self.conn, self.redis, at_rest=at_rest, dead_letters=dead_letters)
        assert all(violation.count >= len(violation.sample) > 0 for violation in found)
        return {violation.name for violation in found}


@pytest_asyncio.fixture
async def scene(pool: Pool, redis: Redis) -> AsyncIterator[Scene]:
    async with pool.acquire() as conn:
        scene = Scene(conn, redis, {role: uuid4() for role in ROLES})
        await scene.plant(HEALTHY)
        for sequence in range(1, 11):
            await redis.xadd(names.EVENT_STREAM, {"sequence": f"{sequence:020d}"}, id=f"{sequence}-0")
        for lane in Lane:
            await conn.execute(
                "INSERT INTO lane_checkpoints (lane, last_seq) SELECT $1, max(bus_seq) FROM outbox", lane
            )
            await redis.xgroup_create(names.EVENT_STREAM, lane.value, "0")
            await redis.xreadgroup(lane.value, lane.value, {names.EVENT_STREAM: ">"}, noack=True)
        yield scene


async def test_healthy_database_breaks_nothing(scene: Scene) -> None:
    assert await check(scene.conn, scene.redis, at_rest=True) == []


async def test_empty_database_breaks_nothing(pool: Pool, redis: Redis) -> None:
    async with pool.acquire() as conn:
        assert await check(conn, redis, at_rest=True) == []


@pytest.mark.parametrize("name", sorted(BREACHES))
async def test_breach_is_seen(scene: Scene, name: str) -> None:
    await scene.plant(BREACHES[name])

    assert name in await scene.broken()


def test_every_promise_has_a_breach() -> None:
    assert {invariant.name for invariant in INVARIANTS} <= BREACHES.keys()


async def test_breach_says_how_many_and_names_some(scene: Scene) -> None:
    await scene.plant("UPDATE bus_state SET published_seq = 0")

    (violation,) = await check(scene.conn, scene.redis, at_rest=True)

    assert (violation.name, violation.count, len(violation.sample)) == ("I7.all_published", 10, 5)


async def test_run_in_progress_breaks_only_what_is_for_rest(scene: Scene) -> None:
    await scene.plant(
        """
        UPDATE job_histories SET status = 'running', closed_at = NULL;
        UPDATE run_steps SET status = 'running', closed_at = NULL WHERE step_id = 'b';
        UPDATE jobs SET status = 'in_progress', completed_at = NULL, dispatch_id = '{target}'
          WHERE id = '{second}';
        UPDATE job_attempts SET ended_at = NULL, outcome = NULL WHERE job_id = '{second}';
        UPDATE outbox SET type = 'job.started' WHERE subject = 'job/{second}' AND type = 'job.completed';
        UPDATE bus_state SET published_seq = 8;
        UPDATE outbox SET bus_seq = NULL WHERE bus_seq > 9;
        """
    )

    assert await scene.broken(at_rest=False) == set()
    assert {"I5.runs_close", "I7.all_published"} <= await scene.broken()


async def test_run_that_waits_for_a_person_is_at_rest(scene: Scene) -> None:
    await scene.plant(
        "UPDATE job_histories SET status = 'running', closed_at = NULL, blocked_reason = 'no worker'"
    )

    assert await scene.broken() == set()


async def test_verdict_of_a_live_job_is_seen(scene: Scene) -> None:
    await scene.plant(
        """
        UPDATE job_histories SET status = 'running', closed_at = NULL;
        UPDATE jobs SET status = 'pending', completed_at = NULL WHERE id = '{failed}'
        """
    )

    assert "I2.one_verdict_one_event" in await scene.broken(at_rest=False)


async def test_job_older_than_the_outbox_is_not_asked_for_its_event(scene: Scene) -> None:
    await scene.plant("UPDATE jobs SET completed_at = now() - interval '8 days' WHERE id = '{second}'")
    await scene.plant("DELETE FROM outbox WHERE subject = 'job/{second}'")

    assert "I2.one_verdict_one_event" not in await scene.broken(at_rest=False)


async def test_hole_in_the_stream_is_seen(scene: Scene) -> None:
    await scene.redis.xdel(names.EVENT_STREAM, "5-0")

    assert await scene.broken() == {"I7.stream_is_the_outbox"}


async def test_lost_tail_of_the_stream_is_seen(scene: Scene) -> None:
    await scene.redis.xdel(names.EVENT_STREAM, "10-0")

    assert await scene.broken() == {"I7.stream_is_the_outbox"}


async def test_foreign_entry_on_the_stream_is_seen(scene: Scene) -> None:
    await scene.redis.xadd(names.EVENT_STREAM, {"type": "job.created"})
    await scene.redis.xreadgroup("audit", "audit", {names.EVENT_STREAM: ">"}, noack=True)

    assert await scene.broken() == {"I7.stream_is_the_outbox"}


async def test_unacknowledged_entry_and_missing_group_are_seen(scene: Scene) -> None:
    await scene.redis.xgroup_setid(names.EVENT_STREAM, "audit", "0")
    await scene.redis.xreadgroup("audit", "audit", {names.EVENT_STREAM: ">"}, count=1)
    assert await scene.broken() == {"I8.nothing_pending"}

    await scene.redis.xgroup_destroy(names.EVENT_STREAM, "audit")
    assert await scene.broken() == {"I8.nothing_pending"}


async def test_dead_letters_are_counted(scene: Scene) -> None:
    await scene.redis.xadd(f"{names.DLQ_PREFIX}{scene.ids['w']}", {"type": "job.created"})

    assert await scene.broken() == {"I8.dead_letters"}
    assert await scene.broken(dead_letters=1) == set()


async def test_stream_is_walked_in_pages(scene: Scene) -> None:
    for sequence in range(11, 2_345):
        await scene.redis.xadd(names.EVENT_STREAM, {"sequence": str(sequence)})

    assert await scene.broken() == {"I7.stream_is_the_outbox"}  # longer than the outbox, and nothing else
    (violation,) = await check(scene.conn, scene.redis, at_rest=True)
    assert violation.sample == ("newest is 2344, in the outbox 10",)


async def test_without_redis_the_database_is_checked_alone(scene: Scene) -> None:
    await scene.redis.delete(names.EVENT_STREAM)

    assert await check(scene.conn, None, at_rest=True) == []
