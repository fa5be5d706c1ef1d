"""How soon a cancel of one job takes effect, by the shape of its tool, while its siblings go on."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from uuid import UUID

import httpx2

from runlane.db.pool import Record
from runlane.scan.confine import marked_processes
from tests.chaos.bounds import NEVER_S, Times
from tests.chaos.endless import endless_run
from tests.chaos.fleet import Fleet, ScanWorker
from tests.e2e.installation import Installation

BOUND_S: Final = 1.0
SAMPLE_LIMIT_S: Final = 30.0
LOOK_S: Final = 0.01

_AT_WORK: Final = """
SELECT j.id, j.dispatch_id, j.worker_id FROM jobs j
WHERE j.run_id = $1 AND j.status = 'in_progress' AND j.worker_id = ANY ($2) ORDER BY j.dispatch_id, j.id
"""

_DISTURBED: Final = """
SELECT count(*) FROM jobs
WHERE run_id = $1 AND status <> 'cancelled' AND (attempt > 1 OR status <> 'in_progress')
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A tool of each shape, and by what one knows that it has let go of a job."""

    tool: str
    name: str
    sign: str | None
    """What the worker writes into its log; None: the job's own process is gone."""


SHAPES: Final = (
    Shape("nmap", "cancel of a job → its process is dead (each)", None),
    Shape("noop", "cancel of a job → the tool has dropped it (stream)", "job_dropped"),
    Shape("naabu", "cancel of a job → its output is discarded (many)", "job_cancelled"),
)


@dataclass(frozen=True, slots=True)
class Cancels:
    """Where it is measured."""

    installation: Installation
    fleet: Fleet
    targets: list[UUID]

    async def measure(self, shape: Shape, count: int) -> Times:
        """One sample for each cancelled job, one after another; the last of a batch is left alone."""
        times = Times(shape.name, BOUND_S, 0.99, count)
        profile = self.installation.platform.profile
        headers = {"Authorization": f"Bearer {profile.api_key}"}
        async with httpx2.AsyncClient(base_url=profile.api_url, headers=headers, trust_env=False) as http:
            for _ in range(count):
                if len(times.values) >= count:
                    break
                async with endless_run(self.installation, shape.tool, self.targets) as run_id:
                    await self._sample_run(http, shape, run_id, times)
        return times

    async def _sample_run(self, http: httpx2.AsyncClient, shape: Shape, run_id: UUID, times: Times) -> None:
        workers = {worker.id: worker for worker in self.fleet.workers}
        rows = await self.installation.pool.fetch(_AT_WORK, run_id, list(workers))
        for row, following in pairwise(rows):
            if row["dispatch_id"] == following["dispatch_id"] and len(times.values) < times.least:
                times.values.append(await _sample(http, shape, row, workers[row["worker_id"]]))
        if disturbed := await self.installation.pool.fetchval(_DISTURBED, run_id):
            times.faults.append(f"{shape.name}: {disturbed} siblings did not go on in their first attempt")


async def _sample(http: httpx2.AsyncClient, shape: Shape, job: Record, worker: ScanWorker) -> float:
    """Seconds from the request until the worker has let go."""
    has_let_go = await _watch(shape, job, worker)
    began = time.monotonic()
    (await http.post(f"/v1/jobs/{job['id']}/cancel")).raise_for_status()
    while not has_let_go():
        if time.monotonic() - began > SAMPLE_LIMIT_S:
            return NEVER_S
        await asyncio.sleep(LOOK_S)
    return time.monotonic() - began


async def _watch(shape: Shape, job: Record, worker: ScanWorker) -> Callable[[], bool]:
    """Something to ask whether the worker has let go of a job that it has now."""
    if shape.sign is None:
        return await _watch_process(str(job["id"]))
    return _watch_log(worker, shape.sign, str(job["id"]))


async def _watch_process(job_id: str) -> Callable[[], bool]:
    def is_dead() -> bool:
        return not any(job_id in mark for _, mark in marked_processes())

    async with asyncio.timeout(SAMPLE_LIMIT_S):
        while is_dead():  # noqa: ASYNC110  # nothing announces a process
            await asyncio.sleep(LOOK_S)
    return is_dead


def _watch_log(worker: ScanWorker, sign: str, job_id: str) -> Callable[[], bool]:
    seen = worker.log_path.stat().st_size

    def is_written() -> bool:
        with worker.log_path.open("rb") as file:
            file.seek(seen)
            lines = file.read().decode(errors="replace").splitlines()
        return any(sign in line and job_id in line for line in lines)

    return is_written
