"""Whatever holds a pending job back, exactly one reason is named, and it is the first that holds."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from runlane.jobs import StepStatus
from runlane.waiting import (
    Fleet,
    LimitUse,
    Pause,
    PauseScope,
    Queued,
    Reason,
    Waiting,
    explain,
    no_worker,
)

NOW = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)

texts = st.none() | st.text(max_size=20)
moments = st.integers(-7_200, 7_200).map(lambda seconds: NOW + timedelta(seconds=seconds))
counts = st.integers(0, 3)
uses = st.lists(
    st.builds(LimitUse, st.just("the workspace"), st.integers(0, 9), st.integers(1, 9)), max_size=3
)
fleets = st.builds(Fleet, st.just("probe"), texts, counts, counts, counts, counts, counts)
waits = st.builds(
    Waiting,
    as_of=st.just(NOW),
    fleet=fleets,
    due_at=moments,
    failures=st.integers(0, 3),
    blackout=st.none() | st.just("blackout until tomorrow"),
    pauses=st.lists(st.builds(Pause, st.sampled_from(PauseScope), moments, texts, texts), max_size=3),
    is_run_started=st.booleans(),
    step_status=st.sampled_from((StepStatus.WAITING, StepStatus.RUNNING, StepStatus.CANCELLED)),
    open_needs=st.lists(st.text(max_size=5), max_size=2),
    has_target=st.booleans(),
    is_tool_enabled=st.booleans(),
    minute_limits=uses,
    concurrency_limits=uses,
    rates=uses,
    shared=st.none() | st.builds(LimitUse, st.just("x"), st.integers(0, 9), st.integers(1, 9)),
    is_suspect=st.booleans(),
    queued=st.none() | st.builds(Queued, st.just("scan.x.probe"), moments, counts),
    ahead=st.integers(0, 20_000),
)

FREE = Waiting(NOW, Fleet("probe", slots=4), NOW)
"""Held back by nothing."""


@given(waits)
def test_exactly_one_reason_is_given_for_every_pending_job(waiting: Waiting) -> None:
    explanation = explain(waiting)

    assert [check.reason for check in explanation.checks] == list(Reason)
    holding = [check for check in explanation.checks if check.is_holding]
    assert (holding[0].reason, holding[0].text) == (explanation.reason, explanation.text)
    assert all(check.text for check in explanation.checks)
    last_two = [check.is_holding for check in explanation.checks[-2:]]
    assert sorted(last_two) == [False, True]  # dispatched or in line, never both and never neither


@given(waits)
def test_reason_goes_when_what_it_names_goes(waiting: Waiting) -> None:
    """So a person who follows the answers one by one gets to the end of them."""
    seen: list[Reason] = []
    while (reason := explain(waiting).reason) not in (Reason.QUEUED, Reason.IN_LINE):
        assert reason not in seen
        seen.append(reason)
        waiting = _without(waiting, reason)


def _without(waiting: Waiting, reason: Reason) -> Waiting:
    match reason:
        case Reason.MAINTENANCE:
            return _lifted(waiting, PauseScope.PLATFORM)
        case Reason.WORKSPACE_PAUSED:
            return _lifted(waiting, PauseScope.WORKSPACE)
        case Reason.RUN_PAUSED:
            return _lifted(waiting, PauseScope.RUN)
        case Reason.TOOLSET_PAUSED:
            return _lifted(waiting, PauseScope.TOOLSET)
        case Reason.RUN_NOT_STARTED:
            return replace(waiting, is_run_started=True)
        case Reason.UPSTREAM | Reason.CANCELLED:
            return replace(waiting, step_status=StepStatus.RUNNING)
        case Reason.TARGET_GONE:
            return replace(waiting, has_target=True)
        case Reason.TOOL_OFF:
            return replace(waiting, is_tool_enabled=True)
        case Reason.BLACKOUT:
            return replace(waiting, blackout=None)
        case Reason.BACK_OFF:
            return replace(waiting, due_at=NOW)
        case Reason.MINUTE_LIMIT:
            return replace(waiting, minute_limits=())
        case Reason.CONCURRENCY_LIMIT:
            return replace(waiting, concurrency_limits=())
        case Reason.RATE:
            return replace(waiting, rates=())
        case Reason.NO_WORKER:
            return replace(waiting, fleet=replace(waiting.fleet, slots=1))
        case Reason.SHARED_SHARE:
            return replace(waiting, shared=None)
        case Reason.SUSPECT:
            return replace(waiting, is_suspect=False)
        case _:
            raise AssertionError(reason)


def _lifted(waiting: Waiting, scope: PauseScope) -> Waiting:
    return replace(waiting, pauses=[pause for pause in waiting.pauses if pause.scope is not scope])


def test_pause_says_who_when_and_why() -> None:
    pause = Pause(PauseScope.RUN, NOW, "ana", "customer asked")

    explanation = explain(replace(FREE, pauses=[pause]))

    assert explanation.text == "the run is paused by ana since 2026-12-01 10:00:00 UTC: customer asked"


def test_missing_worker_is_told_with_those_that_nearly_fit() -> None:
    fleet = Fleet("browser", "office", draining=1, elsewhere=2, forbidden_shared=3)

    text = explain(replace(FREE, fleet=fleet)).text

    assert text.startswith(no_worker("browser", "office"))
    assert text.endswith("(1 draining, 2 not in its network, 3 shared, which the workspace does not allow)")
