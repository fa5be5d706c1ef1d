"""How soon a scan worker's jobs are released when it is told to stop, killed, frozen or cut off."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

import structlog

from runlane.db.pool import Record
from tests.chaos.bounds import NEVER_S, Times
from tests.chaos.endless import endless_run
from tests.chaos.fleet import Fleet, ScanWorker
from tests.e2e.installation import Installation, until

log = structlog.get_logger(__name__)

SAMPLE_LIMIT_S: Final = 60.0
MOST_TRIES: Final = 3
"""Runs in a row of which no worker of the fleet had a job."""

_IN_HAND: Final = """
SELECT a.job_id, a.attempt FROM job_attempts a JOIN jobs j ON j.id = a.job_id
WHERE j.run_id = $1 AND a.worker_id = $2 AND a.ended_at IS NULL
"""

_AFTERWARDS: Final = """
SELECT a.ended_at, a.outcome, a.charged, n.claimed_at, n.incarnation = a.incarnation AS is_same_life
FROM unnest($1::uuid[], $2::int[]) AS m (job_id, attempt)
JOIN job_attempts a USING (job_id, attempt)
LEFT JOIN job_attempts n ON n.job_id = a.job_id AND n.attempt = a.attempt + 1
"""


class Strike(StrEnum):
    """What is done to a scan worker."""

    STOP = "SIGTERM"
    KILL = "kill -9"
    FREEZE = "SIGSTOP"
    CUT = "network cut"


@dataclass(frozen=True, slots=True)
class Rule:
    """What must come of a strike, and how soon."""

    strike: Strike
    outcome: str
    bound_s: float
    share: float = 1.0
    is_to_be_claimed: bool = False
    """The time runs until the job is another worker's, not only until it is free."""

    @property
    def name(self) -> str:
        """As in the table."""
        return f"{self.strike} → {'claimed by another' if self.is_to_be_claimed else 'released'}"


def rules(heartbeat_s: float) -> list[Rule]:
    """What docs/chaos.md promises. A frozen or cut-off worker is only missed by its heartbeats."""
    return [
        Rule(Strike.STOP, "released", 1.0, share=0.95, is_to_be_claimed=True),
        Rule(Strike.KILL, "lost", 3.0),
        Rule(Strike.FREEZE, "lost", heartbeat_s + 5),
        Rule(Strike.CUT, "lost", heartbeat_s + 5),
    ]


@dataclass(frozen=True, slots=True)
class Releases:
    """Where it is measured."""

    installation: Installation
    fleet: Fleet
    targets: list[UUID]

    async def measure(self, rule: Rule, strikes: int) -> Times:
        """One sample for each strike: the time of the job that took longest. Every run gets one strike."""
        times = Times(rule.name, rule.bound_s, rule.share, strikes)
        tries = 0
        while len(times.values) < strikes and tries < MOST_TRIES:
            async with endless_run(self.installation, "noop", self.targets) as run_id:
                worker, held = await self._busiest(run_id)
                tries = 0 if held else tries + 1
                if held:
                    await self._sample(rule, worker, held, times)
            log.info("chaos_times", strike=rule.strike.value, samples=len(times.values))
        return times

    async def _busiest(self, run_id: UUID) -> tuple[ScanWorker, list[Record]]:
        """The worker of the fleet with the most jobs of a run, and these."""
        held = [
            (worker, await self.installation.pool.fetch(_IN_HAND, run_id, worker.id))
            for worker in self.fleet.workers
        ]
        return max(held, key=lambda each: len(each[1]))

    async def _sample(self, rule: Rule, worker: ScanWorker, held: Sequence[Record], times: Times) -> None:
        pairs = [row["job_id"] for row in held], [row["attempt"] for row in held]

        async def is_over() -> bool:
            rows = await self.installation.pool.fetch(_AFTERWARDS, *pairs)
            return all(_end(rule, row) is not None for row in rows)

        began = datetime.now(UTC)
        _strike(rule.strike, worker)
        try:
            await until(is_over, SAMPLE_LIMIT_S)
        except TimeoutError:
            times.values.append(NEVER_S)
        else:
            rows = await self.installation.pool.fetch(_AFTERWARDS, *pairs)
            ends = [end for row in rows if (end := _end(rule, row)) is not None]
            times.values.append((max(ends) - began).total_seconds())
            times.faults.extend(fault for row in rows for fault in _faults(rule, row))
        await self._recover(rule.strike, worker)

    async def _recover(self, strike: Strike, worker: ScanWorker) -> None:
        match strike:
            case Strike.STOP | Strike.KILL:
                await self.fleet.end(worker)
                await self.fleet.start(worker)
            case Strike.FREEZE:
                worker.send(signal.SIGCONT)
            case Strike.CUT:
                worker.mend()
        await self.fleet.is_back(worker)


def _strike(strike: Strike, worker: ScanWorker) -> None:
    match strike:
        case Strike.STOP:
            worker.send(signal.SIGTERM)
        case Strike.KILL:
            worker.send(signal.SIGKILL)
        case Strike.FREEZE:
            worker.send(signal.SIGSTOP)
        case Strike.CUT:
            worker.cut()


def _end(rule: Rule, row: Record) -> datetime | None:
    moment: datetime | None = row["claimed_at"] if rule.is_to_be_claimed else row["ended_at"]
    return moment


def _faults(rule: Rule, row: Record) -> list[str]:
    faults = []
    if row["outcome"] != rule.outcome:
        faults.append(f"{rule.name}: ended as {row['outcome']}, not {rule.outcome}")
    if row["charged"]:
        faults.append(f"{rule.name}: charged")
    if row["is_same_life"]:
        faults.append(f"{rule.name}: claimed again by the same life")
    return faults
