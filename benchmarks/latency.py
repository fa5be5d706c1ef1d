"""Latency of an idle platform: one-job runs, one after another, started and cancelled over HTTP."""

import asyncio
import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import httpx2

from runlane.cli.platform import Platform
from runlane.db.pool import Pool, Record
from runlane.scan.confine import marked_processes

POLL_S = 0.02
BODY = {"definition": {"name": "bench", "jobs": {"only": {"run": "noop"}}}}
ENDLESS = {"*": {"sleep_ms": 600_000}}
"""Options of a job that runs until it is cancelled."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in milliseconds over `runs` runs."""

    runs: int
    post_to_claim_p50: float
    post_to_claim_p99: float
    row_to_claim_p50: float
    row_to_claim_p99: float
    cancel_to_dead_p50: float
    """From the request to cancel a job until its process is dead."""
    cancel_to_dead_p99: float


async def measure(platform: Platform, pool: Pool, target_id: UUID, runs: int) -> Latency:
    """Starts `runs` one-job runs, each after the one before; then half as many, to cancel their job."""
    posts: list[float] = []
    rows: list[float] = []
    async with _client(platform) as http:
        for _ in range(runs):
            sent = datetime.now(UTC)
            answer = await http.post("/v1/runs", json={**BODY, "targets": [str(target_id)]})
            answer.raise_for_status()
            job = await _claimed(pool, UUID(answer.json()["run_id"]))
            posts.append(1000 * (job[1] - sent).total_seconds())
            rows.append(1000 * (job[1] - job[0]).total_seconds())
        cancels = [await _cancel(http, pool, target_id) for _ in range(runs // 2)]
    return Latency(runs, *_percentiles(posts), *_percentiles(rows), *_percentiles(cancels))


def _client(platform: Platform) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {platform.profile.api_key}"}
    return httpx2.AsyncClient(base_url=platform.profile.api_url, headers=headers, trust_env=False)


async def _cancel(http: httpx2.AsyncClient, pool: Pool, target_id: UUID) -> float:
    """Milliseconds from the request to cancel a job at work until its process is dead."""
    answer = await http.post("/v1/runs", json={**BODY, "targets": [str(target_id)], "config": ENDLESS})
    answer.raise_for_status()
    job = await _in_progress(pool, UUID(answer.json()["run_id"]))
    while not _has_tool(job["worker_id"]):  # noqa: ASYNC110  # nothing announces a process
        await asyncio.sleep(POLL_S)
    sent = time.monotonic()
    (await http.post(f"/v1/jobs/{job['id']}/cancel")).raise_for_status()
    while _has_tool(job["worker_id"]):  # noqa: ASYNC110  # nor its end
        await asyncio.sleep(POLL_S)
    return 1000 * (time.monotonic() - sent)


def _has_tool(worker_id: UUID) -> bool:
    return any(mark.startswith(f"{worker_id}/") for _, mark in marked_processes())


async def _in_progress(pool: Pool, run_id: UUID) -> Record:
    """The run's job, once a worker has it."""
    while True:
        job = await pool.fetchrow(
            "SELECT id, worker_id FROM jobs WHERE run_id = $1 AND status = 'in_progress'", run_id
        )
        if job is not None:
            return job
        await asyncio.sleep(POLL_S)


async def _claimed(pool: Pool, run_id: UUID) -> tuple[datetime, datetime]:
    """When the run's job was written and claimed, once the run has closed."""
    while True:
        row = await pool.fetchrow(
            """SELECT j.created_at, j.picked_at FROM jobs j JOIN job_histories h ON h.id = j.run_id
               WHERE h.id = $1 AND h.closed_at IS NOT NULL""",
            run_id,
        )
        if row is not None:
            return row["created_at"], row["picked_at"]
        await asyncio.sleep(POLL_S)


def _percentiles(values: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return statistics.median(values), cuts[98]
