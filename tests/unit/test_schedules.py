"""When schedules fire, and what becomes of a fire: pure rules."""

from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from runlane.schedules import FireOutcome, Overlap, Timing, decide, parse_cron, spec_faults, timing_of

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def spec(**changes: object) -> Mapping[str, object]:
    plain = {
        "cron": None, "every_s": None, "time_zone": "UTC", "jitter_s": 60, "overlap": "skip",
        "catch_up_s": 3600, "ends_at": None,
    }  # fmt: skip
    return plain | changes


NOBODY = UUID(int=0)


def timing(schedule_id: UUID = NOBODY, **changes: object) -> Timing:
    return timing_of(spec(**changes), schedule_id)


def local(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("cron", "first", "second"),
    [
        ("*/20 * * * *", "2026-11-30T12:20Z", "2026-11-30T12:40Z"),
        ("30 2 * * mon-fri", "2026-12-01T02:30Z", "2026-12-02T02:30Z"),
        ("0 0 * * 7", "2026-12-06T00:00Z", "2026-12-13T00:00Z"),
        ("15 6 1,15 */6 *", "2027-01-01T06:15Z", "2027-01-15T06:15Z"),
        ("0 12 29 feb *", "2028-02-29T12:00Z", "2032-02-29T12:00Z"),
        ("@monthly", "2026-12-01T00:00Z", "2027-01-01T00:00Z"),
    ],
)
def test_cron_expression_fires_when_all_its_fields_fit(cron: str, first: str, second: str) -> None:
    assert timing(cron=cron).fires(NOW, 2) == [local(first), local(second)]


def test_time_that_the_clocks_jump_over_is_passed_over() -> None:
    berlin = timing(cron="30 2 * * *", time_zone="Europe/Berlin")

    found = berlin.fires(local("2027-03-27T00:00Z"), 2)

    assert found == [local("2027-03-27T01:30Z"), local("2027-03-29T00:30Z")]


def test_time_that_occurs_twice_is_listed_twice_and_known_as_such() -> None:
    berlin = timing(cron="30 2 * * *", time_zone="Europe/Berlin")

    found = berlin.fires(local("2027-10-30T22:00Z"), 2)

    assert found == [local("2027-10-31T00:30Z"), local("2027-10-31T01:30Z")]
    assert all(berlin.is_repeated(each) for each in found)
    assert not berlin.is_repeated(local("2027-10-30T00:30Z"))


def test_intervals_of_many_schedules_do_not_begin_at_one_moment() -> None:
    first = {timing(uuid4(), every_s=86_400).next_fire(NOW) for _ in range(20)}

    assert len(first) > 10


def test_interval_goes_on_in_even_steps_until_its_end() -> None:
    hourly = timing(every_s=3600, ends_at="2026-11-30T14:30:00Z")

    assert hourly.fires(NOW, 5) == [local("2026-11-30T13:00Z"), local("2026-11-30T14:00Z")]


@pytest.mark.parametrize(
    "cron",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *",
     "*/0 * * * *", "0 0 1 * 1", "x * * * *", "* * * * * *", "0 0 30 2 *x"],
)  # fmt: skip
def test_cron_expression_that_cannot_be_is_refused(cron: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_cron(cron)


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({}, {"cron"}),
        ({"cron": "@daily", "every_s": 60}, {"cron"}),
        ({"cron": "61 * * * *", "time_zone": "Mars/Olympus"}, {"cron", "time_zone"}),
        ({"cron": "0 0 30 2 *"}, {"cron"}),
        ({"cron": "@daily", "ends_at": "2026-11-30T13:00:00Z"}, {"ends_at"}),
        ({"cron": "@daily", "time_zone": "../etc/passwd"}, {"time_zone"}),
        ({"every_s": 60, "time_zone": "Europe"}, {"time_zone"}),
        ({"every_s": 60}, set()),
    ],
)
def test_everything_wrong_with_a_schedule_is_said_at_once(
    changes: Mapping[str, object], faults: set[str]
) -> None:
    assert spec_faults(spec(**changes), NOW).keys() == faults


@pytest.mark.parametrize(
    ("overlap", "waiting", "outcome"),
    [
        (Overlap.SKIP, 0, FireOutcome.SKIPPED),
        (Overlap.BUFFER_ONE, 0, FireOutcome.BUFFERED),
        (Overlap.BUFFER_ONE, 1, FireOutcome.SKIPPED),
        (Overlap.CANCEL_OTHER, 0, FireOutcome.RAN),
        (Overlap.ALLOW, 0, FireOutcome.RAN),
    ],
)
def test_fire_during_a_run_is_decided_by_the_policy_and_says_why(
    overlap: Overlap, waiting: int, outcome: FireOutcome
) -> None:
    verdict = decide(overlap, is_paused=False, open_runs=1, waiting=waiting)

    assert verdict.outcome is outcome
    assert (verdict.reason is None) is (outcome is FireOutcome.RAN)
    assert decide(overlap, is_paused=False, open_runs=0, waiting=0).outcome is FireOutcome.RAN
    assert decide(overlap, is_paused=True, open_runs=0, waiting=0).outcome is FireOutcome.SKIPPED
