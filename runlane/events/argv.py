"""Redaction of argument lists, which a credential may enter in more ways than a field of an event. Pure."""

import re
from collections.abc import Sequence
from typing import Final

import orjson

from runlane.events.credential_shapes import has_shape
from runlane.events.scrub import is_credential_name, scrub, scrub_text
from runlane.events.tokens import CREDENTIAL_PREFIXES, MASK, TOKEN_LENGTH

_NAMED: Final = re.compile(
    r"(?P<name>-{0,2}[A-Za-z][A-Za-z0-9_.-]{0,63})(?P<sign>=|:\s?)(?P<value>.*)", re.DOTALL
)
_USER: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_PIECE: Final = re.compile(r"[A-Za-z0-9+/=_-]+")
_STEMS: Final = (
    "secret",
    "token",
    "passw",
    "passphrase",
    "pwd",
    "credential",
    "key",
    "authorization",
    "bearer",
    "cookie",
    "cert",
)
"""Each name of a credential has one of these in it (asserted by a test)."""

_URL_SIGNS: Final = ("sig=", "signature=", "code=", "pass=", "auth=", "hook", "/bot")
_SIGNS: Final = (*_STEMS, *_URL_SIGNS, *(prefix.lower() for prefix in CREDENTIAL_PREFIXES), "@", "\\")
"""A backslash may hide a name in the text of a JSON object."""


def scrub_argv(argv: Sequence[str]) -> list[str]:
    """A copy of an argument list without credentials. Idempotent.

    Masked are: the value after a flag that is named like a credential, the value of `name=value` and of
    `Name: value` (a header), the user part of a URL, fields of a JSON object, words that look like a token.
    """
    scrubbed: list[str] = []
    is_value_of_credential = False
    for argument in argv:
        is_flag = argument.startswith("-")
        if is_value_of_credential and not is_flag:
            scrubbed.append(MASK)
        else:
            scrubbed.append(_scrub_argument(argument))
        is_value_of_credential = is_flag and "=" not in argument and is_credential_name(argument)
    return scrubbed


def _scrub_argument(argument: str) -> str:
    if not _is_suspicious(argument):
        return argument
    if argument.startswith("{"):
        try:
            return orjson.dumps(scrub(orjson.loads(argument))).decode()
        except orjson.JSONDecodeError:
            pass  # then it is a text like any other
    named = _NAMED.fullmatch(argument)
    if named and named["value"] and is_credential_name(named["name"]):
        return f"{named['name']}{named['sign']}{MASK}"
    return scrub_text(_USER.sub(MASK, argument))


def _is_suspicious(argument: str) -> bool:
    """Whether a credential may be in it at all. Nearly none is, and every job of a probe has an argument."""
    lowered = argument.lower()
    if any(sign in lowered for sign in _SIGNS) or has_shape(argument):
        return True
    return any(len(piece) >= TOKEN_LENGTH for piece in _PIECE.findall(argument))
