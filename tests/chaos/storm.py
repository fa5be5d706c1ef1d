"""One storm: load, blows, and what must be true during and after it."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import psutil
import structlog

from runlane.db.invariants import check
from runlane.db.workspaces import allow_networks
from runlane.errors import Unavailable
from runlane.stack.errors import StackError
from runlane.stack.processes import ProcessSpec
from tests.chaos.accounts import container_faults
from tests.chaos.containers import TOOLSET, Engine, homes
from tests.chaos.deeds import Operator
from tests.chaos.load import ACTED, Load
from tests.chaos.people import People
from tests.chaos.plan import CONTAINER, GUARD, MEAN_GAP_S, NEEDS, WEIGHTS, WITH_CONTAINERS, Blow, plan
from tests.e2e.installation import AWAY, Installation, until
from tests.e2e.leftovers import missing_objects

log = structlog.get_logger(__name__)

_SETTINGS: Final = {"RUNLANE_WORKER_HEARTBEAT_S": "3", "RUNLANE_WORKER_TOOLSETS": "probe=6"}
_DRAINING: Final = {"RUNLANE_WORKER_DRAIN_S": "2"}
CHECK_EVERY_S: Final = 3.0
RECOVERY_LIMIT_S: Final = 90.0
"""Longest time until a process is back, from the last blow to it or to one that it needs."""

CALM_LIMIT_S: Final = 240.0
"""Longest time from the last blow until every run has closed."""

FIND_S: Final = 30.0
"""Longest time that a blow waits for a container to hit."""

FIND_EVERY_S: Final = 0.1

# what people act on may end as they like, but never by a fault of ours
_NEVER_COMPLETED: Final = """
SELECT h.id, h.name, h.status, j.status AS job_status, j.reason, count(*) AS jobs
FROM job_histories h LEFT JOIN jobs j ON j.run_id = h.id AND j.status <> 'completed'
WHERE CASE WHEN h.kind = $1 THEN h.closed_at IS NULL OR j.status NOT IN ('cancelled', 'skipped')
      ELSE h.status <> 'completed' OR j.id IS NOT NULL END
GROUP BY 1, 2, 3, 4, 5
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a storm is made from: the same seed gives the same, where there is an engine or there is none."""

    seed: int
    count: int
    gap_s: float = MEAN_GAP_S

    def blows(self, engine: Engine) -> list[Blow]:
        """Blows in their order."""
        weights = WEIGHTS if engine.containers is None else WITH_CONTAINERS
        return plan(self.seed, self.count, self.gap_s, weights)

    def settings(self, engine: Engine) -> dict[str, str]:
        """Short times; with an even seed every result goes through the bucket, whatever its size.

        Every second pair of seeds lets batches finish when a worker is told to stop.
        """
        settings = dict(_SETTINGS)
        if self.seed % 2 == 0:
            settings["RUNLANE_STAGE_INLINE_BYTES"] = "0"
        if self.seed // 2 % 2:
            settings |= _DRAINING
        if engine.containers is not None:
            settings |= engine.containers.settings
            settings["RUNLANE_WORKER_TOOLSETS"] += f",{TOOLSET}"
        return settings


@dataclass
class Outcome:
    """What a storm came to. `faults` empty: everything held."""

    engine: str = ""
    blows: Counter[str] = field(default_factory=Counter)
    deeds: Counter[str] = field(default_factory=Counter)
    containers: int = 0
    runs: int = 0
    jobs: int = 0
    checks: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


class Storm:
    """Runs the blows of a plan against an installation under load, while people act on it."""

    def __init__(self, installation: Installation, planned: Plan, engine: Engine) -> None:
        self._installation = installation
        self._plan = planned
        self._engine = engine
        self._load = Load(installation, engine.containers)
        self._outcome = Outcome(engine.says)
        self._recoveries: dict[str, asyncio.Task[None]] = {}
        self._struck_at: dict[str, float] = {}

    async def run(self) -> Outcome:
        """Returns after the calm that follows the last blow."""
        began = time.monotonic()
        await self._allow_lab_host()
        await self._start_second_worker()
        async with Operator.open(self._installation) as operator:
            people = People(operator, self._engine.containers, self._plan.seed)
            await people.prepare()
            await self._rage(people)
            self._outcome.deeds = operator.accepted
            await self._judge(operator)
        self._outcome.seconds = time.monotonic() - began
        return self._outcome

    async def _rage(self, people: People) -> None:
        over = asyncio.Event()
        watching = asyncio.create_task(self._watch())
        loading = asyncio.create_task(self._load.run())
        acting = asyncio.create_task(people.run(self._plan.gap_s, over))
        try:
            for blow in self._plan.blows(self._engine):
                await asyncio.sleep(blow.gap_s)
                await self._strike(blow)
            if self._recoveries:
                await asyncio.wait(self._recoveries.values())
            over.set()
            self._load.stop.set()
            async with asyncio.timeout(CALM_LIMIT_S):
                await acting
                await loading
                await until(self._has_no_open_run, None)
        except TimeoutError:
            self._outcome.faults.append(f"not every run closed within {CALM_LIMIT_S:.0f} s")
        finally:
            for task in (watching, loading, acting):
                task.cancel()
            await asyncio.wait([watching, loading, acting])

    async def _has_no_open_run(self) -> bool:
        """Also of those that people have started."""
        return not await self._installation.pool.fetchval(
            "SELECT count(*) FROM job_histories WHERE closed_at IS NULL"
        )

    async def _allow_lab_host(self) -> None:
        if self._engine.containers is not None:
            workspace_id = self._installation.platform.workspace_id
            async with self._installation.pool.acquire() as conn, conn.transaction():
                await allow_networks(conn, workspace_id, (self._engine.containers.lab.subnet,))

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
        if blow.process == CONTAINER:
            await self._strike_container(blow)
        elif blow.process == GUARD:
            await self._strike_guard(blow)
        else:
            self._strike_process(blow)

    def _strike_process(self, blow: Blow) -> None:
        stack = self._installation.platform.stack
        try:
            pid = stack.pid(blow.process)
        except StackError:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, blow.signal)
        self._note(blow, str(pid), self._recover(blow, pid))

    def _note(self, blow: Blow, what: str, recovery: Coroutine[None, None, None] | None = None) -> None:
        log.info("chaos_blow", process=blow.process, signal=blow.signal.name, what=what)
        self._outcome.blows[f"{blow.process} {blow.signal.name}"] += 1
        self._struck_at[blow.process] = time.monotonic()
        if recovery is not None:
            self._recoveries[blow.process] = asyncio.create_task(recovery)

    async def _strike_container(self, blow: Blow) -> None:
        """Any that runs now; if there is none for long, the blow falls out."""
        containers = self._engine.containers
        assert containers is not None
        known = homes(self._installation.platform.stack.folder)
        deadline = time.monotonic() + FIND_S
        while not (running := await asyncio.to_thread(containers.running, known)):
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(FIND_EVERY_S)
        self._note(blow, running[-1], containers.strike(running[-1], blow))

    async def _strike_guard(self, blow: Blow) -> None:
        """That of the first scan worker that has one: one that was hit before is without until its end."""
        guards = await asyncio.to_thread(self._guards)
        if guards:
            with suppress(psutil.Error):
                guards[0].kill()
            self._note(blow, str(guards[0].pid))

    def _guards(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for name in ("scan", "scan-2"):
            with suppress(StackError, psutil.Error):
                children = psutil.Process(self._installation.platform.stack.pid(name)).children()
                found += [each for each in children if "runlane.scan.guard" in each.cmdline()]
        return found

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

    async def _judge(self, operator: Operator) -> None:
        installation, outcome = self._installation, self._outcome
        runs: list[UUID] = [
            row["id"] for row in await installation.pool.fetch("SELECT id FROM job_histories")
        ]
        outcome.runs = len(runs)
        outcome.jobs = await installation.pool.fetchval("SELECT count(*) FROM jobs")
        rows = await installation.pool.fetch(_NEVER_COMPLETED, ACTED)
        outcome.faults += [f"not completed: {dict(row)}" for row in rows]
        if outcome.faults:
            return
        for run_id in self._load.scans[-1:]:
            await self._check_that(installation.assert_found_the_truth(run_id))
        await self._check_that(installation.assert_at_rest(*runs, after_sweep=True))
        outcome.faults += await operator.faults()
        if self._engine.containers is not None:
            known = homes(installation.platform.stack.folder)
            outcome.containers = len(self._engine.containers.account.of(known))
            outcome.faults += await container_faults(installation, self._engine.containers, self._load.nmaps)

    async def _check_that(self, claim: Awaitable[None]) -> None:
        try:
            await claim
        except (AssertionError, TimeoutError) as error:
            self._outcome.faults.append(f"at rest: {error!r}"[:2000])
