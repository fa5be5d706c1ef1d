"""The rules of a run: which step may start, how a step ends, how a run ends, how large a batch is.

Pure and total: the workflow calls these with what it read from rows and orders the effects. Also here: the
input and result of a batch activity, because the scan host knows no other module of the core.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from runlane.jobs import STEPS, RunVerb, StepStatus, StepVerb

LARGE_STEP: Final = 5_000
"""A step with more jobs than this uses the tool's large batch: throughput outweighs the first result."""

BATCHES_PER_SLOT: Final = 4
"""Due jobs are spread so that each live slot sees about four batches: the last ones even out the end."""

_OVERHEAD: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class BatchInput:
    """What a batch activity is given: ids only, never the work itself."""

    dispatch_id: str
    run_id: str
    step_id: str
    tool_id: str
    size: int


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a batch activity says of itself. A hint where to look: rows decide."""

    dispatch_id: str
    outcome: str = "ended"
    """`ended`, `released` (drain) or `cancelled`."""
    staged: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A step as the rules see it."""

    step_id: str
    tool_id: str
    status: StepStatus
    needs: tuple[str, ...] = ()
    tolerance: str | None = None
    is_admitted: bool = False


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Jobs of a step by how they ended; `live` are pending or in progress."""

    total: int = 0
    live: int = 0
    failed: int = 0
    cancelled: int = 0
    """By a person; what an exclusion ended is not counted."""


def ready_steps(steps: Sequence[Step]) -> list[Step]:
    """Waiting steps whose needs have all completed, in definition order."""
    status = {step.step_id: step.status for step in steps}
    return [
        step
        for step in steps
        if step.status is StepStatus.WAITING
        and all(status[need] is StepStatus.COMPLETED for need in step.needs)
    ]


def doomed_steps(steps: Sequence[Step]) -> list[Step]:
    """Waiting steps that can never start, directly or through another one, in definition order.

    Source: Job registry, The states (`skipped`: an upstream step failed, so its dependents never ran).
    """
    dead = {step.step_id for step in steps if step.status in _BLOCKING}
    doomed: list[Step] = []
    for step in _in_dependency_order(steps):
        if step.status is StepStatus.WAITING and any(need in dead for need in step.needs):
            dead.add(step.step_id)
            doomed.append(step)
    order = {step.step_id: position for position, step in enumerate(steps)}
    return sorted(doomed, key=lambda step: order[step.step_id])


_BLOCKING: Final = frozenset({StepStatus.FAILED, StepStatus.SKIPPED, StepStatus.CANCELLED})


def _in_dependency_order(steps: Sequence[Step]) -> list[Step]:
    placed: dict[str, Step] = {}
    rest = list(steps)
    while rest:
        now = [step for step in rest if all(need in placed for need in step.needs)]
        if not now:  # a cycle; definitions with one are refused, so nothing sensible is lost
            break
        placed.update((step.step_id, step) for step in now)
        rest = [step for step in rest if step.step_id not in placed]
    return list(placed.values())


def tolerated_failures(tolerance: str | None, total: int) -> int:
    """How many jobs may fail before the step does: an integer, a percentage of all jobs, or none.

    A percentage is rounded down: "10%" of 19 jobs tolerates one.
    """
    if not tolerance:
        return 0
    if tolerance.endswith("%"):
        return math.floor(total * float(tolerance[:-1]) / 100)
    return int(tolerance)


def step_verb(step: Step, counts: StepCounts) -> StepVerb | None:
    """How a running step ends, or None while it still has work or admission to come.

    A step without any job completes: nothing was in scope. One whose jobs were all cancelled is cancelled: it
    found nothing that the next could go on from, and whoever withdrew its jobs wants no more of it.
    """
    if step.status is not StepStatus.RUNNING or not step.is_admitted or counts.live:
        return None
    if counts.cancelled and counts.cancelled == counts.total:
        return StepVerb.CANCEL
    if counts.failed > tolerated_failures(step.tolerance, counts.total):
        return StepVerb.FAIL
    return StepVerb.COMPLETE


def run_verb(steps: Sequence[Step]) -> RunVerb | None:
    """How a run ends once all its steps have, or None while one is open."""
    if any(step.status not in STEPS.terminal for step in steps):
        return None
    failed = any(step.status is not StepStatus.COMPLETED for step in steps)
    return RunVerb.FAIL if failed else RunVerb.COMPLETE


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Most members of one batch of a tool, in ordinary and in large steps."""

    max_batch: int
    large_max_batch: int

    def most(self, step_jobs: int) -> int:
        """Most members in a step of this many jobs."""
        return self.large_max_batch if step_jobs > LARGE_STEP else self.max_batch


def batch_size(due: int, live_slots: int, most: int, least: int = 1) -> int:
    """Members per batch for `due` jobs on `live_slots` hands: at least `least`, never more than `most`."""
    even = math.ceil(due / (BATCHES_PER_SLOT * max(1, live_slots)))
    return max(1, min(max(even, least), most))


def start_to_close(size: int, *, wall_s: float, parallelism: int) -> timedelta:
    """Longest life of a batch: its members' wall limits, run `parallelism` at a time, and a margin.

    The margin lets the tool's own limit fire first: a tool error with partial output, not a lost batch.
    """
    rounds = math.ceil(size / max(1, parallelism))
    return timedelta(seconds=rounds * wall_s) + _OVERHEAD
