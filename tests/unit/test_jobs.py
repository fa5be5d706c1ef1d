"""The state machines and the verdict on an ended attempt."""

from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from runlane.errors import ImpossibleTransition
from runlane.jobs import (
    JOBS,
    MAX_FAILURES,
    MAX_FREE_ATTEMPTS,
    MAX_LOSSES,
    QUARANTINED,
    RUNS,
    STEPS,
    JobStatus,
    JobVerb,
    Machine,
    Outcome,
    Priority,
    judge,
    release_delay,
    retry_delay,
)

MACHINES: list[Machine[Any, Any]] = [JOBS, STEPS, RUNS]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_each_verb_leads_to_one_state(machine: Machine[StrEnum, StrEnum]) -> None:
    targets: dict[StrEnum, set[StrEnum]] = {}
    for (_, verb), target in machine.transitions.items():
        targets.setdefault(verb, set()).add(target)

    assert all(len(found) == 1 for found in targets.values())


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_terminal_state_is_never_left(machine: Machine[StrEnum, StrEnum]) -> None:
    left = {status for status, _ in machine.transitions}

    assert not left & machine.terminal


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_state_is_reached_from_the_initial_one(machine: Machine[StrEnum, StrEnum]) -> None:
    reached = {machine.initial}
    for _ in machine.transitions:
        reached |= {target for (status, _), target in machine.transitions.items() if status in reached}

    assert reached == set(type(machine.initial))


def test_a_move_that_the_table_lacks_is_a_defect() -> None:
    with pytest.raises(ImpossibleTransition):
        JOBS.advance(JobStatus.COMPLETED, JobVerb.CANCEL)


def test_tool_failure_is_retried_until_the_budget_is_spent() -> None:
    verdicts = [judge(Outcome.TOOL_FAILED, failures=n, free_attempts=0) for n in range(MAX_FAILURES)]

    assert [verdict.verb for verdict in verdicts] == [JobVerb.RETRY] * 3 + [JobVerb.FAIL]
    assert all(verdict.charged for verdict in verdicts)
    assert verdicts[-1].reason == "budget"
    assert not verdicts[-1].retryable


def test_a_lost_attempt_is_never_charged_and_fails_as_infrastructure_at_the_cap() -> None:
    verdicts = [judge(Outcome.LOST, failures=0, free_attempts=n) for n in range(MAX_FREE_ATTEMPTS)]

    assert {verdict.verb for verdict in verdicts[:-1]} == {JobVerb.RELEASE}
    assert verdicts[-1].verb is JobVerb.FAIL
    assert verdicts[-1].reason == "infrastructure"
    assert not any(verdict.charged for verdict in verdicts)


def test_a_fatal_outcome_fails_at_once_and_is_not_retryable() -> None:
    verdict = judge(Outcome.FATAL, failures=0, free_attempts=0)

    assert (verdict.verb, verdict.charged, verdict.retryable) == (JobVerb.FAIL, False, False)


def test_only_a_failed_merge_is_retryable() -> None:
    decided = [outcome for outcome in Outcome if outcome not in (Outcome.CANCELLED, Outcome.STALE)]

    retryable = {
        outcome
        for outcome in decided
        if judge(outcome, failures=3, free_attempts=19, lives_lost=MAX_LOSSES).retryable
    }

    assert retryable == {Outcome.MERGE_FAILED}


def test_job_that_ended_three_lives_of_workers_is_quarantined_and_is_not_charged() -> None:
    verdicts = [judge(Outcome.LOST, failures=0, free_attempts=n, lives_lost=n + 1) for n in range(MAX_LOSSES)]

    assert [verdict.verb for verdict in verdicts] == [JobVerb.RELEASE, JobVerb.RELEASE, JobVerb.FAIL]
    assert verdicts[-1].reason == QUARANTINED
    assert not verdicts[-1].charged


def test_job_that_was_given_back_is_not_quarantined_for_what_happened_before() -> None:
    verdict = judge(Outcome.RELEASED, failures=0, free_attempts=5, lives_lost=MAX_LOSSES)

    assert verdict.verb is JobVerb.RELEASE


def test_retry_back_off_doubles_from_ten_seconds_to_two_minutes() -> None:
    delays = [retry_delay(n, 0.0).total_seconds() for n in range(1, 7)]

    assert delays == [10, 20, 40, 80, 120, 120]


def test_retry_jitter_stays_inside_a_fifth() -> None:
    assert retry_delay(1, 1.0) == timedelta(seconds=12)
    assert retry_delay(1, -1.0) == timedelta(seconds=8)


def test_first_release_is_free_of_delay_and_later_ones_back_off_to_a_minute() -> None:
    delays = [release_delay(n).total_seconds() for n in range(1, 10)]

    assert delays == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_priorities_rank_lower_first() -> None:
    assert [priority.rank for priority in Priority] == [0, 1, 2, 3, 4]
