"""One batch of a tool of shape `each`: one child for each job, up to the tool's parallelism.

Whether a child is a process of this host or a container is its runner's business.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from runlane.jobs import Outcome
from runlane.scan.batch import BatchSpec
from runlane.scan.booked import BookedBatch
from runlane.scan.endings import refuse, settle, with_diagnostics
from runlane.scan.pins import Refusal, options_of, pin
from runlane.scan.running import How, RunEnd, Runner, Running
from runlane.scan.wire import ClaimedJob
from runlane.tools.adapters.adapter import (
    Adapter,
    Conclusion,
    Each,
    Ended,
    Raw,
    Reader,
    Stage,
    ToolJob,
    Workplace,
)
from runlane.tools.adapters.jobs import BadTarget
from runlane.tools.adapters.options import Options
from runlane.tools.records import MalformedRecord

_MOST_LOSSES: Final = 2
"""Launchers that a job may lose in one batch, until it is given up."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """One try of one job."""

    claimed: ClaimedJob
    pinned: ToolJob
    options: Options
    deadline: float


class EachBatch(BookedBatch):
    """One child for each job."""

    def __init__(
        self, runner: Runner, spec: BatchSpec, adapter: Adapter, way: Each, on_finished: Callable[[], None]
    ) -> None:
        super().__init__(spec, adapter, on_finished)
        self._runner = runner
        self._way = way
        self._waiting = deque(spec.jobs)
        self._runs: dict[str, Running] = {}

    @property
    def is_alive(self) -> bool:
        """Whether every child shows life."""
        return all(run.is_alive for run in self._runs.values())

    def cancel(self, job_id: str, attempt: int) -> bool:
        """Drops a job and all that it found or will find. False if it is not open at this attempt."""
        if not self._book.holds(job_id, attempt):
            return False
        self._book.drop(job_id)
        if job_id in self._runs:
            self._runs[job_id].kill()
        return True

    def stop(self) -> None:
        """Kills the children; jobs that have not ended are given up. Idempotent."""
        self._is_stopped = True
        for run in self._runs.values():
            run.kill()

    async def _work_off(self, options: Options) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._spec.tool.parallelism, len(self._spec.jobs))):
                group.create_task(self._work(options))

    async def _work(self, options: Options) -> None:
        while self._waiting and not self._is_stopped:
            job = self._waiting.popleft()
            losses = 0
            while self._is_wanted(job) and losses < _MOST_LOSSES:
                losses += await self._attempt(job, options)
            self._on_finished()

    def _is_wanted(self, job: ClaimedJob) -> bool:
        return self._book.is_open(job.job_id) and not self._is_stopped

    async def _attempt(self, job: ClaimedJob, options: Options) -> bool:
        """Does one job; True if the launcher was lost meanwhile and the job is still to be done."""
        pinned = await pin(job, self._adapter, options)
        if isinstance(pinned, Refusal):
            refuse(self._book, job.job_id, pinned)
            return False
        turn = _Turn(job, pinned, options_of(options, job), self._loop.time() + self._spec.wall_s)
        found: list[Raw] = []
        for stage in self._way.stages:
            if not self._is_wanted(job):
                return False
            try:
                end, conclusion = await self._run_stage(stage, turn, found)
            except BadTarget as error:
                self._book.end(job.job_id, Outcome.FATAL, str(error))
                return False
            if end.how is not How.EXITED:
                settle(self._book, [job.job_id], end)
                return end.how is How.LOST
            is_last = stage is self._way.stages[-1]
            if (is_last or conclusion.failure is not None) and self._book.is_open(job.job_id):
                self._book.conclude(job.job_id, with_diagnostics(conclusion, end))
                return False
            found = self._book.records(job.job_id) if self._book.is_open(job.job_id) else []
        return False

    async def _run_stage(self, stage: Stage, turn: _Turn, found: Sequence[Raw]) -> tuple[RunEnd, Conclusion]:
        job = turn.claimed
        async with self._runner.workplace() as folder:
            command, reader = stage(turn.pinned, turn.options, Workplace(str(folder), tuple(found)))
            self._book.begin(job.job_id, command.argv)
            run = self._runner.child(job, max(1.0, turn.deadline - self._loop.time()))
            self._runs[job.job_id] = run
            if self._is_stopped or not self._book.is_open(job.job_id):
                run.kill()  # it was dropped while its folder was made
            try:
                end = await run.follow(command, folder, lambda line: self._take(job.job_id, reader, line))
            finally:
                del self._runs[job.job_id]
        if end.how is not How.EXITED:
            return end, Conclusion()
        return end, reader.conclude(Ended(end.code, end.stderr, end.output))

    def _take(self, job_id: str, reader: Reader, line: bytes) -> None:
        if not self._book.is_open(job_id):
            return
        self._spec.hear(job_id, line)
        try:
            for raw in reader.feed(line):
                self._book.record(job_id, raw)
        except MalformedRecord as error:
            self._book.doubt(job_id, error.reason)
