"""Entity tags: a change says which version of a thing it was made from, so that no change is lost unseen.

Source: RFC 9110 (If-Match), RFC 6585 (428).
"""

import re
from typing import Annotated, Final

from fastapi import Header

from runlane.errors import Stale, Unconditional

_TAG: Final = re.compile(r'"(\d{1,9})"\Z')

IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", max_length=100, description="`ETag` of the thing as it was read"),
]


def etag(version: int) -> str:
    """The tag of a version."""
    return f'"{version}"'


def version_in(if_match: str | None) -> int:
    """The version that a change was made from.

    Raises:
        Unconditional: `etag.required`, it does not say so.
        Stale: `etag.stale`, it says something that no version of ours is.
    """
    if if_match is None:
        raise Unconditional("say If-Match with the ETag of what you read")
    tag = _TAG.match(if_match)
    if tag is None:
        raise Stale("If-Match is no ETag of this thing")
    return int(tag[1])
