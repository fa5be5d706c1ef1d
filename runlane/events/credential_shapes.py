"""Credentials inside a text: known shapes, and what stands where a credential belongs. Pure.

Only the credential is masked, what is around it stays readable. Cheap questions come first: nearly no text
has one, and every text of every event is asked. All patterns take time linear in the text.
Source: Event bridge, Redaction happens at the producer.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from runlane.events.credential_names import judge_name
from runlane.events.tokens import MASK

LEAST: Final = 8
"""Characters below which a text holds no credential but by its beginning."""

_LEAST_SHAPE: Final = 20

_PEM_HEADER: Final = "-----BEGIN"
_PEM_BLOCK: Final = re.compile(r"-----BEGIN.*?(?:-----END[^\n-]*-----|\Z)", re.DOTALL)

_RUN: Final = re.compile(r"(?:[A-Za-z0-9+/_-]{0,15}+[^A-Za-z0-9+/_-]++)*+[A-Za-z0-9+/_-]{16}")
"""Each shape has so many such characters in a row. To be matched from the start: one pass, no way back."""

_EDGE: Final = r"(?<![A-Za-z0-9].)"
_SERVICE: Final = r"[_-](?:live|test|proj|ant|or|svcacct|admin)[A-Za-z0-9_-]{16,}"
_SHAPES: Final = re.compile(
    # what differs is the first letter: a search passes over all others at once
    rf"(?:A{_EDGE}(?:3T[A-Z0-9]|BIA|CCA|GPA|IDA|IPA|KIA|NPA|NVA|ROA|SIA)[A-Z0-9]{{16,}}"
    rf"|A{_EDGE}Iza[A-Za-z0-9_-]{{30,}}|S{_EDGE}G\.[A-Za-z0-9_-]{{16,}}\.[A-Za-z0-9_-]{{16,}}"
    rf"|s{_EDGE}k{_SERVICE}|r{_EDGE}k{_SERVICE}|p{_EDGE}k{_SERVICE}"
    rf"|g{_EDGE}(?:h[pousr]_[A-Za-z0-9]{{20,}}|ithub_pat_[A-Za-z0-9_]{{20,}}|lpat-[A-Za-z0-9_.-]{{16,}})"
    rf"|x{_EDGE}(?:ox[abeoprs]|app)-[A-Za-z0-9-]{{11,}}|y{_EDGE}a29\.[A-Za-z0-9_-]{{16,}}"
    rf"|n{_EDGE}pm_[A-Za-z0-9]{{20,}}|p{_EDGE}ypi-[A-Za-z0-9_-]{{16,}}|h{_EDGE}f_[A-Za-z0-9]{{20,}}"
    rf"|d{_EDGE}op_v1_[a-f0-9]{{32,}}|s{_EDGE}hp(?:at|ca|pa|ss)_[A-Fa-f0-9]{{20,}}"
    rf"|w{_EDGE}hsec_[A-Za-z0-9+/=]{{16,}}"
    rf"|r{_EDGE}l(?:_[a-z0-9]{{4,16}}|w_[0-9a-f]{{32}})_[A-Za-z0-9_-]{{30,}}"
    rf"|e{_EDGE}yJ[A-Za-z0-9_-]{{13,}}(?:\.[A-Za-z0-9_-]+){{1,4}}\.?"
    r")[A-Za-z0-9]*"
)
"""Keys of well-known services and of our own, JSON web tokens."""

_BOT: Final = re.compile(r"(?<![A-Za-z0-9])[0-9]{6,12}:[A-Za-z0-9_-]{35,}")
"""A token of a chat bot."""

_USER: Final = re.compile(r"(?<=://)(?P<user>[^\s/:@?#\"'<>]{0,128}):[^\s/?#\"'<>]{1,1024}@")
_TOKEN_AS_USER: Final = re.compile(r"(?<=://)[A-Za-z0-9_.~%+-]{20,256}@")
_HOOK: Final = re.compile(
    r"(?P<host>hooks\.slack\.com)/[a-z]{4,16}/[^\s\"'<>]+"
    r"|(?P<chat>discord(?:app)?\.com)/api/(?:v[0-9]{1,3}/)?webhooks/[^\s\"'<>]+"
    r"|(?P<bot>api\.telegram\.org)/(?:file/)?bot[^\s\"'<>]+"
    r"|(?P<office>webhook\.office\.com)/[^\s\"'<>]+"
)
_SCHEME: Final = re.compile(
    r"(?P<scheme>[Bb](?:[Ee][Aa][Rr][Ee][Rr]|[Aa][Ss][Ii][Cc])[ \t]{1,4})"
    r"(?=[A-Za-z._~+/-]{0,256}(?:[0-9=]|(?<=[a-z])[A-Z]))[A-Za-z0-9._~+/=-]{6,}"
)
"""`Bearer`, `Basic` and a token; not the words "basic authentication"."""

_SIGNED: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?P<name>[A-Za-z][A-Za-z0-9_.-]{0,127})(?P<sign>\\*[\"']?[ \t]?[=:][ \t]?)"
)
_VALUE: Final = re.compile(
    r"\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?|\\+[\"'][^\"'\\\n]*|[^\s\"'&<>\\]*[^\s\"'&<>\\,;)}\]]"
)
_BRACKET: Final = re.compile(r"[{}\[\]\n]")
_HEADER_VALUE: Final = re.compile(
    r"\\*[\"']?(?:(?:Bearer|Basic|Digest|Negotiate|Token)[ \t]+)?(?P<value>[^\r\n\"'\\]+)"
)
_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})
_QUERY: Final = frozenset({"key", "sig", "signature", "code", "auth", "pass"})
_AMAZON: Final = ("x-amz-credential", "x-amz-signature", "x-amz-security-token")


_HINT: Final = re.compile(
    "secret|token|passw|passphrase|pwd|credential|cert|authorization|bearer|cookie|key"
    "|pass=|auth=|sig=|signature|code="
)
"""One of these is in the name of each field whose value is masked."""


def has_shape(text: str) -> bool:
    """Whether a key of a well-known service is in it."""
    return _RUN.match(text) is not None and (_SHAPES.search(text) or _BOT.search(text)) is not None


def mask_inside(text: str) -> str:
    """`text` with the credentials in it masked: keys in PEM, known shapes, parts of URLs, headers and fields.

    Idempotent.
    """
    size = len(text)
    has_sign = "=" in text or ":" in text
    if size < _LEAST_SHAPE and not has_sign and " " not in text:
        return text
    if _PEM_HEADER in text:
        text = _PEM_BLOCK.sub(MASK, text)
    if size >= _LEAST_SHAPE and _RUN.match(text):
        text = _SHAPES.sub(MASK, text)
        if ":" in text:
            text = _BOT.sub(MASK, text)
    if "/" in text:
        text = _mask_url_parts(text)
    lowered = text.lower()
    if "bearer" in lowered or "basic" in lowered:
        text = _SCHEME.sub(_scheme, text)
    return _mask_fields(text) if has_sign and _HINT.search(lowered) else text


def _mask_url_parts(text: str) -> str:
    if "hook" in text or "/bot" in text:
        text = _HOOK.sub(_hook, text)
    if "@" in text and "://" in text:
        text = _TOKEN_AS_USER.sub(f"{MASK}@", _USER.sub(_user, text))
    return text


def _hook(found: re.Match[str]) -> str:
    host = found["host"] or found["chat"] or found["bot"] or found["office"]
    return f"{host}/{MASK}"


def _scheme(found: re.Match[str]) -> str:
    return found["scheme"] + MASK


def _user(found: re.Match[str]) -> str:
    return f"{found['user']}:{MASK}@"


def _mask_fields(text: str) -> str:
    """Masks the value of each `name=value`, `"name": value` and header whose name is that of a credential."""
    parts: list[str] = []
    kept = position = 0
    while found := _SIGNED.search(text, position):
        position = found.end()
        mask = _way_to_mask(found)
        if mask is None:
            continue
        masked, end = mask(text, position)
        if end > position:
            parts += [text[kept:position], masked]
            kept = position = end
    return "".join([*parts, text[kept:]]) if parts else text


_Way = Callable[[str, int], tuple[str, int]]
"""Takes a text and where a value begins in it; answers what takes its place, and where it ended."""


def _way_to_mask(found: re.Match[str]) -> _Way | None:
    name, sign, text = found["name"], found["sign"], found.string
    if ":" in sign and '"' not in sign and "'" not in sign:
        lowered = name.lower()
        if lowered in _HEADERS or (lowered.startswith("x-") and _is_credential(name)):
            return _mask_header
        if text[found.end() : found.end() + 1] not in ("'", '"', "\\"):
            return None
    if _is_credential(name):
        return _mask_header if name.lower() in _HEADERS else _mask_value
    before = text[found.start() - 1] if found.start() else ""
    if before in ("?", "&") and (name.lower() in _QUERY or name.lower().startswith(_AMAZON)):
        return _mask_value
    return None


@lru_cache(maxsize=4096)
def _is_credential(name: str) -> bool:
    return judge_name(name).is_credential


def _mask_value(text: str, start: int) -> tuple[str, int]:
    if text.startswith(("{", "["), start):
        return MASK, _closing(text, start)
    found = _VALUE.match(text, start)
    if found is None:
        return "", start
    value = found.group()
    if value[0] == "\\":
        bare = value.lstrip("\\")
        return f"{value[: len(value) - len(bare) + 1]}{MASK}", found.end()
    quote = value[0] if value[0] in "\"'" else ""
    return f"{quote}{MASK}{quote}", found.end()


def _closing(text: str, start: int) -> int:
    """Where the object or list that begins there ends: at its bracket, or with the line."""
    depth = 0
    for found in _BRACKET.finditer(text, start):
        if found.group() == "\n":
            return found.start()
        depth += 1 if found.group() in "{[" else -1
        if depth == 0:
            return found.end()
    return len(text)


def _mask_header(text: str, start: int) -> tuple[str, int]:
    found = _HEADER_VALUE.match(text, start)
    return (text[start : found.start("value")] + MASK, found.end()) if found else ("", start)
