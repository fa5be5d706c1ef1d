"""Long tokens: which words of 40 characters and more are credentials, and which only look long. Pure.

A hash and a secret in hexadecimal are the same characters, so what stands around one decides.
Source: Event bridge, Redaction happens at the producer.
"""

import re
from collections.abc import Callable
from typing import Final

from runlane.events.credential_names import judge_name

MASK: Final = "***"
"""What a credential-looking value becomes."""

TOKEN_LENGTH: Final = 40
"""Characters without a delimiter from which a value counts as a token: four more than a uuid has."""

CREDENTIAL_PREFIXES: Final = ("sk-", "AKIA", "-----BEGIN")
"""A value that starts so is a credential, however short."""

MAX_ODD: Final = 16
"""Characters of a long identifier that may be in parts which are no words: `-7d4b9c6f5-`."""

TOKEN: Final = re.compile(rf"[A-Za-z0-9+/=_-]{{{TOKEN_LENGTH},}}")
"""A long text without a delimiter."""

_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN_NAME: Final = re.compile(
    r"(?:(?:asset|job|run|service|step|target|url|vulnerability|worker|workspace)/)?"
    rf"{_UUID}(?:/[a-z0-9_-]{{1,32}}){{0,2}}"
)
"""Ids, workflow ids and event subjects: they may have 40 characters and more, and no credential looks so."""

_HEX: Final = re.compile(r"[0-9a-fA-F]+")
_SRI: Final = re.compile(
    r"sha1-(?:[0-9a-f]{40}|[A-Za-z0-9+/]{27}=)|sha256-(?:[0-9a-f]{64}|[A-Za-z0-9+/]{43}=)"
    r"|sha384-(?:[0-9a-f]{96}|[A-Za-z0-9+/]{64})|sha512-(?:[0-9a-f]{128}|[A-Za-z0-9+/]{86}==)"
)
"""A hash that says what it is, in exactly its length."""

_PARTS: Final = re.compile(r"[-_/=]")
_WORDLIKE: Final = re.compile(
    r"(?:[a-z]{1,39}|[A-Z]{1,39}|[0-9]{1,39}|(?=.{1,19}\Z)[A-Z]?[a-z]+(?:[A-Z][a-z]+){0,4}[0-9]{0,4})"
)
"""A part of an identifier: letters of one case, digits, or a few capitalised words."""

_HASH_LABEL: Final = re.compile(
    r"(?:sha-?[0-9]{1,3}|md5|hash|digest|fingerprint|thumbprint|checksum|jarm|commit|serial|etag|favicon)"
    r"[\"']?[ \t]{0,2}[:=]?[ \t]{0,2}[\"']?\Z",
    re.IGNORECASE,
)
_LABEL_LENGTH: Final = 24

_WORD: Final = re.compile(
    r"(?P<path>\b[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s\"'<>]+|(?<![A-Za-z0-9/_-])/[A-Za-z0-9/_-]+(?![A-Za-z0-9/_+=-]))"
    rf"|(?<![A-Za-z0-9_-])(?:sk-|AKIA)[A-Za-z0-9+/=_-]*|{TOKEN.pattern}"
)
_SEGMENT: Final = re.compile(
    rf"(?<![A-Za-z0-9_-])(?:sk-|AKIA)[A-Za-z0-9+=_-]*|[A-Za-z0-9+=_-]{{{TOKEN_LENGTH},}}"
)
"""As `_WORD` inside a URL or an absolute path, where `/` parts words."""

Judge = Callable[[str, bool], bool]
"""Whether a long word is a credential; the second argument says that a hash is expected at its place."""


def is_own_name(text: str) -> bool:
    """Whether it is an id of ours, alone or as the subject of an event."""
    return _OWN_NAME.fullmatch(text) is not None


def is_hexadecimal(text: str) -> bool:
    """Whether it has hexadecimal digits only."""
    return _HEX.fullmatch(text) is not None


def looks_random(word: str, is_hash: bool) -> bool:
    """Whether a long word is a credential rather than a number, a hash or an identifier made of words."""
    if _HEX.fullmatch(word):
        return not (is_hash or word.isdecimal())
    if _SRI.fullmatch(word):
        return False
    return _is_odd([part for part in _PARTS.split(word) if part])


def _is_odd(parts: list[str]) -> bool:
    return sum(len(part) for part in parts if not _WORDLIKE.fullmatch(part)) > MAX_ODD


def mask_words(text: str, is_token: Judge) -> str:
    """`text` with each word masked that is a long token or begins like a credential. Idempotent."""
    if len(text) < TOKEN_LENGTH and "sk-" not in text and "AKIA" not in text:
        return text
    return _WORD.sub(lambda found: _mask_word(found, is_token), text)


def _mask_word(found: re.Match[str], is_token: Judge) -> str:
    path = found["path"]
    if path:
        masked = _SEGMENT.sub(lambda segment: _mask_segment(segment, is_token), path)
        return MASK if masked == path and _only_looks_like_a_path(path) else masked
    before = found.string[max(0, found.start() - _LABEL_LENGTH) : found.start()]
    return _mask(found.group(), is_token, is_hash=_HASH_LABEL.search(before) is not None)


def _only_looks_like_a_path(path: str) -> bool:
    """Whether it is base64 that begins with a slash: nearly none of its parts is a word or a digest."""
    if len(path) < TOKEN_LENGTH or not path.startswith("/"):
        return False
    return _is_odd([part for part in _PARTS.split(path) if part and not _HEX.fullmatch(part)])


def _mask_segment(found: re.Match[str], is_token: Judge) -> str:
    # the name of a file is often its digest
    is_name = found.start() > 0 and found.string[found.start() - 1] == "/"
    return _mask(found.group(), is_token, is_hash=is_name)


def _mask(word: str, is_token: Judge, *, is_hash: bool) -> str:
    if word.startswith(CREDENTIAL_PREFIXES):
        return MASK
    # `job_id=<uuid>` is long only because `=` and `/` may also stand inside a token
    if not TOKEN.search(_OWN_NAME.sub(" ", word)):
        return word
    name, _, value = word.partition("=")
    if is_hexadecimal(value) and judge_name(name).is_hash:
        return MASK if is_token(value, True) else word
    return MASK if is_token(word, is_hash) else word
