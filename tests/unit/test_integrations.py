"""What endpoints get, when an attempt is made again, and when an endpoint is left alone or given up."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.events import LEAVES, Severity
from runlane.integrations import (
    BREAKS_AFTER,
    GIVEN_UP_AFTER,
    LONGEST_BREAK,
    MAX_REFUSALS,
    MOST_PATIENCE,
    PAUSES,
    Answer,
    Kind,
    Tried,
    break_of,
    filter_faults,
    fits,
    is_for,
    is_given_up,
    judge,
    may_leave,
    next_pause,
    patience,
    severities_from,
    severity_of,
)


def test_what_deliveries_cause_never_leaves() -> None:
    caused = ("integration.delivery.", "integration.endpoint.", "integration.sync.", "integration.ticket.")
    loops = [name for name in LEAVES if name.startswith((*caused, "notification.", "dead_letter."))]

    assert loops
    assert not [name for name in loops if may_leave(name)]


def test_only_outbound_events_with_a_severity_leave() -> None:
    leaving = {name for name in LEAVES if may_leave(name)}

    assert {"vulnerability.detected", "workflow.run.failed", "integration.connected"} <= leaving
    assert all(LEAVES[name].is_outbound and LEAVES[name].policy.severity != Severity.NONE for name in leaving)


def test_a_finding_says_itself_how_severe_it_is() -> None:
    assert severity_of("vulnerability.detected", {"severity": "critical"}) == "critical"
    assert severity_of("vulnerability.detected", {"severity": "nonsense"}) == "high"
    assert severity_of("workflow.run.failed", {"severity": "critical"}) == "medium"
    assert severities_from("medium") == ["medium", "high", "critical"]


def test_filter_entries_that_mean_nothing_are_named() -> None:
    faults = filter_faults(Kind.WEBHOOK, ["asset.*", "vulnerability.detected", "asset", "notification.*"])

    assert faults.keys() == {"events.2", "events.3"}
    assert filter_faults(Kind.GITHUB, ["asset.*"]).keys() == {"events.0"}
    assert fits("asset.*", "asset.port.opened")
    assert not fits("asset.*", "assets.port")
    assert not is_for(Kind.JIRA, "asset.discovered")


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, Answer.ACCEPTED), (204, Answer.ACCEPTED), (301, Answer.TROUBLED), (304, Answer.TROUBLED),
        (400, Answer.REFUSED), (401, Answer.REFUSED), (404, Answer.REFUSED), (408, Answer.TROUBLED),
        (409, Answer.TROUBLED), (410, Answer.GONE), (425, Answer.TROUBLED), (429, Answer.TROUBLED),
        (500, Answer.TROUBLED), (503, Answer.TROUBLED), (100, Answer.TROUBLED),
    ],
)  # fmt: skip
def test_statuses_mean_what_the_rules_say(status: int, answer: Answer) -> None:
    assert judge(status) is answer


def test_eight_attempts_take_about_28_hours_and_then_it_has_failed() -> None:
    pauses = [next_pause(Tried(Answer.TROUBLED, attempt, 0), 0.5) for attempt in range(1, 9)]

    assert pauses == [*PAUSES, None]
    assert timedelta(hours=27) < sum(PAUSES, timedelta()) < timedelta(hours=29)


def test_refusals_are_tried_three_times() -> None:
    tried = [next_pause(Tried(Answer.REFUSED, n, n), 0.5) is None for n in range(1, MAX_REFUSALS + 1)]

    assert tried == [False, False, True]


def test_a_test_is_attempted_once() -> None:
    assert next_pause(Tried(Answer.TROUBLED, 1, 0, is_test=True), 0.5) is None


@given(st.integers(1, 12), st.integers(0, 3), st.floats(0, 1), st.none() | st.floats(-1e9, 1e12))
def test_a_pause_is_jittered_by_a_fifth_and_never_shorter_than_the_endpoint_asks(
    attempt: int, refusals: int, chance: float, retry_after_s: float | None
) -> None:
    pause = next_pause(Tried(Answer.TROUBLED, attempt, refusals, retry_after_s), chance)

    if pause is None:
        assert refusals == MAX_REFUSALS or attempt > len(PAUSES)
        return
    asked = patience(retry_after_s)
    assert timedelta(0) <= asked <= MOST_PATIENCE
    assert pause >= asked
    assert pause == asked or 0.79 <= pause / PAUSES[attempt - 1] <= 1.21


def test_breaks_begin_after_five_failures_and_grow_to_ten_minutes() -> None:
    assert not any(break_of(failures) for failures in range(BREAKS_AFTER))
    assert [break_of(BREAKS_AFTER + n).total_seconds() for n in range(6)] == [30, 60, 120, 240, 480, 600]
    assert break_of(1_000_000) == LONGEST_BREAK


def test_a_burst_of_failures_gives_up_nothing() -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)

    assert not is_given_up(first, first + timedelta(minutes=1))
    assert not is_given_up(first, first + GIVEN_UP_AFTER - timedelta(seconds=1))
    assert is_given_up(first, first + GIVEN_UP_AFTER)
