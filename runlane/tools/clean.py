"""The one gate for foreign JSON: after it, a value fits JSON, PostgreSQL `jsonb`/`text` and memory.

Tools report what hostile hosts told them: NUL and lone surrogates (which PostgreSQL refuses), NaN, integers
of a million digits, thousands of levels of nesting, megabytes in a title. One such value must cost its own
record a few characters, never the result of the scan.
"""

import math
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_DEPTH: Final = 16
"""Levels of lists and objects; what lies deeper becomes null."""

MAX_STRING_BYTES: Final = 64 * 1024
"""UTF-8 bytes of one string."""

MAX_KEY_BYTES: Final = 1024
"""UTF-8 bytes of one object key."""

MAX_ITEMS: Final = 10_000
"""Elements of one list or object; the rest is dropped."""

MAX_TOTAL_BYTES: Final = 4 * 1024 * 1024
"""Budget of one value: a byte per UTF-8 byte and one more per node. What comes after is dropped."""

_INT64: Final = 2**63
_MAX_INT_BITS: Final = 4096  # str() of much longer ones is quadratic, and refused above 4,300 digits
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


@dataclass(slots=True)
class _Budget:
    left: int

    def take(self, size: int) -> bool:
        """Charges `size` if that much is left."""
        if size > self.left:
            return False
        self.left -= size
        return True


def clean(value: object) -> JsonValue:
    """A storable copy of any JSON value. Never raises, never changes its argument, idempotent.

    NUL and lone surrogates become U+FFFD, non-finite numbers null, integers beyond 64 bit text; depth,
    strings, lists and the whole are cut to the limits of this module. What is no JSON value becomes null.
    """
    return _clean(value, MAX_DEPTH, _Budget(MAX_TOTAL_BYTES))


def is_unstorable(text: str) -> bool:
    """Whether a text has characters that PostgreSQL refuses: NUL, or half of a surrogate pair."""
    return _UNSTORABLE.search(text) is not None


def clean_text(text: str, max_bytes: int = MAX_STRING_BYTES) -> str:
    """`text` without unstorable characters, cut to `max_bytes` of UTF-8 at a character's border."""
    storable = _UNSTORABLE.sub("\ufffd", text[:max_bytes])
    encoded = storable.encode()
    if len(encoded) <= max_bytes:
        return storable
    return encoded[:max_bytes].decode(errors="ignore")


def _clean(value: object, depth: int, budget: _Budget) -> JsonValue:
    budget.take(1)
    match value:
        case bool() | None:
            return value
        case int():
            return _clean_integer(value, budget)
        case float():
            return value if math.isfinite(value) else None
        case str():
            return _clean_string(value, budget)
        case list() | tuple() if depth:
            return _clean_list(value, depth - 1, budget)
        case dict() if depth:
            return _clean_object(value, depth - 1, budget)
        case _:
            return None


def _clean_integer(value: int, budget: _Budget) -> JsonValue:
    if -_INT64 <= value < _INT64:
        return int(value)
    if value.bit_length() <= _MAX_INT_BITS:
        return _clean_string(str(value), budget)
    return _clean_string(f"integer of {value.bit_length()} bits", budget)


def _clean_string(value: str, budget: _Budget) -> str:
    text = clean_text(value, min(MAX_STRING_BYTES, budget.left))
    budget.take(len(text.encode()))
    return text


def _clean_list(values: list[object] | tuple[object, ...], depth: int, budget: _Budget) -> JsonValue:
    kept: list[JsonValue] = []
    for value in values[:MAX_ITEMS]:
        if not budget.left:
            break
        kept.append(_clean(value, depth, budget))
    return kept


def _clean_object(values: dict[object, object], depth: int, budget: _Budget) -> JsonValue:
    kept: dict[str, JsonValue] = {}
    for key, value in values.items():
        if len(kept) >= MAX_ITEMS:
            break
        name = clean_text(key if isinstance(key, str) else str(type(key).__name__), MAX_KEY_BYTES)
        # one more byte than the name: its value must at least be able to be null
        if name in kept or not budget.take(len(name.encode()) + 1):
            continue
        kept[name] = _clean(value, depth, budget)
    return kept
