"""The one redaction of the product: every outbox row, error log and log line passes here.

A field whose name is that of a credential is dropped, a value that looks like one becomes `***`, and so does
one inside a text. The precise rule reads names as words and knows what is a hash; strict mode applies the
document's literal rule as well. Source: Event bridge, Redaction happens at the producer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from math import isfinite
from typing import Final, overload
from uuid import UUID

from runlane.events.credential_names import judge_name
from runlane.events.credential_shapes import LEAST, mask_inside
from runlane.events.literal import is_credential, is_named_like_a_credential, mask_words_literally
from runlane.events.tokens import (
    CREDENTIAL_PREFIXES,
    MASK,
    TOKEN,
    TOKEN_LENGTH,
    is_hexadecimal,
    is_own_name,
    looks_random,
    mask_words,
)

MAX_DEPTH: Final = 32
"""Levels of lists and objects; what lies deeper becomes `[max depth]`."""

MAX_SCANNED: Final = 65_536
"""Characters of one text that are looked at; what comes after them is dropped."""

CUT_MARK: Final = "\n[cut]"
"""Stands where the rest of a text was dropped."""

_UUID_LENGTH: Final = 36
_CACHED_NAME: Final = 128
_KNOWN: Final = 4096
_HASH_REACH: Final = 2
"""A name of a hash speaks for its value, and for the values of an object right below it."""

_WHOLE: Final = (int, bool)
_LISTS: Final = (list, tuple)
_SETS: Final = (set, frozenset)
_CONTAINERS: Final = (dict, *_LISTS, *_SETS, Mapping)
"""The built-in ones first: nearly every value is one of these, and to ask for `Mapping` takes long."""

Container = Mapping[object, object] | list[object] | tuple[object, ...] | set[object] | frozenset[object]

Scrubbed = bool | int | float | str | list["Scrubbed"] | dict[str, "Scrubbed"] | None
"""What comes out: plain JSON values in new containers."""


class Redaction(StrEnum):
    """How much is taken for a credential."""

    PRECISE = "precise"
    STRICT = "strict"


@dataclass(frozen=True, slots=True)
class Scrub:
    """What is left of a value, and the paths of the fields that were dropped (`changes.password`)."""

    value: Scrubbed
    dropped: tuple[str, ...]


@dataclass(slots=True)
class _Rule:
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class _Key:
    """What is known of a field by its name. `shown`: the name as it comes out."""

    shown: str
    is_dropped: bool
    is_hash: bool


_rule: Final = _Rule()
_known: Final[dict[str, _Key]] = {}
"""What was found out about names, under the rule of this process."""


def use_redaction(mode: Redaction) -> None:
    """Sets the mode of this process, once, at its start: every door is under the same rule."""
    _rule.is_strict = mode is Redaction.STRICT
    _known.clear()


@overload
def scrub(value: Mapping[str, object]) -> dict[str, Scrubbed]: ...
@overload
def scrub(value: object) -> Scrubbed: ...
def scrub(value: object) -> Scrubbed:
    """A copy of `value` without credentials, made of JSON types only. Never changes its argument, idempotent.

    Bytes become `[n bytes]`, a cycle `[cycle]`, an unknown object its type's name (its repr could tell).
    """
    return _Walk().of(value, 0)


def scrub_with_paths(value: object) -> Scrub:
    """As `scrub`, and which fields it dropped."""
    walk = _Walk()
    scrubbed = walk.of(value, 0)
    return Scrub(scrubbed, tuple(walk.dropped))


def scrub_text(text: str) -> str:
    """`text` with each credential and long token in it masked: for errors and log lines. Idempotent."""
    masked = mask_words(mask_inside(text[:MAX_SCANNED]), looks_random)
    if _rule.is_strict:
        masked = mask_words_literally(masked)
    return _cut(masked) if len(text) > MAX_SCANNED or len(masked) > MAX_SCANNED else masked


def is_credential_name(key: str) -> bool:
    """Whether a field of this name is dropped whatever it holds."""
    return _key(key).is_dropped


class _Walk:
    """One pass over one value."""

    __slots__ = ("_parents", "_trail", "dropped")

    def __init__(self) -> None:
        self.dropped: list[str] = []
        self._parents: list[int] = []
        self._trail: list[str] = []

    def of(self, value: object, reach: int) -> Scrubbed:
        """The value without credentials; a hash is expected while `reach` is positive."""
        if isinstance(value, str):
            return _scrub_string(value if type(value) is str else str(value), reach > 0)
        if value is None or isinstance(value, _WHOLE):
            return value
        if isinstance(value, _CONTAINERS):
            return self._container(value, reach)
        if isinstance(value, float):
            return value if isfinite(value) else None
        if isinstance(value, bytes | bytearray | memoryview):
            return f"[{len(value)} bytes]"
        if isinstance(value, UUID | datetime | date | Decimal | Enum):
            return _scrub_string(str(value), reach > 0)
        return type(value).__name__

    def _container(self, value: Container, reach: int) -> Scrubbed:
        if id(value) in self._parents:
            return "[cycle]"
        if len(self._parents) >= MAX_DEPTH:
            return "[max depth]"
        self._parents.append(id(value))
        try:
            return self._inside(value, reach)
        finally:
            self._parents.pop()

    def _inside(self, value: Container, reach: int) -> Scrubbed:
        if isinstance(value, dict):
            return self._mapping(value, reach - 1)
        if isinstance(value, _SETS):
            return self._items(sorted(value, key=str), reach)
        if isinstance(value, _LISTS):
            return self._items(value, reach)
        return self._mapping(value, reach - 1)

    def _items(self, items: list[object] | tuple[object, ...], reach: int) -> Scrubbed:
        is_hash = reach > 0
        return [_scrub_string(item, is_hash) if type(item) is str else self.of(item, reach) for item in items]

    def _mapping(self, values: Mapping[object, object], reach: int) -> Scrubbed:
        kept: dict[str, Scrubbed] = {}
        for name, value in values.items():
            key = _key(name if isinstance(name, str) else str(self.of(name, 0)))
            if key.is_dropped:
                self.dropped.append(".".join([*self._trail, key.shown]))
                continue
            inside = _HASH_REACH if key.is_hash else reach
            if type(value) is str:
                kept[key.shown] = _scrub_string(value, inside > 0)
            elif value is None or isinstance(value, _WHOLE):
                kept[key.shown] = value
            else:
                self._trail.append(key.shown)
                kept[key.shown] = self.of(value, inside)
                self._trail.pop()
        return kept


def _key(name: str) -> _Key:
    key = _known.get(name)
    if key is None:
        key = _read_key(name)
        # a long name is none of ours: it is not worth its memory
        if len(name) <= _CACHED_NAME:
            if len(_known) >= _KNOWN:
                _known.clear()
            _known[name] = key
    return key


def _read_key(name: str) -> _Key:
    shown = _scrub_string(name, False)
    judged = judge_name(shown)
    is_dropped = judged.is_credential or (shown != name and judge_name(name).is_credential)
    if _rule.is_strict:
        is_dropped = is_dropped or is_named_like_a_credential(name)
    return _Key(shown, is_dropped, judged.is_hash)


def _scrub_string(value: str, is_hash: bool) -> str:
    # blanks around it must not hide a credential
    if value.lstrip().startswith(CREDENTIAL_PREFIXES) or (_rule.is_strict and is_credential(value)):
        return MASK
    size = len(value)
    if size < LEAST or (size == _UUID_LENGTH and value[8] == "-" and is_own_name(value)):
        return value
    if is_hash and is_hexadecimal(value) and not _rule.is_strict:
        return value
    masked = mask_inside(value if size <= MAX_SCANNED else value[:MAX_SCANNED])
    if size >= TOKEN_LENGTH and _is_token(masked.strip(), is_hash):
        return MASK
    return _cut(masked) if size > MAX_SCANNED or len(masked) > MAX_SCANNED else masked


def _is_token(bare: str, is_hash: bool) -> bool:
    return bool(TOKEN.fullmatch(bare)) and not is_own_name(bare) and looks_random(bare, is_hash)


def _cut(text: str) -> str:
    """The beginning of a long text, with a mark. What a mask is cut in half of is taken away with it."""
    return text[: MAX_SCANNED - len(CUT_MARK)].rstrip("*\"'\\") + CUT_MARK
