"""A scan host in the test's own process: claims and stages straight in the database, runs a given function.

It stands where the real scan worker does, behind the same activity name, claim and stage functions; tests of
the real worker and of the worker API are elsewhere. It lets a test decide the outcome of each attempt.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

import orjson
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from runlane import names
from runlane.db.claims import ClaimAnswer, ClaimedJob, ClaimRequest, claim
from runlane.db.pool import Pool
from runlane.db.staging import Delivery, StagedMember, stage
from runlane.jobs import Outcome
from runlane.runs import BatchInput, BatchResult


@dataclass(frozen=True, slots=True)
class Done:
    """What the tool says of one attempt; `outcome` None: the host says nothing and the attempt is lost."""

    outcome: Outcome | None = Outcome.COMPLETED
    records: list[object] = field(default_factory=list)
    error: str | None = None


ToolFunction = Callable[[str, ClaimedJob], Done]


@dataclass(frozen=True, slots=True)
class ScanHost:
    """An enrolled worker and the batches that it has run."""

    worker_id: UUID
    incarnation: UUID
    batches: list[BatchInput]
    jobs: list[ClaimedJob]


@asynccontextmanager
async def scan_host(
    pool: Pool, client: Client, workspace_id: UUID, tool: ToolFunction, *, slots: int = 50
) -> AsyncIterator[ScanHost]:
    """Enrols a worker of the workspace and serves its probe queue."""
    incarnation = uuid4()
    worker_id = await pool.fetchval(
        """INSERT INTO workers (scope, workspace_id, name, token_digest, incarnation, status, toolsets, slots,
                                beat_at, stream_seen_at)
           VALUES ('workspace', $1, 'test host', $2, $3, 'online', '{probe}', $4, clock_timestamp(),
                   clock_timestamp())
           RETURNING id""",
        workspace_id,
        uuid4().bytes * 2,
        incarnation,
        {"probe": slots},
    )
    host = ScanHost(worker_id, incarnation, [], [])

    @activity.defn(name=names.RUN_BATCH_ACTIVITY)
    async def run_batch(batch: BatchInput) -> BatchResult:
        host.batches.append(batch)
        answer = await _claim(pool, host, batch)
        host.jobs.extend(answer.jobs)
        return await _stage(pool, host, batch, answer, tool)

    async with Worker(
        client,
        task_queue=names.scan_queue(workspace_id, "probe"),
        activities=[run_batch],
        max_concurrent_activities=slots,
        graceful_shutdown_timeout=timedelta(seconds=1),
    ):
        yield host


async def _claim(pool: Pool, host: ScanHost, batch: BatchInput) -> ClaimAnswer:
    info = activity.info()
    request = ClaimRequest(
        dispatch_id=UUID(batch.dispatch_id),
        claim_key=f"{info.workflow_run_id}/{info.activity_id}/{info.attempt}",
        worker_id=host.worker_id,
        incarnation=host.incarnation,
        slots=batch.size,
    )
    async with pool.acquire() as conn, conn.transaction():
        return await claim(conn, request)


async def _stage(
    pool: Pool, host: ScanHost, batch: BatchInput, answer: ClaimAnswer, tool: ToolFunction
) -> BatchResult:
    members: list[StagedMember] = []
    lines: list[bytes] = []
    for job in answer.jobs:
        done = tool(batch.step_id, job)
        if done.outcome is None:
            continue
        members.append(
            StagedMember(
                job.job_id, job.attempt, done.outcome, done.error, complete=True, reachable=True, coverage={}
            )
        )
        if done.records:
            line = {"job": str(job.job_id), "attempt": job.attempt, "records": done.records}
            lines.append(orjson.dumps(line))
    if members:
        delivery = Delivery(
            host.worker_id, host.incarnation, UUID(batch.dispatch_id), members, b"\n".join(lines) or None
        )
        async with pool.acquire() as conn, conn.transaction():
            await stage(conn, delivery)
    return BatchResult(batch.dispatch_id, staged=len(members))
