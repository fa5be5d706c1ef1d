"""One batch of a tool of shape `stream`: jobs go to a child process, what comes back goes into the ledger.

A child that dies takes with it only the jobs that may have been at work; a new child gets the rest.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog

from runlane.errors import Unavailable
from runlane.jobs import Outcome
from runlane.scan.argv import ProbeArgv
from runlane.scan.children import Child, ChildSpec, ExitInfo, Launcher
from runlane.scan.config import ScanLimits
from runlane.scan.confine import Limits
from runlane.scan.ledger import JobLimits, Ledger
from runlane.scan.lines import MAX_ERROR, DoneLine, Garbled, RecordLine, cancel_line, job_lines, read_line
from runlane.scan.wire import ClaimedJob, Member
from runlane.tools import Tool

log = structlog.get_logger(__name__)

SILENCE_SHARE: Final = 0.5
"""Part of the tool's heartbeat limit after which a silent child is killed; later the batch counts as lost."""

_LIFE_WINDOW_S: Final = 5.0
"""A child ticks more often than this."""

_CHECK_EVERY_S: Final = 0.5
_START_TRIES: Final = 3
_START_PAUSE_S: Final = 0.2
_LAUNCHER_LOSSES: Final = 2


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """What a batch is made of."""

    tool: Tool
    jobs: tuple[ClaimedJob, ...]
    options: Mapping[str, object] = field(repr=False)
    mark: str
    """Text by which processes of this batch are known."""
    limits: ScanLimits = field(default_factory=ScanLimits)
    hear: Callable[[str, bytes], None] = lambda job_id, line: None
    """Told of each line that a job has written."""
    told: Mapping[str, object] | None = None
    """The options as they may be written down: secrets by their names. None: there are none."""

    @property
    def wall_s(self) -> float:
        """Limit of one job: the tool's, or less if the options say so."""
        limit = self.options.get("timeout_s")
        if isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0:
            return min(float(limit), self.tool.wall_s)
        return self.tool.wall_s


class Batch(Protocol):
    """Jobs in hand, in the shape of their tool."""

    @property
    def is_alive(self) -> bool:
        """Whether the batch may be said to live."""
        ...

    def open_jobs(self) -> list[ClaimedJob]:
        """Jobs that have no outcome yet; after `run`, those that were given up."""
        ...

    def take_finished(self) -> list[Member]:
        """Jobs that have ended since the last call."""
        ...

    async def run(self) -> None:
        """Works the batch off, once."""
        ...

    def cancel(self, job_id: str, attempt: int) -> bool:
        """Drops a job; False if it is not open at this attempt."""
        ...

    def stop(self) -> None:
        """Kills what runs; jobs that have not ended are given up."""
        ...


class StreamBatch:
    """Runs once. `run` ends when every job has an outcome, was cancelled, or the batch was stopped."""

    def __init__(self, launcher: Launcher, spec: BatchSpec, on_finished: Callable[[], None]) -> None:
        self._launcher = launcher
        self._spec = spec
        self._on_finished = on_finished
        self._loop = asyncio.get_running_loop()
        limits = JobLimits(spec.wall_s, spec.limits.job_output_bytes, spec.tool.parallelism)
        self._ledger = Ledger(spec.jobs, limits)
        self._argv = ProbeArgv(spec.tool.name, spec.options if spec.told is None else spec.told)
        self._jobs = {job.job_id: job for job in spec.jobs}
        self._child: Child | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._alive_at = self._loop.time()
        self._check_due = 0.0
        self._is_silent = False
        self._is_stopped = False
        self._launcher_losses = 0
        self._dropped: dict[str, float] = {}
        """When which job was cancelled that the child has not said to have dropped."""

    @property
    def is_alive(self) -> bool:
        """Whether the child has shown life a moment ago."""
        return self._silence_s < _LIFE_WINDOW_S

    @property
    def _silence_s(self) -> float:
        """Seconds since the child's last life sign, or since its start."""
        return self._loop.time() - self._alive_at

    def open_jobs(self) -> list[ClaimedJob]:
        """Jobs that have no outcome yet; after `run`, those that were given up."""
        return self._ledger.open_jobs()

    def take_finished(self) -> list[Member]:
        """Jobs that have ended since the last call, with what was run for them."""
        return [self._with_argv(member) for member in self._ledger.take_finished()]

    def _with_argv(self, member: Member) -> Member:
        if member.outcome is Outcome.REJECTED:
            return member  # no child could be started
        return replace(member, argv=self._argv.of(self._jobs[member.job_id]))

    async def run(self) -> None:
        """Works the batch off."""
        while not (self._ledger.is_over or self._is_stopped or self._launcher_losses >= _LAUNCHER_LOSSES):
            child = await self._start_child()
            if child is None:
                return
            async with child:
                info = await self._follow(child)
            if info is not None:
                self._account_for_death(child, info)

    def cancel(self, job_id: str, attempt: int) -> bool:
        """Drops a job and all that it found or will find. False if it is not open at this attempt."""
        if not self._ledger.holds(job_id, attempt):
            return False
        now = self._loop.time()
        self._ledger.drop(job_id, now)
        self._dropped[job_id] = now
        self._tell_child(job_id)
        return True

    def stop(self) -> None:
        """Kills the child; jobs that have not ended are given up. Idempotent."""
        self._is_stopped = True
        if self._child is not None:
            self._child.kill()

    async def _start_child(self) -> Child | None:
        tries = 0
        while True:
            try:
                return await self._launcher.launch(self._child_spec())
            except Unavailable as error:
                tries += 1
                log.warning("child_not_started", tool=self._spec.tool.name, detail=error.detail)
                if tries == _START_TRIES:
                    self._ledger.reject_all(f"the host cannot start the tool: {error.detail}")
                    self._on_finished()
                    return None
            await asyncio.sleep(_START_PAUSE_S)

    def _child_spec(self) -> ChildSpec:
        tool = self._spec.tool
        rounds = -(-len(self._ledger.open_jobs()) // tool.parallelism)
        return ChildSpec(
            attempt=self._spec.mark,
            wall_s=rounds * (self._spec.wall_s + 10.0) + 60.0,  # behind all finer limits
            probe=tool.name,
            output_cap_bytes=self._spec.limits.batch_output_bytes,
            limits=Limits(address_space_bytes=self._spec.limits.memory_bytes),
        )

    async def _follow(self, child: Child) -> ExitInfo | None:
        """Reads a child to its end; None if it is not needed any more, whether or not it has ended."""
        self._child = child
        self._alive_at = self._loop.time()
        self._ledger.start_child(self._alive_at)
        if self._is_stopped:
            return None
        # Written without waiting: a child that does not read must not keep us from its output.
        child.stdin.write(job_lines(self._ledger.open_jobs(), self._spec.options))
        self._plan_check()
        try:
            async for line in child.lines():
                self._take(line)
                if self._ledger.is_over:
                    return None  # leaving kills it: with every outcome in hand, its own end is of no use
            return await child.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._child = None

    def _take(self, line: bytes) -> None:
        now = self._loop.time()
        self._alive_at = now
        match read_line(line):
            case RecordLine() as record:
                self._spec.hear(record.job_id, record.record)
                if not self._ledger.record(record, now):
                    self._tell_child(record.job_id)
                    self._on_finished()
            case DoneLine() as done:
                self._spec.hear(done.job_id, done.said)
                self._note_drop(done, now)
                self._ledger.done(done, now)
                self._on_finished()
            case Garbled():
                self._ledger.doubt()

    def _note_drop(self, done: DoneLine, now: float) -> None:
        cancelled_at = self._dropped.pop(done.job_id, None)
        if cancelled_at is not None:
            log.info("job_dropped", job_id=done.job_id, after_ms=round(1000 * (now - cancelled_at)))

    def _plan_check(self) -> None:
        self._check_due = self._loop.time() + _CHECK_EVERY_S
        self._timer = self._loop.call_later(_CHECK_EVERY_S, self._check)

    def _check(self) -> None:
        """Looks for silence and for jobs over their limit, twice a second."""
        late_s = self._loop.time() - self._check_due
        self._plan_check()
        if late_s > _CHECK_EVERY_S:
            # This process was frozen: what the child said meanwhile waits to be read.
            self._alive_at = self._loop.time()
            return
        if self._silence_s > self._spec.tool.heartbeat_s * SILENCE_SHARE:
            self._is_silent = True
            self._kill_child()
        late = self._ledger.expire(self._loop.time())
        for job_id in late:
            self._tell_child(job_id)
        if late:
            self._on_finished()

    def _tell_child(self, job_id: str) -> None:
        """Makes the child drop a job, or die if it has no other."""
        if self._ledger.is_over:
            self._kill_child()
        elif self._child is not None:
            self._child.stdin.write(cancel_line(job_id))

    def _kill_child(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _account_for_death(self, child: Child, info: ExitInfo) -> None:
        if self._is_stopped or self._ledger.is_over:
            return
        if info.lost:
            self._launcher_losses += 1
            return
        outcome, cause = self._cause_of_death(child, info)
        log.warning("child_died", tool=self._spec.tool.name, mark=self._spec.mark, cause=cause)
        diagnostics = child.stderr_tail.decode(errors="replace").strip()
        error = f"{cause}: {diagnostics[-(MAX_ERROR - len(cause) - 2) :]}" if diagnostics else cause
        self._ledger.blame(outcome, error)
        self._is_silent = False
        self._on_finished()

    def _cause_of_death(self, child: Child, info: ExitInfo) -> tuple[Outcome, str]:
        if child.truncated:
            return Outcome.TOOL_FAILED, "the tool wrote too much"
        if self._is_silent:
            return Outcome.TIMED_OUT, "the tool gave no life sign"
        if info.wall_exceeded:
            return Outcome.TIMED_OUT, "the tool took too long"
        if info.code is not None and info.code < 0:
            return Outcome.TOOL_FAILED, f"the tool died of signal {-info.code}"
        return Outcome.TOOL_FAILED, f"the tool ended early with exit code {info.code}"
