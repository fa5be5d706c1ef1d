"""Which versions of the worker protocol go together.

Servers are upgraded first, scan hosts after them and one by one: an API speaks its own version and the one
before. A worker that is ahead of its API is refused, since nobody knows yet what it will say.
"""

from enum import StrEnum


class Skew(StrEnum):
    """How the protocol of a worker stands to that of the API."""

    NONE = "none"
    BEHIND = "behind"  # works, and is to be upgraded before the next version of the API
    TOO_OLD = "too old"
    TOO_NEW = "too new"


def skew_of(worker: int, api: int) -> Skew:
    """Judges the version that a worker speaks by the one that the API speaks."""
    match api - worker:
        case 0:
            return Skew.NONE
        case 1:
            return Skew.BEHIND
        case behind if behind > 0:
            return Skew.TOO_OLD
        case _:
            return Skew.TOO_NEW
