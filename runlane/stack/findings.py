"""What an examination finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ANSWER_TIMEOUT_S: Final = 3.0
"""How long one server may take to answer one question."""


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    """Works, but something is slower, less fair or less safe than it should be; the detail says what."""
    FAIL = "fail"
    """Does not work like this."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `runlane doctor`."""

    name: str
    level: Level
    detail: str


def worst(checks: Sequence[Check]) -> Level:
    """The level of the whole: `fail` if any check failed."""
    order = (Level.FAIL, Level.WARN, Level.OK)
    levels = {check.level for check in checks}
    return next((level for level in order if level in levels), Level.OK)
