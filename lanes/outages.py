"""Outages of the servers that lanes live on: which errors are nobody's fault, and when to go on."""

from datetime import timedelta
from typing import Final

import asyncpg
from redis.exceptions import RedisError

from runlane.backoff import Backoff

FIRST_PAUSE: Final = timedelta(milliseconds=250)
MOST_PAUSE: Final = timedelta(seconds=5)


def new_backoff() -> Backoff:
    """Pauses of a loop or part that failed: a quarter of a second, doubled each time up to 5 s, ± 20 %."""
    return Backoff(FIRST_PAUSE, MOST_PAUSE)


def is_transient(error: BaseException) -> bool:
    """Whether a server was away, full or busy: later the same may go through, and no event is to blame."""
    if isinstance(error, asyncpg.InterfaceError):
        return not isinstance(error, ValueError)  # those are bad arguments
    return isinstance(
        error,
        OSError
        | RedisError
        | asyncpg.PostgresConnectionError
        | asyncpg.InsufficientResourcesError
        | asyncpg.OperatorInterventionError
        | asyncpg.TransactionRollbackError
        | asyncpg.InternalClientError,
    )
