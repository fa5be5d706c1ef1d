"""The rules of a run."""

from datetime import timedelta

import pytest

from runlane.jobs import RunVerb, StepStatus, StepVerb
from runlane.runs import (
    BatchLimits,
    Step,
    StepCounts,
    batch_size,
    doomed_steps,
    ready_steps,
    run_verb,
    start_to_close,
    step_verb,
    tolerated_failures,
)

W, R, C, F, S = (
    StepStatus.WAITING,
    StepStatus.RUNNING,
    StepStatus.COMPLETED,
    StepStatus.FAILED,
    StepStatus.SKIPPED,
)


def chain(*statuses: StepStatus) -> list[Step]:
    """Steps a, b, c … where each needs the one before it."""
    ids = "abcdefgh"
    return [
        Step(ids[i], "noop", status, (ids[i - 1],) if i else (), is_admitted=True)
        for i, status in enumerate(statuses)
    ]


def test_a_step_is_ready_when_all_its_needs_completed() -> None:
    steps = [*chain(C, W, W), Step("x", "noop", W, ("a", "b"))]

    assert [step.step_id for step in ready_steps(steps)] == ["b"]


def test_a_failed_step_dooms_everything_behind_it_and_nothing_beside_it() -> None:
    steps = [*chain(F, W, W), Step("beside", "noop", W)]

    assert [step.step_id for step in doomed_steps(steps)] == ["b", "c"]
    assert [step.step_id for step in ready_steps(steps)] == ["beside"]


@pytest.mark.parametrize(
    ("tolerance", "total", "tolerated"),
    [
        (None, 100, 0),
        ("0", 100, 0),
        ("3", 100, 3),
        ("10%", 19, 1),
        ("10%", 9, 0),
        ("100%", 7, 7),
        ("2.5%", 100, 2),
    ],
)
def test_tolerance_is_a_count_or_a_share_rounded_down(
    tolerance: str | None, total: int, tolerated: int
) -> None:
    assert tolerated_failures(tolerance, total) == tolerated


def test_a_step_is_open_while_a_job_lives_or_admission_goes_on() -> None:
    step = Step("a", "noop", R, is_admitted=True)

    assert step_verb(step, StepCounts(total=2, live=1)) is None
    assert step_verb(Step("a", "noop", R, is_admitted=False), StepCounts()) is None


def test_a_step_without_jobs_completes() -> None:
    assert step_verb(Step("a", "noop", R, is_admitted=True), StepCounts()) is StepVerb.COMPLETE


def test_failures_inside_the_tolerance_complete_the_step() -> None:
    step = Step("a", "noop", R, tolerance="50%", is_admitted=True)

    assert step_verb(step, StepCounts(total=4, failed=2)) is StepVerb.COMPLETE
    assert step_verb(step, StepCounts(total=4, failed=3)) is StepVerb.FAIL


def test_step_is_cancelled_with_the_last_of_its_jobs_only() -> None:
    step = Step("a", "noop", R, is_admitted=True)

    assert step_verb(step, StepCounts(total=2, cancelled=1)) is StepVerb.COMPLETE
    assert step_verb(step, StepCounts(total=2, cancelled=1, live=1)) is None
    assert step_verb(step, StepCounts(total=2, cancelled=2)) is StepVerb.CANCEL
    assert step_verb(step, StepCounts()) is StepVerb.COMPLETE


def test_a_run_ends_when_all_its_steps_have() -> None:
    assert run_verb(chain(C, R)) is None
    assert run_verb(chain(C, C)) is RunVerb.COMPLETE
    assert run_verb(chain(C, F, S)) is RunVerb.FAIL


@pytest.mark.parametrize(
    ("due", "slots", "size"),
    [(1, 50, 1), (200, 50, 1), (2_000, 50, 10), (5_000, 50, 25), (100_000, 50, 25), (10, 0, 3), (0, 1, 1)],
)
def test_batches_grow_with_what_is_due_up_to_the_limit_of_the_tool(due: int, slots: int, size: int) -> None:
    assert batch_size(due, slots, most=25) == size


def test_least_batch_is_kept_below_the_limit_of_the_tool() -> None:
    assert batch_size(10, 50, most=25, least=20) == 20


def test_only_a_step_of_more_than_five_thousand_jobs_uses_large_batches() -> None:
    limits = BatchLimits(25, 100)

    assert (limits.most(5_000), limits.most(5_001)) == (25, 100)


def test_a_batch_may_live_as_long_as_its_rounds_and_a_margin() -> None:
    assert start_to_close(25, wall_s=60, parallelism=10) == timedelta(minutes=3 + 10)
