"""One batch of a tool of shape `many`: one child for all members, whose output is told apart.

A child that fails says nothing about whose fault it was. Its members are then divided in two and each half
tried again, as long as the time of the batch lasts: one bad member does not fail the others.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from runlane.jobs import Outcome
from runlane.scan.batch import BatchSpec
from runlane.scan.booked import BookedBatch
from runlane.scan.endings import refuse, settle, with_diagnostics, with_tail
from runlane.scan.pins import Refusal, options_of, pin, share_of
from runlane.scan.programs import Bounds, ProgramHost, Run, private_folder
from runlane.scan.running import How, RunEnd
from runlane.scan.wire import ClaimedJob
from runlane.tools.adapters.adapter import Adapter, Many, ToolJob, Workplace
from runlane.tools.adapters.jobs import BadTarget
from runlane.tools.adapters.options import Options
from runlane.tools.exclusions import read_denied
from runlane.tools.records import MalformedRecord

_MOST_LOSSES: Final = 2
"""Launchers that a batch may lose until it is given up."""

_PINS_AT_ONCE: Final = 20


class ManyBatch(BookedBatch):
    """One child for all jobs."""

    def __init__(
        self, host: ProgramHost, spec: BatchSpec, adapter: Adapter, way: Many, on_finished: Callable[[], None]
    ) -> None:
        super().__init__(spec, adapter, on_finished)
        self._host = host
        self._way = way
        self._claimed = {job.job_id: job for job in spec.jobs}
        self._members: Mapping[str, ToolJob] = {}
        self._run: Run | None = None
        self._losses = 0

    @property
    def is_alive(self) -> bool:
        """Whether the child shows life."""
        return self._run is None or self._run.is_alive

    def cancel(self, job_id: str, attempt: int) -> bool:
        """Drops a job and all that it found or will find; the child dies with its last one.

        False if the job is not open at this attempt.
        """
        if not self._book.holds(job_id, attempt):
            return False
        self._book.drop(job_id)
        if self._book.is_over and self._run is not None:
            self._run.kill()
        return True

    def stop(self) -> None:
        """Kills the child; jobs that have not ended are given up. Idempotent."""
        self._is_stopped = True
        if self._run is not None:
            self._run.kill()

    async def _work_off(self, options: Options) -> None:
        self._members = await self._pin_all(options)
        rounds = -(-len(self._spec.jobs) // self._spec.tool.parallelism)
        deadline = self._loop.time() + rounds * self._spec.wall_s
        groups = deque(self._of_one_scope())
        while groups and not self._is_stopped and self._losses < _MOST_LOSSES:
            members = [job for job in groups.popleft() if self._book.is_open(job.job_id)]
            if members:
                own = options_of(options, self._claimed[members[0].job_id])
                groups.extend(await self._do(members, own, deadline))
                self._on_finished()

    def _of_one_scope(self) -> list[list[ToolJob]]:
        """The members, apart where their targets have exclusions of their own, or have a share of a rate.

        A command has one list, and one rate: members that shared it could send all of it to one target.
        """
        groups: dict[tuple[str, ...], list[ToolJob]] = {}
        for job_id, job in self._members.items():
            claimed = self._claimed[job_id]
            alone = () if share_of(claimed) is None else (job_id,)
            groups.setdefault((*read_denied(claimed.target.get("deny")), *alone), []).append(job)
        return list(groups.values())

    async def _pin_all(self, options: Options) -> dict[str, ToolJob]:
        slots = asyncio.Semaphore(_PINS_AT_ONCE)

        async def pin_one(job: ClaimedJob) -> ToolJob | None:
            async with slots:
                pinned = await pin(job, self._adapter, options)
            try:
                if not isinstance(pinned, Refusal):
                    self._way.key_of(pinned)
                    return pinned
                refuse(self._book, job.job_id, pinned)
            except BadTarget as error:
                self._book.end(job.job_id, Outcome.FATAL, str(error))
            return None

        pinned = await asyncio.gather(*(pin_one(job) for job in self._spec.jobs))
        self._on_finished()
        return {job.job_id: job for job in pinned if job is not None}

    async def _do(self, members: Sequence[ToolJob], options: Options, deadline: float) -> list[list[ToolJob]]:
        """Runs one child; answers the groups that are to be tried again."""
        end = await self._run_child(members, options, deadline)
        if end.how is How.LOST:
            self._losses += 1
            return [list(members)]
        has_failed = end.how is How.FAILED or (end.how is How.EXITED and end.code != 0)
        if has_failed and self._can_divide(members, deadline):
            half = len(members) // 2
            return [list(members[:half]), list(members[half:])]
        if end.how is not How.EXITED:
            settle(self._book, [job.job_id for job in members], end)
        elif end.code != 0:
            error = with_tail(f"exit code {end.code}", end.stderr)
            for job in members:
                self._book.end(job.job_id, Outcome.TOOL_FAILED, error)
        else:
            self._conclude(members, options, end)
        return []

    def _can_divide(self, members: Sequence[ToolJob], deadline: float) -> bool:
        wanted = [job for job in members if self._book.is_open(job.job_id)]
        return len(wanted) > 1 and self._loop.time() < deadline and not self._is_stopped

    def _conclude(self, members: Sequence[ToolJob], options: Options, end: RunEnd) -> None:
        for job in members:
            if self._book.is_open(job.job_id):
                conclusion = self._way.conclude(job, options, self._book.records(job.job_id))
                self._book.conclude(job.job_id, with_diagnostics(conclusion, end))

    async def _run_child(self, members: Sequence[ToolJob], options: Options, deadline: float) -> RunEnd:
        by_key: dict[str, list[str]] = defaultdict(list)
        for job in members:
            by_key[self._way.key_of(job)].append(job.job_id)
        bounds = Bounds(
            wall_s=max(1.0, deadline - self._loop.time()),
            silence_s=self._adapter.silence_s,
            output_bytes=self._spec.limits.batch_output_bytes,
            address_space_bytes=self._adapter.address_space_bytes,
        )
        async with private_folder(self._host.folder) as folder:
            command = self._way.command(members, options, Workplace(str(folder)))
            for job in members:
                self._book.begin(job.job_id, command.argv)
            self._run = Run(self._host, self._adapter, bounds, self._spec.mark)
            if self._is_stopped or self._book.is_over:
                self._run.kill()  # it was dropped while its folder was made
            try:
                return await self._run.follow(command, folder, lambda line: self._take(by_key, line))
            finally:
                self._run = None

    def _take(self, by_key: Mapping[str, Sequence[str]], line: bytes) -> None:
        """Gives a record to the members that it names; what names none is about nobody here."""
        if not line.strip():
            return
        try:
            found = self._way.read(line)
        except MalformedRecord as error:
            # whose it was cannot be known: none of them is complete
            for job_ids in by_key.values():
                for job_id in job_ids:
                    self._book.doubt(job_id, error.reason)
            return
        if found is not None:
            for job_id in by_key.get(found.key, ()):
                self._spec.hear(job_id, line)
                self._book.record(job_id, found.record)
