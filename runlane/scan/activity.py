"""The one activity of a scan worker: claims a batch, has its jobs done, stages what came of them.

Rows decide, not what the activity answers: whatever has no staged outcome when it ends is dispatched anew.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog
from temporalio import activity

from runlane import names
from runlane.errors import Refused, Unavailable
from runlane.jobs import Outcome
from runlane.runs import BatchInput, BatchResult
from runlane.scan.batch import Batch, BatchSpec
from runlane.scan.board import Board
from runlane.scan.carrying import NotCarried, carry
from runlane.scan.client import WorkerApi, until_answered
from runlane.scan.config import ScanLimits
from runlane.scan.container_host import ContainerHost
from runlane.scan.delivery import Deliverer
from runlane.scan.lines import MAX_ERROR
from runlane.scan.masks import Masks
from runlane.scan.programs import ProgramHost
from runlane.scan.spool import BatchIdentity, pack
from runlane.scan.tails import Tails
from runlane.scan.wire import Claimed, Member
from runlane.secret_refs import resolved
from runlane.tools import TOOLS, Tool

log = structlog.get_logger(__name__)

_BEAT_EVERY_S: Final = 2.0
_STOP_PATIENCE_S: Final = 5.0
"""How long a batch that was told to stop tries to deliver what had ended by then."""

_REFUSED_PAUSE_S: Final = 2.0
"""A worker whose claims are refused must not spin through the queue."""


@dataclass(frozen=True, slots=True)
class ScanHost:
    """What every batch of a worker uses."""

    api: WorkerApi
    programs: ProgramHost
    deliverer: Deliverer
    board: Board
    worker_id: str
    incarnation: str
    limits: ScanLimits = field(default_factory=ScanLimits)
    tails: Tails = field(default_factory=Tails)
    containers: ContainerHost | None = None
    """None: this host runs no connectors."""


class ScanActivities:
    """Activities of a scan worker."""

    def __init__(self, host: ScanHost) -> None:
        self._host = host

    @activity.defn(name=names.RUN_BATCH_ACTIVITY)
    async def run_batch(self, batch: BatchInput) -> BatchResult:
        """Does the jobs of one dispatch.

        Never repeated by Temporal; if it were, the claim would answer the same key with the same jobs, and
        results that are already staged are answered as they were. On a cancel and on a drain it kills the
        child, stages what had ended and answers like a batch that came to its end.
        """
        info = activity.info()
        work = BatchWork(self._host, batch, f"{info.workflow_run_id}/{info.activity_id}/{info.attempt}")
        beat = _Beat(work, {"worker": self._host.worker_id, "incarnation": self._host.incarnation})
        task = asyncio.create_task(work.run())
        outcome = "ended"
        try:
            while not task.done():
                try:
                    await asyncio.wait([task])
                except asyncio.CancelledError:
                    # Turned into an answer on purpose: an error here would lose what the batch has finished.
                    outcome = _reason(activity.cancellation_details())
                    log.info("batch_stopped", dispatch_id=batch.dispatch_id, outcome=outcome)
                    work.stop()
        finally:
            beat.stop()
        return BatchResult(batch.dispatch_id, outcome, await task)


def _reason(details: activity.ActivityCancellationDetails | None) -> str:
    return "released" if details is not None and details.worker_shutdown else "cancelled"


class BatchWork:
    """One batch from claim to the last delivery."""

    def __init__(self, host: ScanHost, batch: BatchInput, claim_key: str) -> None:
        self._host = host
        self._batch = batch
        self._claim_key = claim_key
        self._claiming: asyncio.Task[Claimed] | None = None
        self._jobs: Batch | None = None
        self._masks = Masks()
        self._identity = BatchIdentity(batch.dispatch_id, host.incarnation, "", "")
        self._run_id = ""
        self._is_stopped = False
        self._is_delivering = False
        self._turn = asyncio.Lock()
        self._flushes: set[asyncio.Task[None]] = set()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._staged = 0

    @property
    def run_id(self) -> str:
        """Run of the jobs; empty until they are claimed."""
        return self._run_id

    @property
    def is_alive(self) -> bool:
        """Whether a beat may be sent: the child shows life, or the API is waited for and no child is due."""
        return self._jobs is None or self._is_delivering or self._jobs.is_alive

    def open_pairs(self) -> list[tuple[str, int]]:
        """Jobs in hand with their attempts."""
        jobs = self._jobs.open_jobs() if self._jobs is not None else []
        return [(job.job_id, job.attempt) for job in jobs]

    def cancel(self, job_id: str, attempt: int) -> bool:
        """Drops one job if it is in hand at this attempt."""
        return self._jobs is not None and self._jobs.cancel(job_id, attempt)

    def stop(self) -> None:
        """Ends the batch soon: kills the child and delivers what had ended. Idempotent."""
        self._is_stopped = True
        if self._claiming is not None:
            self._claiming.cancel()
        if self._jobs is not None:
            self._jobs.stop()

    async def run(self) -> int:
        """Returns how many outcomes were staged."""
        self._host.board.add(self)
        try:
            claimed = await self._claim()
            if claimed.jobs and not self._is_stopped:
                await self._work(claimed)
        finally:
            self._host.board.remove(self)
        return self._staged

    async def _claim(self) -> Claimed:
        tool = TOOLS.get(self._batch.tool_id)
        room = min(self._batch.size, tool.large_max_batch) if tool is not None else self._batch.size

        async def ask() -> Claimed:
            return await self._host.api.claim(self._batch.dispatch_id, self._claim_key, room)

        self._claiming = asyncio.create_task(until_answered(ask, self._host.limits.claim_patience_s))
        try:
            await asyncio.wait([self._claiming])
            return self._claiming.result()
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            return Claimed()
        except Unavailable as error:
            log.warning("claim_given_up", dispatch_id=self._batch.dispatch_id, detail=error.detail)
            return Claimed()
        except Refused as error:
            log.warning("claim_refused", dispatch_id=self._batch.dispatch_id, code=error.code)
            await asyncio.sleep(_REFUSED_PAUSE_S)
            return Claimed()
        finally:
            self._claiming = None

    async def _work(self, claimed: Claimed) -> None:
        self._run_id = claimed.run_id
        self._masks = Masks(claimed.secrets.values())
        self._identity = replace(self._identity, category=claimed.category)
        carried = carry(self._host.programs, self._host.containers, claimed)
        if isinstance(carried, NotCarried):
            log.warning("batch_not_carried", tool=claimed.tool_id, reason=carried.reason)
            await self._deliver(_rejected(claimed, carried.reason))
            return
        self._jobs = carried.begin(self._spec(carried.tool, claimed), self._plan_flush)
        self._identity = replace(self._identity, tool_version=carried.version)
        in_hand = [(job.job_id, job.attempt) for job in claimed.jobs]
        self._host.tails.open(in_hand)
        try:
            await self._jobs.run()
        finally:
            self._host.tails.close(in_hand)
            if self._flush_timer is not None:
                self._flush_timer.cancel()
        self._is_delivering = True
        await self._deliver(self._jobs.take_finished())
        if self._flushes:
            await asyncio.wait(self._flushes)

    def _spec(self, tool: Tool, claimed: Claimed) -> BatchSpec:
        tails, masks = self._host.tails, self._masks
        attempts = {job.job_id: job.attempt for job in claimed.jobs}
        return BatchSpec(
            tool=tool,
            jobs=claimed.jobs,
            options={name: resolved(value, claimed.secrets) for name, value in claimed.options.items()},
            told=claimed.options,
            mark=f"{self._host.worker_id}/{self._batch.dispatch_id}",
            limits=self._host.limits,
            hear=lambda job_id, line: tails.hear((job_id, attempts.get(job_id, 0)), masks.line(line)),
        )

    def _plan_flush(self) -> None:
        """The first finished job that waits sets the clock for all that follow it."""
        if self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(self._host.limits.flush_after_s, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        if self._jobs is not None:
            task = asyncio.create_task(self._deliver(self._jobs.take_finished()))
            self._flushes.add(task)
            task.add_done_callback(self._flushes.discard)

    async def _deliver(self, members: Sequence[Member]) -> None:
        """Stages outcomes; those that cannot be are left to the spool, or gone if the API refuses them."""
        dispatch_id = self._batch.dispatch_id
        async with self._turn:
            for package in pack(self._identity, [self._masks.member(member) for member in members]):
                patience_s = _STOP_PATIENCE_S if self._is_stopped else self._host.limits.stage_patience_s
                try:
                    answer = await self._host.deliverer.deliver(package, patience_s)
                except Unavailable as error:
                    log.warning(
                        "results_undelivered", dispatch_id=self._batch.dispatch_id, detail=error.detail
                    )
                except Refused as error:
                    log.warning("results_refused", dispatch_id=dispatch_id, code=error.code)
                else:
                    self._staged += len(answer.accepted)


def _rejected(claimed: Claimed, reason: str) -> list[Member]:
    return [Member(job.job_id, job.attempt, Outcome.REJECTED, reason[:MAX_ERROR]) for job in claimed.jobs]


class _Beat:
    """Tells Temporal every two seconds that the batch lives, as long as it does."""

    def __init__(self, work: BatchWork, details: Mapping[str, str]) -> None:
        self._work = work
        self._details = dict(details)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_BEAT_EVERY_S, self._beat)

    def stop(self) -> None:
        self._timer.cancel()

    def _beat(self) -> None:
        self._timer = self._loop.call_later(_BEAT_EVERY_S, self._beat)
        if self._work.is_alive:
            with suppress(RuntimeError):  # the activity has just ended
                activity.heartbeat(self._details)
