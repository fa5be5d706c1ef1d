"""Staged bodies that a host made up: they cost what their own delivery says of its own jobs, nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.testing import ActivityEnvironment

from activities import bodies
from activities.results import EndedBatch, ResultActivities, SettleInput, SettleResult
from runlane.db.claims import ClaimedJob
from runlane.db.pool import Pool
from runlane.db.staging import Delivery, StagedMember
from runlane.jobs import Outcome
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from runlane.tools import staged
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.scan_host import ScanHost, enrol

pytestmark = pytest.mark.integration

QUARANTINED = "SELECT (summary ->> 'quarantined')::int FROM job_attempts WHERE ended_at IS NOT NULL"
NAMES = "SELECT array_agg(value ORDER BY value) FROM assets WHERE NOT is_primary"


@dataclass(frozen=True, slots=True)
class Batch:
    """A dispatch of one job, claimed by its host."""

    host: ScanHost
    dispatch_id: UUID
    job: ClaimedJob

    def line(self, label: str) -> bytes:
        """A line that says that the job found one name."""
        name = f"{label}.{self.job.spec['host']}".encode()
        head = b'{"job":"%b","attempt":%d,"records":' % (str(self.job.job_id).encode(), self.job.attempt)
        return head + b'[{"name":"%b","records":{}}]}\n' % name

    async def stage(self, body: bytes, outcome: Outcome = Outcome.COMPLETED) -> None:
        """Stages a body under the job's outcome."""
        member = StagedMember(
            self.job.job_id, self.job.attempt, outcome, None, complete=True, reachable=True, coverage={}
        )
        delivery = Delivery(self.host.worker_id, self.host.incarnation, self.dispatch_id, [member], body)
        assert (await self.host.stage(delivery)).accepted


@dataclass(frozen=True, slots=True)
class Settler:
    """Two claimed batches of one run, and the settle."""

    pool: Pool
    results: ResultActivities
    honest: Batch
    hostile: Batch

    async def settle(self, batches: Sequence[EndedBatch] | None = None) -> SettleResult:
        """Settles these batches, by default both."""
        both = [EndedBatch(str(batch.dispatch_id)) for batch in (self.honest, self.hostile)]
        return await ActivityEnvironment().run(
            self.results.settle_batches, SettleInput(list(batches) if batches is not None else both)
        )

    async def settle_all(self) -> None:
        """Settles until nothing is left, as the workflow does."""
        result = await self.settle()
        while result.again:
            result = await self.settle(result.again)


@pytest_asyncio.fixture
async def settler(pool: Pool, workspace_id: UUID, settings: Settings) -> Settler:
    results = ResultActivities(pool, Storage(StorageConfig(**settings.bucket)))
    hosts = [await enrol(pool, workspace_id) for _ in range(2)]
    run = await dispatched_run(pool, workspace_id, Shape("dnsprobe", batches=2))
    claimed: list[Batch] = []
    for host, dispatch_id in zip(hosts, run.dispatches, strict=True):
        answer = await host.claim(dispatch_id, "key", 1)
        claimed.append(Batch(host, dispatch_id, answer.jobs[0]))
    return Settler(pool, results, *claimed)


@pytest.mark.parametrize("is_first", [True, False])
async def test_body_with_the_job_of_another_delivery_does_not_replace_what_that_one_found(
    settler: Settler, is_first: bool
) -> None:
    deliveries = [
        (settler.honest, settler.honest.line("true")),
        (settler.hostile, settler.hostile.line("own") + settler.honest.line("forged")),
    ]
    for batch, body in reversed(deliveries) if is_first else deliveries:
        await batch.stage(body)

    await settler.settle_all()

    assert await settler.pool.fetchval(NAMES) == ["own.b.test", "true.a.test"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"job": 1, "attempt": 1, "records": []}',
        b'{"job": [], "attempt": 1, "records": []}',
        b'{"job": "no id", "attempt": 1, "records": []}',
        b'{"job": "%b", "attempt": 1e300, "records": []}' % str(UUID(int=1)).encode(),
        b"[]",
        b"\xff",
    ],
)
async def test_body_that_is_none_fails_its_own_job_and_stops_nothing(settler: Settler, body: bytes) -> None:
    await settler.honest.stage(settler.honest.line("true"))
    await settler.hostile.stage(body)

    await settler.settle_all()

    statuses = {row["id"]: row["status"] for row in await settler.pool.fetch("SELECT id, status FROM jobs")}
    assert statuses == {settler.honest.job.job_id: "completed", settler.hostile.job.job_id: "failed"}
    assert await settler.pool.fetchval(NAMES) == ["true.a.test"]


async def test_long_line_is_merged_portion_by_portion_like_a_short_one(
    settler: Settler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "LARGE_LINE_BYTES", 200)
    monkeypatch.setattr(staged, "PORTION", 2)
    names = [b'{"name":"n%d.b.test","records":{"TXT":["\\"}],[{"]}}' % number for number in range(7)]
    records = b",".join([*names, b"{}", names[0]])
    await settler.hostile.stage(settler.hostile.line("own").replace(b"[", b"[" + records + b","))
    await settler.honest.stage(settler.honest.line("true"))

    await settler.settle_all()

    found = [*(f"n{number}.b.test" for number in range(7)), "own.b.test"]
    assert await settler.pool.fetchval(NAMES) == [*found, "true.a.test"]
    assert sorted(row[0] or 0 for row in await settler.pool.fetch(QUARANTINED)) == [0, 1]
    assert await settler.pool.fetchval("SELECT max((summary ->> 'records')::int) FROM job_attempts") == 9


@pytest.mark.parametrize(
    ("was", "becomes"),
    [(b"},{", b"}{"), (b'"attempt"', b'"extra":1,"attempt"'), (b"]}\n", b"}\n"), (b"},{", b"},[{")],
    ids=["no comma", "other order", "no end", "unbalanced"],
)
async def test_long_line_that_is_none_fails_its_own_job_and_stops_nothing(
    settler: Settler, monkeypatch: pytest.MonkeyPatch, was: bytes, becomes: bytes
) -> None:
    monkeypatch.setattr(bodies, "LARGE_LINE_BYTES", 200)
    monkeypatch.setattr(staged, "PORTION", 1)
    await settler.honest.stage(settler.honest.line("true"))
    body = settler.hostile.line("own").replace(b"[", b"[" + b'{"name":"own.b.test","records":{}},' * 9)
    await settler.hostile.stage(body.replace(was, becomes))

    await settler.settle_all()

    statuses = {row["id"]: row["status"] for row in await settler.pool.fetch("SELECT id, status FROM jobs")}
    assert statuses == {settler.honest.job.job_id: "completed", settler.hostile.job.job_id: "failed"}
    assert await settler.pool.fetchval(NAMES) == ["true.a.test"]


async def test_body_of_more_values_than_memory_can_bear_is_not_read(
    settler: Settler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MAX_VALUES", 1_000)
    await settler.honest.stage(settler.honest.line("true"))
    await settler.hostile.stage(settler.hostile.line("own").replace(b"[", b"[" + b"{}," * 1_000))

    await settler.settle_all()

    assert await settler.pool.fetchval("SELECT message FROM job_error_logs") == (
        "staged result cannot be read: more than 1000 values"
    )


async def test_bodies_that_do_not_fit_one_settle_are_left_to_the_next(
    settler: Settler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "SETTLE_BYTES", 10)
    await settler.honest.stage(settler.honest.line("true"))
    await settler.hostile.stage(settler.hostile.line("own"))

    first = await settler.settle()
    second = await settler.settle(first.again)

    assert (first.jobs, len(first.again), second.jobs, second.again) == (1, 1, 1, [])
    assert await settler.pool.fetchval(NAMES) == ["own.b.test", "true.a.test"]


async def test_large_body_is_read_while_the_heart_beats(
    settler: Settler, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[object] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    monkeypatch.setattr("activities.heartbeats.BEAT_EVERY_S", 0.02)
    monkeypatch.setattr(bodies, "LARGE_BODY_BYTES", 1_000)
    await settler.hostile.stage(settler.hostile.line("own").replace(b"[", b"[" + b"{}," * 100_000))

    batch = EndedBatch(str(settler.hostile.dispatch_id))
    await environment.run(settler.results.settle_batches, SettleInput([batch]))

    assert await settler.pool.fetchval(QUARANTINED) == 100_000
    assert len(beats) > 5


async def test_error_log_of_a_large_partial_result_ends_with_whole_texts(settler: Settler) -> None:
    token = "t0k3n" * 20
    record = b'{"name":"%b","text":"%b"},' % (b"n" * 70_000, token.encode())
    body = settler.hostile.line("own").replace(b"[", b"[" + record)
    await settler.hostile.stage(body, Outcome.FATAL)

    await settler.settle_all()

    partial = await settler.pool.fetchval("SELECT partial FROM job_error_logs")
    assert partial
    assert "t0k3n" not in partial
