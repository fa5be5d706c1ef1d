"""A scan host in the test's own process: claims and stages straight in the database, its tool is a function.

It stands where the real scan worker does, behind the same activity name, claim and stage functions; tests of
the real worker and of the worker API are elsewhere. A test decides the outcome of each attempt.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import isawaitable
from uuid import UUID, uuid4

import httpx2
import orjson
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from runlane import names
from runlane.db.claims import ClaimAnswer, ClaimedJob, ClaimRequest, claim
from runlane.db.pool import Pool
from runlane.db.staging import Delivery, ObjectRef, Staged, StagedMember, stage
from runlane.jobs import Outcome
from runlane.runs import BatchInput, BatchResult
from runlane.storage import Storage, object_key


@dataclass(frozen=True, slots=True)
class Done:
    """What the tool says of one attempt; `outcome` None: the host says nothing and the attempt is lost."""

    outcome: Outcome | None = Outcome.COMPLETED
    records: list[object] = field(default_factory=list)
    error: str | None = None


ToolFunction = Callable[[str, ClaimedJob], Done | Awaitable[Done]]
"""Given a step and a job. One that waits keeps its whole batch in progress meanwhile."""


@dataclass(frozen=True, slots=True)
class ScanHost:
    """An enrolled worker and the batches that it has run."""

    pool: Pool
    workspace_id: UUID
    worker_id: UUID
    incarnation: UUID
    storage: Storage | None = None
    """Where its results go as objects; None: they are staged inline."""
    batches: list[BatchInput] = field(default_factory=list)
    jobs: list[ClaimedJob] = field(default_factory=list)

    async def claim(self, dispatch_id: UUID, claim_key: str, slots: int) -> ClaimAnswer:
        """Claims the jobs of a dispatch."""
        request = ClaimRequest(dispatch_id, claim_key, self.worker_id, self.incarnation, slots)
        async with self.pool.acquire() as conn, conn.transaction():
            return await claim(conn, request)

    async def delivery(self, dispatch_id: UUID, said: Sequence[tuple[ClaimedJob, Done]]) -> Delivery:
        """What the tool said of these jobs, as one delivery; with a bucket its records are there already."""
        members = [
            StagedMember(
                job.job_id, job.attempt, done.outcome, done.error, complete=True, reachable=True, coverage={}
            )
            for job, done in said
            if done.outcome is not None
        ]
        lines = [
            orjson.dumps({"job": str(job.job_id), "attempt": job.attempt, "records": done.records})
            for job, done in said
            if done.records
        ]
        body = b"\n".join(lines) or None
        ref = await self._upload(self.storage, dispatch_id, body) if self.storage and body else None
        return Delivery(
            self.worker_id, self.incarnation, dispatch_id, members, None if ref else body, object_ref=ref
        )

    async def _upload(self, storage: Storage, dispatch_id: UUID, body: bytes) -> ObjectRef:
        key = object_key(self.workspace_id, dispatch_id)
        async with httpx2.AsyncClient() as client:
            response = await client.put(storage.upload_url(key, len(body)), content=body)
        response.raise_for_status()
        return ObjectRef(key, len(body), hashlib.sha256(body).digest())

    async def first(self, done: Done) -> Delivery:
        """A delivery about the first job that it claimed."""
        return await self.delivery(UUID(self.batches[0].dispatch_id), [(self.jobs[0], done)])

    async def stage(self, delivery: Delivery) -> Staged:
        """Stages a delivery."""
        async with self.pool.acquire() as conn, conn.transaction():
            return await stage(conn, delivery)


async def enrol(
    pool: Pool,
    workspace_id: UUID,
    *,
    slots: int = 50,
    storage: Storage | None = None,
    is_shared: bool = False,
    network_id: UUID | None = None,
    toolset: str = "probe",
) -> ScanHost:
    """Enrols a worker of the workspace, or one that all share; nothing serves its queue."""
    incarnation = uuid4()
    worker_id = await pool.fetchval(
        """INSERT INTO workers (scope, workspace_id, network_id, name, token_digest, incarnation, status,
                                toolsets, slots, beat_at, stream_seen_at)
           VALUES ($5, $1, $6, 'test host', $2, $3, 'online', ARRAY[$7], $4, clock_timestamp(),
                   clock_timestamp())
           RETURNING id""",
        None if is_shared else workspace_id,
        uuid4().bytes * 2,
        incarnation,
        {toolset: slots},
        "shared" if is_shared else "workspace",
        network_id,
        toolset,
    )
    return ScanHost(pool, workspace_id, worker_id, incarnation, storage)


@asynccontextmanager
async def serve(
    host: ScanHost, client: Client, tool: ToolFunction, *, slots: int = 50, queue: str | None = None
) -> AsyncIterator[None]:
    """Serves a queue, or the probe queue of the host's workspace, `slots` batches at once."""

    @activity.defn(name=names.RUN_BATCH_ACTIVITY)
    async def run_batch(batch: BatchInput) -> BatchResult:
        host.batches.append(batch)
        info = activity.info()
        claim_key = f"{info.workflow_run_id}/{info.activity_id}/{info.attempt}"
        answer = await host.claim(UUID(batch.dispatch_id), claim_key, batch.size)
        host.jobs.extend(answer.jobs)
        said = [(job, await _said(tool(batch.step_id, job))) for job in answer.jobs]
        delivery = await host.delivery(answer.dispatch_id, said)
        staged = await host.stage(delivery) if delivery.members else Staged([], [])
        return BatchResult(batch.dispatch_id, staged=len(staged.accepted))

    async with Worker(
        client,
        task_queue=queue or names.scan_queue(host.workspace_id, "probe"),
        activities=[run_batch],
        max_concurrent_activities=slots,
        graceful_shutdown_timeout=timedelta(seconds=1),
    ):
        yield


async def _said(said: Done | Awaitable[Done]) -> Done:
    return await said if isawaitable(said) else said
