"""One storm: load, blows, and what must be true during and after it."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from runlane.db.invariants import check
from runlane.errors import Unavailable
from runlane.stack.errors import StackError
from runlane.stack.processes import ProcessSpec
from tests.chaos.load import Load
from tests.chaos.plan import NEEDS, Blow
from tests.e2e.installation import AWAY, Installation, until
from tests.e2e.leftovers import missing_objects

log = structlog.get_logger(__name__)

_SETTINGS: Final = {"RUNLANE_WORKER_HEARTBEAT_S": "3", "RUNLANE_WORKER_TOOLSETS": "probe=6"}
CHECK_EVERY_S: Final = 3.0
RECOVERY_LIMIT_S: Final = 90.0
"""Longest time until a process is back, from the last blow to it or to one that it needs."""

CALM_LIMIT_S: Final = 240.0
"""Longest time from the last blow until every run has closed."""

_NEVER_COMPLETED: Final = """
SELECT h.id, h.status, j.status AS job_status, j.reason, count(*) AS jobs
FROM job_histories h LEFT JOIN jobs j ON j.run_id = h.id AND j.status <> 'completed'
WHERE h.id = ANY ($1) AND (h.status <> 'completed' OR j.id IS NOT NULL)
GROUP BY 1, 2, 3, 4
"""


def settings_of(seed: int) -> dict[str, str]:
    """Short times; with an even seed every result goes through the bucket, whatever its size."""
    return _SETTINGS if seed % 2 else {**_SETTINGS, "RUNLANE_STAGE_INLINE_BYTES": "0"}


@dataclass
class Outcome:
    """What a storm came to. `faults` empty: everything held."""

    blows: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    jobs: int = 0
    checks: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


class Storm:
    """Runs the blows of a plan against an installation under load."""

    def __init__(self, installation: Installation, blows: Sequence[Blow]) -> None:
        self._installation = installation
        self._blows = blows
        self._load = Load(installation)
        self._outcome = Outcome()
        self._recoveries: dict[str, asyncio.Task[None]] = {}
        self._struck_at: dict[str, float] = {}

    async def run(self) -> Outcome:
        """Returns after the calm that follows the last blow."""
        began = time.monotonic()
        await self._start_second_worker()
        watching = asyncio.create_task(self._watch())
        loading = asyncio.create_task(self._load.run())
        try:
            for blow in self._blows:
                await asyncio.sleep(blow.gap_s)
                await self._strike(blow)
            if self._recoveries:
                await asyncio.wait(self._recoveries.values())
            self._load.stop.set()
            async with asyncio.timeout(CALM_LIMIT_S):
                await loading
        except TimeoutError:
            self._outcome.faults.append(f"not every run closed within {CALM_LIMIT_S:.0f} s")
        finally:
            watching.cancel()
            loading.cancel()
            await asyncio.wait([watching, loading])
        await self._judge()
        self._outcome.seconds = time.monotonic() - began
        return self._outcome

    async def _start_second_worker(self) -> None:
        platform = self._installation.platform
        folder = platform.settings.state_dir / "scan-2"
        env = {
            "RUNLANE_API_URL": platform.settings.api_url,
            "RUNLANE_WORKER_NAME": "scan-2",
            "RUNLANE_WORKER_ENROLMENT_KEY": platform.profile.enrolment_key,
            "RUNLANE_STATE_DIR": str(folder),
        }
        argv = (sys.executable, "-m", "runlane.cli", "worker", "scan")
        await platform.stack.start_process(ProcessSpec("scan-2", argv, env))

        async def has_joined() -> bool:
            return bool(await self._installation.pool.fetchval("SELECT 1 FROM workers WHERE name = 'scan-2'"))

        await until(has_joined, RECOVERY_LIMIT_S)

    async def _strike(self, blow: Blow) -> None:
        earlier = self._recoveries.pop(blow.process, None)
        if earlier is not None:
            await asyncio.wait([earlier])  # a process that is dead already cannot be hit
        stack = self._installation.platform.stack
        try:
            pid = stack.pid(blow.process)
        except StackError:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, blow.signal)
        log.info("chaos_blow", process=blow.process, signal=blow.signal.name, pid=pid)
        self._outcome.blows[f"{blow.process} {blow.signal.name}"] += 1
        self._struck_at[blow.process] = time.monotonic()
        self._recoveries[blow.process] = asyncio.create_task(self._recover(blow, pid))

    async def _recover(self, blow: Blow, pid: int) -> None:
        if blow.signal is signal.SIGSTOP:
            await asyncio.sleep(blow.held_s)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            return
        recovered = asyncio.create_task(self._installation.platform.stack.recovered(blow.process, pid))
        while (left_s := self._patience_s(blow.process)) > 0 and not recovered.done():
            await asyncio.wait([recovered], timeout=left_s)
        if not recovered.done():
            recovered.cancel()
            self._outcome.faults.append(f"{blow.process} did not come back after {blow.signal.name}")

    def _patience_s(self, process: str) -> float:
        involved = {process, *NEEDS.get(process, ())}
        struck_at = max(at for name, at in self._struck_at.items() if name in involved)
        return struck_at + RECOVERY_LIMIT_S - time.monotonic()

    async def _watch(self) -> None:
        """The promises that always hold, again and again; those that break are faults at once."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                async with self._installation.pool.acquire() as conn:
                    broken: list[object] = [*await check(conn, None, at_rest=False)]
                broken += await missing_objects(self._installation.pool, self._installation.storage)
            except (*AWAY, TimeoutError, Unavailable):
                continue
            self._outcome.checks += 1
            self._outcome.faults += [f"during: {each}" for each in broken]

    async def _judge(self) -> None:
        installation, outcome = self._installation, self._outcome
        outcome.runs = len(self._load.runs)
        outcome.jobs = await installation.pool.fetchval(
            "SELECT count(*) FROM jobs WHERE run_id = ANY ($1)", self._load.runs
        )
        rows = await installation.pool.fetch(_NEVER_COMPLETED, self._load.runs)
        outcome.faults += [f"not completed: {dict(row)}" for row in rows]
        if outcome.faults:
            return
        for run_id in self._load.scans[-1:]:
            await self._check_that(installation.assert_found_the_truth(run_id))
        await self._check_that(installation.assert_at_rest(*self._load.runs, after_sweep=True))

    async def _check_that(self, claim: Awaitable[None]) -> None:
        try:
            await claim
        except (AssertionError, TimeoutError) as error:
            self._outcome.faults.append(f"at rest: {error!r}"[:2000])
