"""The one redaction of the product: every outbox row, error log and log line passes here.

A field whose name looks like a credential is dropped; a value that looks like one becomes `***`.
The names are matched as substrings whatever their case, so a key such as `certificate` or `tokenizer` is
dropped too: name what must survive differently. Source: Event bridge, Redaction happens at the producer.
"""

import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Final, overload
from uuid import UUID

MASK: Final = "***"
"""What a credential-looking value becomes."""

MAX_DEPTH: Final = 32
"""Levels of lists and objects; what lies deeper becomes `[max depth]`."""

TOKEN_LENGTH: Final = 40
"""Characters without a delimiter from which a value counts as a token: four more than a uuid has."""

CREDENTIAL_PREFIXES: Final = ("sk-", "AKIA", "-----BEGIN")
"""A value that starts so is a credential, however short."""

CREDENTIAL_WORDS: Final = (
    "secret",
    "token",
    "password",
    "credential",
    r"api[-_. ]?key",
    r"private[-_. ]?key",
    r"access[-_. ]?key",
    "authorization",
    "bearer",
    "passphrase",
    "cert",
    r"ssh[-_. ]?key",
)
"""Twelve patterns; a key that contains one is dropped with its value."""

_CREDENTIAL_KEY: Final = re.compile("|".join(CREDENTIAL_WORDS), re.IGNORECASE)
_TOKEN: Final = re.compile(rf"[A-Za-z0-9+/=_-]{{{TOKEN_LENGTH},}}")
_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN_NAME: Final = re.compile(
    r"(?:(?:asset|job|run|service|step|target|url|vulnerability|worker|workspace)/)?"
    rf"{_UUID}(?:/[a-z0-9_-]{{1,32}}){{0,2}}"
)
"""Ids, workflow ids and event subjects: they may have 40 characters and more, and no credential looks so."""

_PEM_HEADER: Final = "-----BEGIN"
_PEM_BLOCK: Final = re.compile(r"-----BEGIN.*?(?:-----END[^\n-]*-----|\Z)", re.DOTALL)
_WORD: Final = re.compile(
    r"(?P<path>\b[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s\"'<>]+|(?<![A-Za-z0-9/_-])/[A-Za-z0-9/_-]+)"
    rf"|(?<![A-Za-z0-9_-])(?:sk-|AKIA)[A-Za-z0-9+/=_-]*|{_TOKEN.pattern}"
)
_SEGMENT: Final = re.compile(
    rf"(?<![A-Za-z0-9_-])(?:sk-|AKIA)[A-Za-z0-9+=_-]*|[A-Za-z0-9+=_-]{{{TOKEN_LENGTH},}}"
)
"""As `_WORD` inside a URL or an absolute path, where `/` parts words."""

_PLAIN: Final = (bool, int, float)
_CONTAINERS: Final = (dict, list, tuple, set, frozenset, Mapping)
"""The built-in ones first: nearly every value is one of these, and to ask for `Mapping` takes long."""

Scrubbed = bool | int | float | str | list["Scrubbed"] | dict[str, "Scrubbed"] | None
"""What comes out: plain JSON values in new containers."""


@overload
def scrub(value: Mapping[str, object]) -> dict[str, Scrubbed]: ...
@overload
def scrub(value: object) -> Scrubbed: ...
def scrub(value: object) -> Scrubbed:
    """A copy of `value` without credentials, made of JSON types only. Never changes its argument, idempotent.

    Bytes become `[n bytes]`, a cycle `[cycle]`, an unknown object its type's name (its repr could tell).
    """
    return _scrub(value, ())


def scrub_text(text: str) -> str:
    """`text` with each token-looking word in it masked: for error messages and log lines. Idempotent."""
    if len(text) < TOKEN_LENGTH and "sk-" not in text and "AKIA" not in text and _PEM_HEADER not in text:
        return text
    if _PEM_HEADER in text:
        text = _PEM_BLOCK.sub(MASK, text)
    return _WORD.sub(_mask_word, text)


@lru_cache(maxsize=4096)
def is_credential_name(key: str) -> bool:
    """Whether a field of this name is dropped whatever it holds."""
    return _CREDENTIAL_KEY.search(key) is not None


def _scrub(value: object, parents: tuple[int, ...]) -> Scrubbed:
    if isinstance(value, str):
        return _scrub_string(value if type(value) is str else str(value))
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, _CONTAINERS):
        return _scrub_container(value, parents)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if isinstance(value, UUID | datetime | date | Decimal | Enum):
        return _scrub_string(str(value))
    return type(value).__name__


def _scrub_container(
    value: Mapping[object, object] | list[object] | tuple[object, ...] | set[object] | frozenset[object],
    parents: tuple[int, ...],
) -> Scrubbed:
    if id(value) in parents:
        return "[cycle]"
    if len(parents) >= MAX_DEPTH:
        return "[max depth]"
    inside = (*parents, id(value))
    if isinstance(value, (dict, Mapping)):
        return _scrub_mapping(value, inside)
    items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
    return [_scrub(item, inside) for item in items]


def _scrub_mapping(values: Mapping[object, object], parents: tuple[int, ...]) -> Scrubbed:
    kept: dict[str, Scrubbed] = {}
    for key, value in values.items():
        name = key if isinstance(key, str) else str(_scrub(key, parents))
        if not is_credential_name(name):
            kept[_scrub_string(name)] = _scrub(value, parents)
    return kept


def _scrub_string(value: str) -> str:
    # blanks around it must not hide a credential
    bare = value.strip()
    if bare.startswith(CREDENTIAL_PREFIXES):
        return MASK
    if len(bare) < TOKEN_LENGTH:
        return value
    if _PEM_HEADER in bare or (_TOKEN.fullmatch(bare) and not _OWN_NAME.fullmatch(bare)):
        return MASK
    return value


def _mask_word(found: re.Match[str]) -> str:
    if found["path"]:
        return _SEGMENT.sub(lambda segment: _mask(segment.group()), found.group())
    return _mask(found.group())


def _mask(word: str) -> str:
    if word.startswith(CREDENTIAL_PREFIXES):
        return MASK
    # `job_id=<uuid>` is long only because `=` and `/` may also stand inside a token
    return MASK if _TOKEN.search(_OWN_NAME.sub(" ", word)) else word
