"""Estimates: how long a step and a run take yet."""

from datetime import UTC, datetime, timedelta

import pytest

from runlane.jobs import JobStatus, StepStatus
from runlane.progress import Estimate, StepFacts, estimate_run, estimate_step

NOW = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)
PENDING, COMPLETED = JobStatus.PENDING, JobStatus.COMPLETED


def facts(
    left: int, ended: int, recent: int = 0, *, open_s: int = 600, status: StepStatus = StepStatus.RUNNING
) -> StepFacts:
    jobs = {PENDING: left, COMPLETED: ended}
    opened_at = None if status is StepStatus.WAITING else NOW - timedelta(seconds=open_s)
    return StepFacts("a", status, status is not StepStatus.WAITING, opened_at, jobs, recent)


@pytest.mark.parametrize(
    ("step", "estimate"),
    [
        (facts(120, 600, 60), Estimate(left_s=120.0, per_minute=60.0)),
        (facts(120, 60, 60, open_s=30), Estimate(left_s=60.0, per_minute=120.0)),  # open for half a minute
        (facts(120, 60), Estimate(left_s=1200.0, per_minute=6.0)),  # slow: from all its time
        (facts(0, 60), Estimate(left_s=0.0)),
        (facts(3, 4), Estimate(unknown="too few of its jobs have ended")),
        (facts(0, 0, status=StepStatus.WAITING), Estimate(unknown="it has not begun")),
        (facts(0, 0, status=StepStatus.FAILED), Estimate(left_s=0.0)),
    ],
)
def test_step_is_estimated_from_what_ended_lately_or_unknown(step: StepFacts, estimate: Estimate) -> None:
    assert estimate_step(step, NOW) == estimate


def test_step_that_waits_for_somebody_is_not_estimated_from_better_times() -> None:
    blocked = "no live worker for the tool set probe"

    assert estimate_step(facts(120, 600), NOW, blocked) == Estimate(unknown=blocked)
    assert estimate_step(facts(120, 600, 60), NOW, blocked).left_s == 120.0


def test_run_is_known_only_when_all_of_it_is() -> None:
    known, slow, begun = facts(120, 600, 60), facts(120, 60), facts(3, 4)
    waiting = facts(0, 0, status=StepStatus.WAITING)

    def of(*steps: StepFacts) -> Estimate:
        return estimate_run([(step, estimate_step(step, NOW)) for step in steps])

    assert of(known, slow) == Estimate(left_s=1200.0)
    assert of(known, begun) == Estimate(unknown="a: too few of its jobs have ended")
    assert of(known, waiting) == Estimate(unknown="steps that have not begun: 1")
    assert of() == Estimate(left_s=0.0)
