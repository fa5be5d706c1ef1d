"""A scan worker that dies is missed through its control stream, long before its heartbeats are.

A batch here may be silent for five minutes. Results go through the bucket, whatever their size.
"""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio

from runlane.db.pool import Record
from tests.e2e.installation import Installation, open_installation, until

pytestmark = pytest.mark.e2e

HEARTBEAT_S = 300
MISSED_WITHIN_S = 45.0
"""The grace of the control stream is 2 s, and neither heartbeats nor a sweep tell before a minute is over."""


@pytest_asyncio.fixture(scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    settings = {"RUNLANE_WORKER_HEARTBEAT_S": str(HEARTBEAT_S), "RUNLANE_STAGE_INLINE_BYTES": "0"}
    async with open_installation(tmp_path_factory.mktemp("lost"), settings) as opened:
        yield opened


async def in_hand(installation: Installation, run_id: UUID) -> list[Record]:
    """Open attempts of a run about which nothing was staged."""
    rows: list[Record] = await installation.pool.fetch(
        """SELECT a.job_id, a.attempt FROM job_attempts a JOIN jobs j ON j.id = a.job_id
           WHERE j.run_id = $1 AND a.ended_at IS NULL AND a.staged_at IS NULL""",
        run_id,
    )
    return rows


async def ends_of(installation: Installation, attempts: list[Record]) -> list[str | None]:
    """Outcomes of these attempts; None for one that is still open."""
    rows = await installation.pool.fetch(
        """SELECT a.outcome FROM job_attempts a
           JOIN unnest($1::uuid[], $2::int[]) AS m (job_id, attempt) USING (job_id, attempt)""",
        [row["job_id"] for row in attempts],
        [row["attempt"] for row in attempts],
    )
    return [row["outcome"] for row in rows]


async def test_killed_worker_loses_its_jobs_at_once_and_no_tool_outlives_it(
    installation: Installation,
) -> None:
    run_id = await installation.begin_and_reach_middle("worker")

    installation.platform.stack.kill("scan")
    lost = await in_hand(installation, run_id)

    async def are_released() -> bool:
        return None not in await ends_of(installation, lost)

    await until(are_released, MISSED_WITHIN_S)
    ends = set(await ends_of(installation, lost))
    assert "lost" in ends
    assert ends <= {"lost", "completed"}  # a result that was on its way when the worker died is taken
    await installation.assert_found_the_truth(run_id)
    await installation.assert_at_rest(run_id, after_sweep=True)
    assert not await installation.pool.fetchval("SELECT bool_or(charged) FROM job_attempts")


async def test_results_wait_for_a_bucket_that_is_away(installation: Installation) -> None:
    run_id = await installation.begin_and_reach_middle("bucket")

    await installation.kill("s3")

    await installation.assert_found_the_truth(run_id)
    await installation.assert_at_rest(run_id, after_sweep=True)
