"""Blackout windows: when they are open."""

from datetime import UTC, datetime, time

import pytest

from runlane.blackouts import Once, Weekly, check_window, open_until
from runlane.errors import Invalid

NIGHT = Weekly([5], time(22), time(6), "Europe/Berlin")  # Friday to Saturday


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_window_is_open_from_its_begin_up_to_its_end() -> None:
    window = Once(at("2026-12-24 12:00"), at("2026-12-27 00:00"))

    assert open_until(window, at("2026-12-24 11:59:59")) is None
    assert open_until(window, at("2026-12-24 12:00")) == window.ends_at
    assert open_until(window, at("2026-12-27 00:00")) is None


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-12-04 20:59", None),
        ("2026-12-04 21:00", "2026-12-05 05:00"),
        ("2026-12-05 04:59", "2026-12-05 05:00"),
        ("2026-12-05 05:00", None),
        ("2026-12-05 21:00", None),  # a Saturday
        ("2026-07-03 20:00", "2026-07-04 04:00"),  # summer time
    ],
)
def test_weekly_window_follows_the_clock_of_its_zone_over_midnight(now: str, until: str | None) -> None:
    assert open_until(NIGHT, at(now)) == (until and at(until))


def test_night_of_the_change_of_clocks_is_as_long_as_it_is() -> None:
    saturday = Weekly([6], time(22), time(6), "Europe/Berlin")

    assert open_until(saturday, at("2026-03-28 21:00")) == at("2026-03-29 04:00")
    assert open_until(saturday, at("2026-10-24 20:00")) == at("2026-10-25 05:00")


@pytest.mark.parametrize(
    ("window", "code"),
    [
        (Once(at("2026-12-24 12:00"), at("2026-12-24 12:00")), "blackout.order"),
        (Weekly([], time(1), time(2), "UTC"), "blackout.weekdays"),
        (Weekly([0, 8], time(1), time(2), "UTC"), "blackout.weekdays"),
        (Weekly([1], time(1), time(2), "Europe/Nowhere"), "blackout.time_zone"),
        (Weekly([1], time(1), time(2), "../etc/passwd"), "blackout.time_zone"),
    ],
)
def test_window_that_can_never_be_open_is_refused(window: Weekly | Once, code: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_window(window)

    assert refused.value.code == code
