"""How far a run is, and how long it takes yet: estimated from what ended lately, or unknown. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from runlane.jobs import JOBS, STEPS, JobStatus, StepStatus

RECENT_S: Final = 60.0
"""What counts as lately."""

ENOUGH: Final = 5
"""Jobs that must have ended for a rate to mean something."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A step as an estimate needs it."""

    step_id: str
    status: StepStatus
    is_admitted: bool
    opened_at: datetime | None
    jobs: Mapping[JobStatus, int] = field(default_factory=dict)
    recent: int = 0
    """Jobs of it that ended in the last `RECENT_S`."""

    @property
    def total(self) -> int:
        """Jobs admitted so far."""
        return sum(self.jobs.values())

    @property
    def ended(self) -> int:
        """Jobs in a final state."""
        return sum(count for status, count in self.jobs.items() if status in JOBS.terminal)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds that are left, or why nobody can tell. Exactly one of `left_s` and `unknown` is there."""

    left_s: float | None = None
    per_minute: float | None = None
    """Jobs that end in a minute."""
    unknown: str | None = None


def estimate_step(step: StepFacts, as_of: datetime, blocked_by: str | None = None) -> Estimate:
    """Estimates when an open step ends: from the last minute, or all its time if that says too little."""
    if step.status in STEPS.terminal:
        return Estimate(left_s=0.0)
    if step.status is StepStatus.WAITING or step.opened_at is None:
        return Estimate(unknown="it has not begun")
    if not step.is_admitted:
        return Estimate(unknown="its jobs are still being written")
    left = step.total - step.ended
    if left == 0:
        return Estimate(left_s=0.0)
    open_s = max((as_of - step.opened_at).total_seconds(), 1.0)
    if step.recent >= ENOUGH:
        return _at(step.recent / min(open_s, RECENT_S), left)
    if blocked_by is not None:
        return Estimate(unknown=blocked_by)
    if step.ended < ENOUGH:
        return Estimate(unknown="too few of its jobs have ended")
    return _at(step.ended / open_s, left)


def estimate_run(steps: Sequence[tuple[StepFacts, Estimate]]) -> Estimate:
    """Estimates when a run ends: known only once each of its steps has begun and is known."""
    unbegun = sum(step.status is StepStatus.WAITING for step, _ in steps)
    if unbegun:
        return Estimate(unknown=f"steps that have not begun: {unbegun}")
    for step, estimate in steps:
        if estimate.unknown is not None:
            return Estimate(unknown=f"{step.step_id}: {estimate.unknown}")
    return Estimate(left_s=max((estimate.left_s or 0.0 for _, estimate in steps), default=0.0))


def _at(per_second: float, left: int) -> Estimate:
    return Estimate(left_s=round(left / per_second, 1), per_minute=round(per_second * 60, 1))
