"""Latency of an idle platform: one-job runs, one after another, started over HTTP."""

import asyncio
import statistics
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import httpx2

from runlane.cli.platform import Platform
from runlane.db.pool import Pool

POLL_S = 0.02
BODY = {"definition": {"name": "bench", "jobs": {"only": {"run": "noop"}}}}


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in milliseconds over `runs` runs."""

    runs: int
    post_to_claim_p50: float
    post_to_claim_p99: float
    row_to_claim_p50: float
    row_to_claim_p99: float


async def measure(platform: Platform, pool: Pool, target_id: UUID, runs: int) -> Latency:
    """Starts `runs` one-job runs, each after the one before has closed."""
    posts: list[float] = []
    rows: list[float] = []
    headers = {"Authorization": f"Bearer {platform.profile.api_key}"}
    async with httpx2.AsyncClient(
        base_url=platform.profile.api_url, headers=headers, trust_env=False
    ) as http:
        for _ in range(runs):
            sent = datetime.now(UTC)
            answer = await http.post("/v1/runs", json={**BODY, "targets": [str(target_id)]})
            answer.raise_for_status()
            job = await _claimed(pool, UUID(answer.json()["run_id"]))
            posts.append(1000 * (job[1] - sent).total_seconds())
            rows.append(1000 * (job[1] - job[0]).total_seconds())
    return Latency(runs, *_percentiles(posts), *_percentiles(rows))


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
