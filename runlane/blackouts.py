"""Blackout windows: when nothing may begin, once or weekly in a time zone. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from runlane.errors import Invalid


class Policy(StrEnum):
    """What becomes of the jobs that run when a window opens."""

    FINISH = "finish"
    CANCEL = "cancel"  # they are killed and given back, uncharged: they run again when it has closed


@dataclass(frozen=True, slots=True)
class Weekly:
    """On these days of the week (1: Monday) from `begins` to `ends`, of the next day if not later."""

    weekdays: Sequence[int]
    begins: time
    ends: time
    time_zone: str


@dataclass(frozen=True, slots=True)
class Once:
    """From one moment to another."""

    starts_at: datetime
    ends_at: datetime


def open_until(window: Weekly | Once, now: datetime) -> datetime | None:
    """When the window that is open now closes; None when it is not open."""
    if isinstance(window, Once):
        return window.ends_at if window.starts_at <= now < window.ends_at else None
    zone = ZoneInfo(window.time_zone)
    today = now.astimezone(zone).date()
    for day in (today - timedelta(days=1), today):
        last = day + timedelta(days=1) if window.ends <= window.begins else day
        starts_at = datetime.combine(day, window.begins, zone).astimezone(UTC)
        ends_at = datetime.combine(last, window.ends, zone).astimezone(UTC)
        if day.isoweekday() in window.weekdays and starts_at <= now < ends_at:
            return ends_at
    return None


def check_window(window: Weekly | Once) -> None:
    """Refuses a window that can never be open.

    Raises:
        Invalid: `blackout.order`, `blackout.weekdays`, `blackout.time_zone`.
    """
    if isinstance(window, Once):
        if window.starts_at >= window.ends_at:
            raise _invalid("order", "ends_at", "it ends before it begins")
        return
    if not window.weekdays or not set(window.weekdays) <= set(range(1, 8)):
        raise _invalid("weekdays", "weekdays", "days are numbers from 1 (Monday) to 7")
    try:
        ZoneInfo(window.time_zone)
    except (ValueError, OSError, KeyError) as error:
        raise _invalid("time_zone", "time_zone", "no such time zone") from error


def _invalid(reason: str, field: str, detail: str) -> Invalid:
    return Invalid(detail, code=f"blackout.{reason}", fields={field: detail})
