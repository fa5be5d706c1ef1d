"""Redaction of argument lists, which a credential may enter in more ways than a field of an event. Pure."""

import re
from collections.abc import Sequence
from typing import Final

import orjson

from runlane.events.scrub import MASK, is_credential_name, scrub, scrub_text

_NAMED: Final = re.compile(
    r"(?P<name>-{0,2}[A-Za-z][A-Za-z0-9_.-]{0,63})(?P<sign>=|:\s?)(?P<value>.*)", re.DOTALL
)
_USER: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_COOKIE: Final = "cookie"


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
        is_value_of_credential = is_flag and "=" not in argument and _is_credential(argument)
    return scrubbed


def _scrub_argument(argument: str) -> str:
    if argument.startswith("{"):
        try:
            return orjson.dumps(scrub(orjson.loads(argument))).decode()
        except orjson.JSONDecodeError:
            pass  # then it is a text like any other
    named = _NAMED.fullmatch(argument)
    if named and named["value"] and _is_credential(named["name"]):
        return f"{named['name']}{named['sign']}{MASK}"
    return scrub_text(_USER.sub(MASK, argument))


def _is_credential(name: str) -> bool:
    return is_credential_name(name) or _COOKIE in name.lower()
