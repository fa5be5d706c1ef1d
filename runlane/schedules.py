"""Schedules of a workspace: when they fire, and what becomes of a fire. Pure.

A schedule has a cron expression in a time zone, or an interval. The calendar is ours and is told to Temporal
field by field, so that both mean the same times: five fields, all of which must fit. Day of month and day of
week exclude each other, because some programs join them by "or" and others by "and".

Where clocks change, a time that does not exist is passed over. One that occurs twice is listed twice;
Temporal fires at one of the two or at both, so neither is ever said to be missed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo

MIN_EVERY_S: Final = 60
MAX_EVERY_S: Final = 366 * 86_400
MAX_JITTER_S: Final = 3_600
MIN_CATCH_UP_S: Final = 60
MAX_CATCH_UP_S: Final = 7 * 86_400
DEFAULT_JITTER_S: Final = 60
"""Many schedules say midnight: each is late by a share of this that its id decides."""
DEFAULT_CATCH_UP_S: Final = 3_600
MAX_SCHEDULES: Final = 200
"""Schedules of one workspace."""

LATE_S: Final = 120
"""A fire that is not in the ledger so long after its last chance was missed."""

_DAYS: Final = 8 * 366
"""How far a calendar is searched: 29 February may be eight years away."""

_FIELD: Final = re.compile(r"(\*|[0-9a-z]{1,3})(?:-([0-9a-z]{1,3}))?(?:/([0-9]{1,2}))?\Z")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SHORTHANDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


class Overlap(StrEnum):
    """What becomes of a fire while a run of the same schedule is open."""

    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    CANCEL_OTHER = "cancel_other"
    ALLOW = "allow"


class FireOutcome(StrEnum):
    """What became of a fire, as in `schedule_fires.outcome`."""

    RAN = "ran"
    SKIPPED = "skipped"
    BUFFERED = "buffered"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Calendar:
    """The minutes, hours, days and months at which to fire; weekdays from Sunday, 0."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule fires: by a calendar, or every so many seconds. `phase_s` is part of an interval."""

    calendar: Calendar | None
    every_s: int
    phase_s: int
    time_zone: str
    jitter_s: int
    overlap: Overlap
    catch_up_s: int
    ends_at: datetime | None

    def next_fire(self, after: datetime) -> datetime | None:
        """The first nominal time after this one; None: never again."""
        if self.calendar is None:
            number = (int(after.timestamp()) - self.phase_s) // self.every_s + 1
            found: datetime | None = datetime.fromtimestamp(number * self.every_s + self.phase_s, UTC)
        else:
            found = _next_of(self.calendar, ZoneInfo(self.time_zone), after)
        return None if found is None or (self.ends_at is not None and found > self.ends_at) else found

    def is_repeated(self, moment: datetime) -> bool:
        """Whether clocks show the time of this moment twice."""
        local = moment.astimezone(ZoneInfo(self.time_zone))
        return (
            self.calendar is not None
            and local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
        )

    def fires(self, after: datetime, count: int) -> list[datetime]:
        """The next so many nominal times, or as many as there are."""
        found: list[datetime] = []
        while len(found) < count and (following := self.next_fire(after)) is not None:
            found.append(after := following)
        return found


def timing_of(spec: Mapping[str, object], schedule_id: UUID) -> Timing:
    """Reads the form that is kept on the row. Intervals of different schedules begin at different moments.

    Raises:
        ValueError: it is not of that form; `spec_faults` says why.
    """
    cron, every_s, ends_at = spec.get("cron"), int(str(spec.get("every_s") or 0)), spec.get("ends_at")
    return Timing(
        calendar=parse_cron(str(cron)) if cron is not None else None,
        every_s=every_s,
        phase_s=schedule_id.int % every_s if every_s else 0,
        time_zone=str(spec["time_zone"]),
        jitter_s=int(str(spec["jitter_s"])),
        overlap=Overlap(str(spec["overlap"])),
        catch_up_s=int(str(spec["catch_up_s"])),
        ends_at=datetime.fromisoformat(str(ends_at)) if ends_at is not None else None,
    )


def spec_faults(spec: Mapping[str, object], now: datetime) -> dict[str, str]:
    """Everything that is wrong with when a schedule should fire, by field."""
    faults: dict[str, str] = {}
    cron, every_s = spec.get("cron"), spec.get("every_s")
    if (cron is None) is (every_s is None):
        faults["cron"] = "either a cron expression or every_s is required"
    if cron is not None:
        try:
            parse_cron(str(cron))
        except ValueError as error:
            faults["cron"] = str(error)
    zone = str(spec["time_zone"])
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # not there, not a name, a folder
        faults["time_zone"] = "unknown time zone"
    if not faults and timing_of(spec, UUID(int=0)).next_fire(now) is None:
        faults["ends_at" if spec.get("ends_at") else "cron"] = "it would never fire"
    return faults


def parse_cron(expression: str) -> Calendar:
    """Reads a cron expression of five fields, or one like @daily.

    Raises:
        ValueError: it is none; the text says why.
    """
    text = expression.strip().lower()
    fields = _SHORTHANDS.get(text, text).split()
    if len(fields) != 5:
        raise ValueError("five fields are required: minute, hour, day of month, month, day of week")
    minute, hour, day, month, weekday = fields
    if day != "*" and weekday != "*":
        raise ValueError("day of month or day of week may be said, not both")
    return Calendar(
        minutes=_values("minute", minute, 0, 59),
        hours=_values("hour", hour, 0, 23),
        days=_values("day of month", day, 1, 31),
        months=_values("month", month, 1, 12, _MONTHS),
        weekdays=tuple(sorted({each % 7 for each in _values("day of week", weekday, 0, 7, _WEEKDAYS)})),
    )


def _values(name: str, field: str, least: int, most: int, words: tuple[str, ...] = ()) -> tuple[int, ...]:
    """The values of one field: a list of `*`, `a`, `a-b`, each with `/step`."""
    found: set[int] = set()
    for part in field.split(","):
        match = _FIELD.match(part)
        if match is None:
            raise ValueError(f"{name}: {part[:20]!r} cannot be read")
        first, last, step = match.groups()
        if first == "*":
            low, high = least, most
        else:
            low = _number(name, first, least, words)
            high = _number(name, last, least, words) if last else (most if step else low)
        if not least <= low <= high <= most or (step is not None and int(step) == 0):
            raise ValueError(f"{name}: {part[:20]!r} is not within {least} to {most}")
        found.update(range(low, high + 1, int(step or 1)))
    return tuple(sorted(found))


def _number(name: str, text: str, least: int, words: tuple[str, ...]) -> int:
    if text.isdigit():
        return int(text)
    if text in words:
        return words.index(text) + least
    raise ValueError(f"{name}: {text[:20]!r} cannot be read")


def _next_of(calendar: Calendar, zone: ZoneInfo, after: datetime) -> datetime | None:
    local = after.astimezone(zone)
    for number in range(_DAYS):
        day = local.date() + timedelta(days=number)
        hours = calendar.hours if _has_day(calendar, day) else ()
        for hour in hours:
            if number > 0 or hour >= local.hour:
                for moment in _moments(calendar.minutes, zone, day, hour):
                    if moment > after:
                        return moment
    return None


def _has_day(calendar: Calendar, day: date) -> bool:
    return (
        day.month in calendar.months
        and day.day in calendar.days
        and day.isoweekday() % 7 in calendar.weekdays
    )


def _moments(minutes: Iterable[int], zone: ZoneInfo, day: date, hour: int) -> list[datetime]:
    """The minutes of an hour in order, those that occur twice twice, those that do not exist left out."""
    both = (time(hour, minute, fold=fold) for fold in (0, 1) for minute in minutes)
    moments = {datetime.combine(day, each, tzinfo=zone).astimezone(UTC) for each in both}
    return sorted(each for each in moments if each.astimezone(zone).hour == hour)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a fire. `reason`: why it does not run now."""

    outcome: FireOutcome
    reason: str | None = None


def decide(overlap: Overlap, *, is_paused: bool, open_runs: int, waiting: int) -> Verdict:
    """What becomes of a fire. `waiting`: other fires of the schedule that are buffered."""
    if is_paused:
        return Verdict(FireOutcome.SKIPPED, "the schedule is paused")
    if open_runs == 0 or overlap in {Overlap.ALLOW, Overlap.CANCEL_OTHER}:
        return Verdict(FireOutcome.RAN)
    if overlap is Overlap.SKIP:
        return Verdict(FireOutcome.SKIPPED, "a run of the schedule is open")
    if waiting:
        return Verdict(FireOutcome.SKIPPED, "a run of the schedule is open, and another fire waits")
    return Verdict(FireOutcome.BUFFERED, "a run of the schedule is open")
