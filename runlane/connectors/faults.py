"""Typed reading of one part of a manifest: every fault is noted with its path, none ends the reading."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MAX_FAULTS: Final = 50
"""Faults that are reported; a manifest with more is not one."""

_MAX_PATH: Final = 200


@dataclass(frozen=True, slots=True)
class Part:
    """One object of the manifest, and where faults about it are noted."""

    values: Mapping[str, object]
    faults: dict[str, str]
    path: str = ""

    def fault(self, key: str, reason: str) -> None:
        """Notes what is wrong with a key; the first fault of a place stands."""
        if len(self.faults) < MAX_FAULTS:
            self.faults.setdefault(f"{self.path}{key}"[:_MAX_PATH], reason)

    def child(self, key: str) -> "Part":
        """The object under `key`; an empty one if it is absent or something else."""
        value = self.values.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            self.fault(key, "an object is required")
            value = {}
        return Part(value, self.faults, f"{self.path}{key}.")

    def only(self, known: frozenset[str], reasons: Mapping[str, str]) -> None:
        """Notes each key that is not known, with its own reason if it has one."""
        for key in self.values:
            if key not in known:
                self.fault(key[:64], reasons.get(key.lower(), "unknown key"))

    def text(self, key: str, limit: int) -> str:
        """Text of 1 to `limit` characters that can be stored and printed on one line."""
        value = self.values.get(key)
        if is_text(value, limit):
            return str(value)
        self.fault(key, f"a line of 1 to {limit} characters is required")
        return ""

    def one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        """One of a closed set of words; the first one if it is not."""
        value = self.values.get(key)
        if isinstance(value, str) and value in allowed:
            return value
        self.fault(key, f"one of {', '.join(allowed)} is required")
        return allowed[0]

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number between `low` and `high`, both included; the default if it is absent."""
        value = self.values.get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        number = float(str(value)) if is_number else math.nan
        if low <= number <= high:  # never true of what is not a number
            return number
        self.fault(key, f"a number from {low:g} to {high:g} is required")
        return default

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """As `number`, without a fraction."""
        value = self.values.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.fault(key, f"a whole number from {low} to {high} is required")
        return default

    def flag(self, key: str) -> bool:
        """True or false; false if it is absent."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            self.fault(key, "true or false is required")
        return value is True

    def lines(self, key: str, most: int, limit: int) -> tuple[str, ...]:
        """A list of at most `most` texts as of `text`; empty if it is absent."""
        value = self.values.get(key, [])
        if isinstance(value, list) and len(value) <= most and all(is_text(item, limit) for item in value):
            return tuple(value)
        self.fault(key, f"a list of at most {most} texts of 1 to {limit} characters is required")
        return ()


def is_text(value: object, limit: int) -> bool:
    """Whether a value is a line of 1 to `limit` characters without anything that cannot be printed."""
    return isinstance(value, str) and 1 <= len(value) <= limit and value.isprintable()
