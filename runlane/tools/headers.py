"""Headers that a step adds to its requests: names and values as HTTP allows them. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from runlane.secret_refs import is_reference

MAX_HEADERS: Final = 20
MAX_VALUE: Final = 8_192

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_OURS: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "upgrade", "accept-encoding"}
)
"""Headers that say where a request goes and how it is framed: these are the client's own business."""


class MalformedHeaders(ValueError):
    """The headers cannot be sent; the text names none of the values."""


def read_headers(value: object) -> dict[str, str]:
    """Reads headers whose secrets have their values.

    Raises:
        MalformedHeaders: they are no object of texts, too many or too long, or one may not be set.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) > MAX_HEADERS:
        raise MalformedHeaders(f"an object of at most {MAX_HEADERS} names and texts expected")
    for name, each in value.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.lower() in _OURS:
            raise MalformedHeaders(f"{str(name)[:100]!r} is no header that may be set")
        if not isinstance(each, str) or len(each) > MAX_VALUE or not _VALUE.fullmatch(each):
            raise MalformedHeaders(f"the value of {name}: a line of text expected")
    return dict(value)


def headers_fault(value: object) -> str | None:
    """What is wrong with headers that may still refer to secrets; None if nothing is."""
    if isinstance(value, Mapping):
        value = {name: "" if is_reference(each) else each for name, each in value.items()}
    try:
        read_headers(value)
    except MalformedHeaders as error:
        return str(error)
    return None
