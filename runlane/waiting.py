"""Why a job is pending: the rule that names one reason, and the words for it. Pure and total.

Checks have a fixed order, from what holds back most to what holds back least; the first one that holds the
job back is the reason. The last one always does: a job that nothing else holds back is in line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from runlane.jobs import MAX_FAILURES, StepStatus

COUNTED: Final = 10_000
"""Jobs ahead are counted up to this; beyond, it is said that there are more."""


class Reason(StrEnum):
    """What a job waits for, in the order in which it is looked at."""

    CANCELLED = "cancelled"  # its run or step is, and it will be: a large cancel is done in portions
    MAINTENANCE = "maintenance"  # a pause of the whole platform
    WORKSPACE_PAUSED = "workspace_paused"
    RUN_PAUSED = "run_paused"
    RUN_NOT_STARTED = "run_not_started"  # no workflow has adopted the run yet
    UPSTREAM = "upstream"  # a step that its step needs has not completed
    TARGET_GONE = "target_gone"  # without a target no worker may take it
    TOOL_OFF = "tool_off"
    BLACKOUT = "blackout"  # a window in which nothing may begin
    BACK_OFF = "back_off"
    TOOLSET_PAUSED = "toolset_paused"
    MINUTE_LIMIT = "minute_limit"
    CONCURRENCY_LIMIT = "concurrency_limit"
    RATE = "rate"  # what may be sent a second to its target, its network or for the workspace is given out
    NO_WORKER = "no_worker"
    SHARED_SHARE = "shared_share"  # others wait for the shared workers, too
    SUSPECT = "suspect"  # workers were lost with it: such jobs go one at a time
    QUEUED = "queued"  # its batch waits for a free slot
    IN_LINE = "in_line"


class PauseScope(StrEnum):
    """What a pause holds back, as in `pauses.scope`."""

    PLATFORM = "platform"
    WORKSPACE = "workspace"
    RUN = "run"
    TOOLSET = "toolset"


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause that is in force, and who set it why."""

    scope: PauseScope
    since: datetime
    by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit or rate that counts for the job, and how much of it is used up now."""

    scope: str
    """What it limits, as a person says it: `the workspace`, `the tool set probe`."""
    used: int
    most: int

    @property
    def is_reached(self) -> bool:
        """Whether nothing more may begin."""
        return self.used >= self.most


@dataclass(frozen=True, slots=True)
class Fleet:
    """Workers that carry the tool set: what serves the job's class, and what nearly does."""

    toolset: str
    network: str | None = None
    """Name of the internal network that the job's target is in."""
    slots: int = 0
    """Of live workers that may take it."""
    draining: int = 0
    offline: int = 0
    not_polling: int = 0
    """Workers that take no work though some waits: told to renew their polls, or lost because of it."""
    elsewhere: int = 0
    """Live workers bound to another network, or to none where the job needs one."""
    forbidden_shared: int = 0
    """Live shared workers that the workspace does not allow."""
    barred_shared: int = 0
    """Live shared workers, where the job is about an address that only own workers may contact."""


@dataclass(frozen=True, slots=True)
class Queued:
    """The batch that a job was dispatched in."""

    task_queue: str
    since: datetime
    ahead: int = 0
    """Open batches that were put on the same queue before it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending job, or pending jobs that wait alike, with all that decides when they begin."""

    as_of: datetime
    fleet: Fleet
    due_at: datetime
    failures: int = 0
    blackout: str | None = None
    """The window that put them off, in words."""
    pauses: Sequence[Pause] = ()
    is_run_started: bool = True
    step_status: StepStatus = StepStatus.RUNNING
    open_needs: Sequence[str] = ()
    has_target: bool = True
    is_tool_enabled: bool = True
    minute_limits: Sequence[LimitUse] = ()
    """Claims of the last minute against limits per minute."""
    concurrency_limits: Sequence[LimitUse] = ()
    """Jobs in progress against limits of how many."""
    rates: Sequence[LimitUse] = ()
    """Rates of what the jobs are about that leave nothing to give out."""
    shared: LimitUse | None = None
    """Batches on shared workers against the workspace's share, where only shared workers serve the class."""
    is_suspect: bool = False
    """Workers were lost with these jobs, and another such job is out."""
    queued: Queued | None = None
    ahead: int = 0
    """Due jobs of the step that come before it; counted up to one more than `COUNTED`."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    reason: Reason
    is_holding: bool
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why jobs wait: the one reason, and everything that was looked at on the way."""

    reason: Reason
    text: str
    checks: Sequence[Check]


def explain(waiting: Waiting) -> Explanation:
    """Names the one reason for which these jobs are pending, and shows every check in order."""
    checks = (
        _cancel(waiting),
        *(_pause(waiting, scope) for scope in (PauseScope.PLATFORM, PauseScope.WORKSPACE, PauseScope.RUN)),
        _run(waiting),
        _needs(waiting),
        _target(waiting),
        _tool(waiting),
        _blackout(waiting),
        _back_off(waiting),
        _pause(waiting, PauseScope.TOOLSET),
        _limit(Reason.MINUTE_LIMIT, waiting.minute_limits, "claimed in the last minute"),
        _limit(Reason.CONCURRENCY_LIMIT, waiting.concurrency_limits, "in progress"),
        _limit(Reason.RATE, waiting.rates, "a second given out"),
        _worker(waiting.fleet),
        _shared(waiting.shared),
        _suspect(waiting),
        _queue(waiting),
        _line(waiting),
    )
    first = next(check for check in checks if check.is_holding)
    return Explanation(first.reason, first.text, checks)


def no_worker(toolset: str, network: str | None = None, *, is_own_only: bool = False) -> str:
    """The words for a class that no live worker serves; `is_own_only`: shared ones are there, but may not."""
    whose = " of the workspace itself" if is_own_only else ""
    where = f" in the network {network}" if network else ""
    return f"no live worker{whose} for the tool set {toolset}{where}"


def tool_off(tool_id: str) -> str:
    """The words for a tool of which nothing new is begun."""
    return f"the tool {tool_id} is switched off"


_PAUSES: Final = {
    PauseScope.PLATFORM: (Reason.MAINTENANCE, "the platform"),
    PauseScope.WORKSPACE: (Reason.WORKSPACE_PAUSED, "the workspace"),
    PauseScope.RUN: (Reason.RUN_PAUSED, "the run"),
    PauseScope.TOOLSET: (Reason.TOOLSET_PAUSED, "the tool set"),
}


def paused(pause: Pause) -> str:
    """The words for a pause: what, by whom, since when and why."""
    _, what = _PAUSES[pause.scope]
    by = f" by {pause.by}" if pause.by else ""
    why = f": {pause.reason}" if pause.reason else ""
    return f"{what} is paused{by} since {_moment(pause.since)}{why}"


def _pause(waiting: Waiting, scope: PauseScope) -> Check:
    reason, what = _PAUSES[scope]
    found = [pause for pause in waiting.pauses if pause.scope is scope]
    if not found:
        return Check(reason, is_holding=False, text=f"{what} is not paused")
    return Check(reason, is_holding=True, text=paused(min(found, key=lambda pause: pause.since)))


def _cancel(waiting: Waiting) -> Check:
    is_cancelled = waiting.step_status is StepStatus.CANCELLED
    text = "its step is cancelled, and it will be soon" if is_cancelled else "its step is not cancelled"
    return Check(Reason.CANCELLED, is_cancelled, text)


def _run(waiting: Waiting) -> Check:
    text = "the run goes on" if waiting.is_run_started else "no workflow has taken up the run yet"
    return Check(Reason.RUN_NOT_STARTED, not waiting.is_run_started, text)


def _needs(waiting: Waiting) -> Check:
    if waiting.step_status is not StepStatus.WAITING:
        return Check(Reason.UPSTREAM, is_holding=False, text="every step that it needs has completed")
    needs = ", ".join(waiting.open_needs) or "its step to be opened"
    return Check(Reason.UPSTREAM, is_holding=True, text=f"waits for {needs}")


def _target(waiting: Waiting) -> Check:
    text = "has a target" if waiting.has_target else "its target was deleted, so no worker may take it"
    return Check(Reason.TARGET_GONE, not waiting.has_target, text)


def _tool(waiting: Waiting) -> Check:
    text = "the tool is switched on" if waiting.is_tool_enabled else "the tool is switched off"
    return Check(Reason.TOOL_OFF, not waiting.is_tool_enabled, text)


def _blackout(waiting: Waiting) -> Check:
    text = waiting.blackout or "no blackout window is open for it"
    return Check(Reason.BLACKOUT, waiting.blackout is not None, text)


def _back_off(waiting: Waiting) -> Check:
    if waiting.due_at <= waiting.as_of:
        return Check(Reason.BACK_OFF, is_holding=False, text="due now")
    after = f" after failure {waiting.failures} of {MAX_FAILURES}" if waiting.failures else ""
    return Check(Reason.BACK_OFF, is_holding=True, text=f"backs off until {_moment(waiting.due_at)}{after}")


def _limit(reason: Reason, uses: Sequence[LimitUse], what: str) -> Check:
    reached = [use for use in uses if use.is_reached]
    told = reached or uses
    text = "; ".join(f"{use.used} of {use.most} {what} for {use.scope}" for use in told)
    return Check(reason, bool(reached), text or "no such limit")


def _worker(fleet: Fleet) -> Check:
    if fleet.slots:
        return Check(Reason.NO_WORKER, is_holding=False, text=f"{fleet.slots} slots of live workers")
    misses = [
        f"{count} {what}"
        for count, what in (
            (fleet.draining, "draining"),
            (fleet.offline, "offline"),
            (fleet.not_polling, "not polling"),
            (fleet.elsewhere, "not in its network"),
            (fleet.forbidden_shared, "shared, which the workspace does not allow"),
            (fleet.barred_shared, "shared, which may not take it"),
        )
        if count
    ]
    told = f" ({', '.join(misses)})" if misses else ""
    text = no_worker(fleet.toolset, fleet.network, is_own_only=fleet.barred_shared > 0)
    return Check(Reason.NO_WORKER, is_holding=True, text=text + told)


def _shared(use: LimitUse | None) -> Check:
    if use is None:
        return Check(Reason.SHARED_SHARE, is_holding=False, text="no share of shared workers is used up")
    text = f"{use.used} of {use.most} slots of {use.scope} in use while others wait"
    return Check(Reason.SHARED_SHARE, use.is_reached, text)


def _suspect(waiting: Waiting) -> Check:
    if not waiting.is_suspect:
        return Check(Reason.SUSPECT, is_holding=False, text="need not go alone")
    text = "workers were lost with it, and another such job is out: they go one at a time"
    return Check(Reason.SUSPECT, is_holding=True, text=text)


def _queue(waiting: Waiting) -> Check:
    queued = waiting.queued
    if queued is None:
        return Check(Reason.QUEUED, is_holding=False, text="not dispatched")
    ahead = f"; open batches before it: {queued.ahead}" if queued.ahead else ""
    text = f"dispatched; waits on {queued.task_queue} since {_moment(queued.since)}{ahead}"
    return Check(Reason.QUEUED, is_holding=True, text=text)


def _line(waiting: Waiting) -> Check:
    ahead = f"more than {COUNTED}" if waiting.ahead > COUNTED else str(waiting.ahead)
    is_in_line = waiting.queued is None
    text = f"in line; jobs of its step that come before it: {ahead}" if is_in_line else "not in line"
    return Check(Reason.IN_LINE, is_in_line, text)


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
