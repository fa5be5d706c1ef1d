"""Deliveries: what the lane writes down, how it is sent, and what becomes of endpoints that are not well."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
import structlog.testing
from httpx2 import AsyncClient
from standardwebhooks import Webhook

from activities.deliveries import DeliveryActivities, Outbound
from runlane.db import integrations, pumping
from runlane.db.acts import Act
from runlane.db.integration_secrets import open_secrets
from runlane.db.pool import Pool
from runlane.events import Severity
from runlane.integrations import BREAKS_AFTER, DIGEST_ABOVE, Answer, Kind
from runlane.outbound.transport import Endpoint, Message, Sent
from runlane.settings import Settings
from runlane.sweeps import Part
from tests.integration.delivery_world import DeliveryWorld, cancelled, delivery_world, detected
from tests.integration.sweep_world import SweepWorld
from tests.receivers import Received, Reply, receiver, sender

pytestmark = pytest.mark.integration

NOWHERE = "http://127.0.0.1:1/hook"


@pytest_asyncio.fixture
async def ways(settings: Settings, pool: Pool, workspace_id: UUID) -> AsyncIterator[DeliveryWorld]:
    async with delivery_world(settings, pool, workspace_id) as opened:
        yield opened


class Broken:
    """A transport with a bug."""

    def validate(self, config: Mapping[str, object], secrets: Mapping[str, str] | None) -> None:
        """Passes."""

    async def send(self, client: AsyncClient, endpoint: Endpoint, message: Message, at: datetime) -> Sent:
        """Breaks."""
        raise ValueError("of no use to anybody")


def answering(*statuses: int, **headers: str) -> Callable[[Received], Reply]:
    """Answers each request with the next status, and the last one from then on."""
    left = list(statuses)

    def respond(_request: Received) -> Reply:
        return Reply(left.pop(0) if len(left) > 1 else left[0], b"said so", headers)

    return respond


async def test_an_endpoint_gets_what_it_asks_for_and_nothing_of_others(
    ways: DeliveryWorld, pool: Pool
) -> None:
    other = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('other') RETURNING id")
    everything = await ways.connect(NOWHERE)
    jobs = await ways.connect(NOWHERE, events=["job.*"])
    findings = await ways.connect(NOWHERE, events=["vulnerability.detected"])
    loud = await ways.connect(NOWHERE, least=Severity.HIGH)
    foreign = await ways.connect(NOWHERE, workspace_id=other)
    event = cancelled(ways.workspace_id)

    await ways.hear(event, cancelled(uuid4()))
    await ways.hear(event)  # once more, as after a crash of a lane without inbox

    found = {each: await ways.states(each) for each in (everything, jobs, findings, loud, foreign)}
    assert found == {everything: ["pending/0/-"], jobs: ["pending/0/-"], findings: [], loud: [], foreign: []}
    body = await pool.fetchval("SELECT body FROM deliveries LIMIT 1")
    assert body["type"] == "job.cancelled"
    assert body["payload"]["job_id"] == event.data["job_id"]


async def test_a_disabled_endpoint_has_noted_what_it_missed(ways: DeliveryWorld, pool: Pool) -> None:
    hook = await ways.connect(NOWHERE)
    await ways.hear(cancelled(ways.workspace_id))
    async with pool.acquire() as conn, conn.transaction():
        await integrations.disable(conn, ways.place(hook), Act())

    await ways.hear(cancelled(ways.workspace_id))

    assert await ways.states(hook) == ["skipped/0/-", "skipped/0/-"]
    assert await ways.deliver(hook) == 0


async def test_above_twenty_a_minute_one_delivery_says_how_many(ways: DeliveryWorld, pool: Pool) -> None:
    hook, run_id = await ways.connect(NOWHERE), uuid4()
    for _ in range(5):
        await ways.hear(*(cancelled(ways.workspace_id, run_id) for _ in range(100)))
    await ways.hear(cancelled(ways.workspace_id))

    rows = await pool.fetch(
        "SELECT digest IS NOT NULL AS is_digest, count(*)::int AS rows, sum(events)::int AS events,"
        " bool_and(due_at > created_at) AS waits FROM deliveries WHERE integration_id = $1"
        " GROUP BY 1 ORDER BY 1",
        hook,
    )
    assert [tuple(row) for row in rows] == [
        (False, DIGEST_ABOVE + 1, DIGEST_ABOVE + 1, False),
        (True, 1, 500 - DIGEST_ABOVE, True),
    ]


async def test_each_of_many_findings_gets_its_ticket(ways: DeliveryWorld, pool: Pool) -> None:
    tracker = await ways.connect(NOWHERE)
    await pool.execute("UPDATE integrations SET kind = 'github' WHERE id = $1", tracker)

    await ways.hear(*(detected(ways.workspace_id) for _ in range(5 * DIGEST_ABOVE)))

    assert await ways.states(tracker) == ["pending/0/-"] * 5 * DIGEST_ABOVE


async def test_what_one_act_has_set_off_is_one_delivery_from_the_first_on(ways: DeliveryWorld) -> None:
    async with receiver(answering(200)) as served:
        hook, run_id = await ways.connect(served.url), uuid4()
        await ways.hear(*(cancelled(ways.workspace_id, run_id, cause="run") for _ in range(30)))
        assert await ways.deliver(hook) == 0

        await ways.let_time_pass(hook)
        assert await ways.deliver(hook) == 1

    [request] = served.received
    assert request.headers["runlane-events"] == "30"


async def test_deliveries_are_signed_logged_and_settled_once(ways: DeliveryWorld, pool: Pool) -> None:
    event = cancelled(ways.workspace_id)
    async with receiver(answering(200)) as served:
        hook = await ways.connect(f"{served.url}/hook")
        await ways.hear(event)
        assert await ways.deliver(hook) == 1
        assert await ways.deliver(hook) == 0

    [request] = served.received
    async with pool.acquire() as conn:
        signing = (await open_secrets(conn, ways.place(hook), ways.keyring)).signing
    assert Webhook(signing[0]).verify(request.body, dict(request.headers))["type"] == "job.cancelled"
    assert request.headers["webhook-id"] == str(event.id)
    assert await ways.states(hook) == ["delivered/1/200"]
    tried = await pool.fetch("SELECT attempt, answer, status, excerpt FROM delivery_attempts")
    assert [tuple(row) for row in tried] == [(1, "accepted", 200, "said so")]


async def test_trouble_is_tried_again_with_growing_pauses_under_the_same_id(
    ways: DeliveryWorld, pool: Pool
) -> None:
    async with receiver(answering(500, 302, 200)) as served:
        hook = await ways.connect(served.url)
        await ways.hear(cancelled(ways.workspace_id))
        waits = []
        for _ in range(3):
            await ways.deliver(hook)
            waits.append(
                await pool.fetchval("SELECT round(extract(epoch FROM due_at - now())) FROM deliveries")
            )
            await ways.let_time_pass(hook)

    assert await ways.states(hook) == ["delivered/3/200"]
    assert len({request.headers["webhook-id"] for request in served.received}) == 1
    assert len({request.body for request in served.received}) == 1
    assert 3 <= waits[0] <= 5
    assert 295 <= waits[1] <= 300
    assert (await ways.endpoint(hook))["failures"] == 0


async def test_what_is_refused_three_times_has_failed_and_an_event_says_so(ways: DeliveryWorld) -> None:
    async with receiver(answering(400)) as served:
        hook = await ways.connect(served.url)
        await ways.hear(cancelled(ways.workspace_id))
        for _ in range(4):
            await ways.deliver(hook)
            await ways.let_time_pass(hook)

    assert len(served.received) == 3
    assert await ways.states(hook) == ["failed/3/400"]
    assert await ways.told() == ["integration.connected", "integration.delivery.failed"]


async def test_retry_after_leaves_the_whole_endpoint_alone(ways: DeliveryWorld, pool: Pool) -> None:
    async with receiver(answering(429, 200, **{"Retry-After": "120"})) as served:
        hook = await ways.connect(served.url)
        await ways.hear(cancelled(ways.workspace_id))
        await ways.deliver(hook)
        await ways.hear(cancelled(ways.workspace_id))
        assert await ways.deliver(hook) == 0

    assert len(served.received) == 1
    waits = await pool.fetch(
        "SELECT extract(epoch FROM due_at - now()) AS s FROM commands WHERE kind = 'deliver' ORDER BY due_at"
    )
    assert 100 < waits[-1]["s"] <= 120


async def test_gone_disables_at_once_and_says_so_once(ways: DeliveryWorld) -> None:
    async with receiver(answering(410)) as served:
        hook = await ways.connect(served.url, is_ordered=True)
        await ways.hear(*(cancelled(ways.workspace_id) for _ in range(3)))
        await ways.deliver(hook)
        await ways.deliver(hook)

    assert len(served.received) == 1
    assert await ways.states(hook) == ["failed/1/410", "skipped/0/-", "skipped/0/-"]
    assert (await ways.endpoint(hook))["disabled_reason"] == "gone"
    assert (await ways.told()).count("integration.endpoint.disabled") == 1


async def test_five_days_of_failures_disable_and_enabling_probes_with_one(
    ways: DeliveryWorld, pool: Pool
) -> None:
    async with receiver(answering(503, 503, 200)) as served:
        hook = await ways.connect(served.url)
        await ways.hear(cancelled(ways.workspace_id))
        await ways.deliver(hook)
        assert (await ways.endpoint(hook))["status"] == "active"
        await pool.execute("UPDATE integrations SET failing_since = failing_since - interval '5 days'")
        await ways.let_time_pass(hook)
        await ways.deliver(hook)
        disabled = await ways.endpoint(hook)
        assert (disabled["status"], disabled["disabled_reason"]) == ("disabled", "failing")

        async with pool.acquire() as conn, conn.transaction():
            await integrations.enable(conn, ways.place(hook), Act())
        await ways.hear(*(cancelled(ways.workspace_id) for _ in range(3)))
        async with pool.acquire() as conn, conn.transaction():
            probe = await pumping.take(conn, hook, ways.keyring)
        assert probe is not None
        assert len(probe.deliveries) == 1
        await ways.let_time_pass(hook)
        await ways.deliver(hook)

    assert (await ways.endpoint(hook))["is_probing"] is False
    assert await ways.told("integration.endpoint.") == [
        "integration.endpoint.disabled",
        "integration.endpoint.recovered",
    ]


async def test_an_endpoint_that_keeps_failing_is_left_alone_and_probed_by_one(ways: DeliveryWorld) -> None:
    async with receiver(answering(500)) as served:
        hook = await ways.connect(served.url)
        await ways.hear(*(cancelled(ways.workspace_id) for _ in range(8)))
        assert await ways.deliver(hook) == 8
        broken = await ways.endpoint(hook)
        await ways.let_time_pass(hook)
        assert await ways.deliver(hook) == 1

    assert len(served.received) == 9
    assert broken["paused_until"] is not None
    assert int(str(broken["failures"])) >= BREAKS_AFTER


async def test_ordered_endpoint_gets_nothing_before_what_is_still_tried(ways: DeliveryWorld) -> None:
    events = [cancelled(ways.workspace_id) for _ in range(4)]
    async with receiver(answering(200, 500, 200)) as served:
        hook = await ways.connect(served.url, is_ordered=True)
        await ways.hear(*events)
        assert await ways.deliver(hook) == 2
        assert await ways.deliver(hook) == 0
        await ways.let_time_pass(hook)
        assert await ways.deliver(hook) == 3

    sent = [request.headers["webhook-id"] for request in served.received]
    assert sent == [str(events[n].id) for n in (0, 1, 1, 2, 3)]


async def test_what_a_sender_has_taken_and_not_settled_is_sent_again_later(
    ways: DeliveryWorld, pool: Pool
) -> None:
    async with receiver(answering(200)) as served:
        hook = await ways.connect(served.url)
        await ways.hear(cancelled(ways.workspace_id))
        async with pool.acquire() as conn, conn.transaction():
            lost = await pumping.take(conn, hook, ways.keyring)
        assert lost is not None
        assert await ways.deliver(hook) == 0
        await ways.let_time_pass(hook)
        assert await ways.deliver(hook) == 1
        # the one that was thought dead comes after all
        late = pumping.Attempted(lost.deliveries[0], Answer.TROUBLED, 1, error="late")
        async with pool.acquire() as conn, conn.transaction():
            await pumping.settle(conn, lost.place, [late])

    assert await ways.states(hook) == ["delivered/2/200"]
    assert (await ways.endpoint(hook))["failures"] == 0


async def test_endpoint_disconnected_between_gets_nothing_and_keeps_no_secret(
    ways: DeliveryWorld, pool: Pool
) -> None:
    async with receiver(answering(200)) as served:
        hook = await ways.connect(served.url)
        await ways.hear(cancelled(ways.workspace_id))
        async with pool.acquire() as conn, conn.transaction():
            await integrations.disconnect(conn, ways.place(hook), Act())
        await ways.hear(cancelled(ways.workspace_id))
        assert await ways.deliver(hook) == 0

    assert not served.received
    assert await ways.states(hook) == ["skipped/0/-"]
    assert await pool.fetchval("SELECT count(*) FROM integration_secrets") == 0


async def test_a_transport_that_breaks_costs_its_delivery_an_attempt_and_no_more(
    ways: DeliveryWorld, pool: Pool
) -> None:
    async with sender() as (client, _):
        outbound = Outbound(client, {Kind.WEBHOOK: Broken()}, ways.keyring)
        broken = replace(ways, activities=DeliveryActivities(pool, outbound))
        hook = await ways.connect(NOWHERE)
        await ways.hear(cancelled(ways.workspace_id))
        with structlog.testing.capture_logs() as lines:
            assert await broken.deliver(hook) == 1

    assert await ways.states(hook) == ["pending/1/-"]
    assert (
        await pool.fetchval("SELECT answer || ' ' || error FROM delivery_attempts") == "troubled ValueError"
    )
    assert [line["event"] for line in lines] == ["delivery_broke"]


async def test_an_endpoint_is_called_once_for_what_is_due_and_earlier_for_what_is_due_earlier(
    ways: DeliveryWorld, pool: Pool
) -> None:
    hook = await ways.connect(NOWHERE)
    await ways.hear(cancelled(ways.workspace_id, cause="run"))
    await ways.hear(cancelled(ways.workspace_id))
    await ways.hear(cancelled(ways.workspace_id))

    commands = await pool.fetch(
        """SELECT workflow_id, due_at > clock_timestamp() AS is_later FROM commands
           WHERE kind = 'deliver' ORDER BY id"""
    )
    assert [tuple(row) for row in commands] == [(f"deliver/{hook}", True), (f"deliver/{hook}", False)]


async def test_deliveries_that_nobody_makes_are_called_for_again(
    ways: DeliveryWorld, pool: Pool, sweeps: SweepWorld
) -> None:
    hook = await ways.connect(NOWHERE)
    await ways.hear(cancelled(ways.workspace_id))
    assert (await sweeps.sweep(Part.LATE_DELIVERIES)).changed == 0
    await pool.execute("DELETE FROM commands")
    await pool.execute("UPDATE deliveries SET due_at = due_at - interval '2 minutes'")
    await pool.execute("UPDATE integrations SET called_for = called_for - interval '2 minutes'")

    assert (await sweeps.sweep(Part.LATE_DELIVERIES)).changed == 1

    assert await pool.fetchval("SELECT workflow_id FROM commands") == f"deliver/{hook}"


async def test_two_senders_at_once_send_each_delivery_once(ways: DeliveryWorld) -> None:
    async with receiver(answering(200)) as served:
        hook = await ways.connect(served.url)
        await ways.hear(*(cancelled(ways.workspace_id) for _ in range(30)))
        made = await asyncio.gather(ways.deliver(hook), ways.deliver(hook))

    assert sum(made) == 30
    assert len({request.headers["webhook-id"] for request in served.received}) == len(served.received) == 30


async def test_old_deliveries_go_with_their_attempts_and_what_is_pending_stays(
    ways: DeliveryWorld, pool: Pool, sweeps: SweepWorld
) -> None:
    async with receiver(answering(200)) as served:
        hook = await ways.connect(served.url)
        await ways.hear(cancelled(ways.workspace_id))
        await ways.deliver(hook)
        await ways.hear(cancelled(ways.workspace_id))
    await pool.execute(
        "UPDATE deliveries SET created_at = created_at - interval '31 days',"
        " ended_at = ended_at - interval '31 days'"
    )

    await sweeps.sweep(Part.OLD_ROWS)

    assert await ways.states(hook) == ["pending/0/-"]
    assert await pool.fetchval("SELECT count(*) FROM delivery_attempts") == 0


async def test_taking_reads_no_delivery_that_has_ended(ways: DeliveryWorld, pool: Pool) -> None:
    hook = await ways.connect(NOWHERE)
    await pool.execute(
        """INSERT INTO deliveries
             (workspace_id, integration_id, event_id, type, subject, sequence, body, state, ended_at)
           SELECT $1, $2, gen_random_uuid(), 'job.failed', 'job/x', n, '{}', 'delivered', now()
           FROM generate_series(1, 20000) n""",
        ways.workspace_id,
        hook,
    )
    await ways.hear(cancelled(ways.workspace_id))
    await pool.execute("ANALYZE deliveries")

    for statement in (pumping._TAKE_ANY, pumping._TAKE_FIRST):
        async with pool.acquire() as conn:
            transaction = conn.transaction()
            await transaction.start()
            explained = await conn.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}",
                hook,
                8,
                timedelta(minutes=1),
            )
            await transaction.rollback()
        assert explained[0]["Plan"]["Shared Hit Blocks"] + explained[0]["Plan"]["Shared Read Blocks"] < 100


async def test_a_dead_endpoint_delays_no_other(ways: DeliveryWorld) -> None:
    is_dead = asyncio.Event()

    def silent(_request: Received) -> None:
        is_dead.set()

    async with receiver(silent) as dead, receiver(answering(200)) as well:
        hooks = [await ways.connect(dead.url), await ways.connect(well.url)]
        await ways.hear(*(cancelled(ways.workspace_id) for _ in range(3)))
        stuck = asyncio.create_task(ways.deliver(hooks[0]))
        await is_dead.wait()
        assert await ways.deliver(hooks[1]) == 3
        assert not stuck.done()
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)

    assert await ways.states(hooks[1]) == ["delivered/1/200"] * 3
