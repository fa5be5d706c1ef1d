"""When a loop of a lane goes on after an error, and which errors are nobody's fault."""

import asyncio
import random
from datetime import timedelta
from typing import Final

import asyncpg
from redis.exceptions import RedisError

FIRST: Final = timedelta(milliseconds=250)
CAP: Final = timedelta(seconds=5)
JITTER: Final = 0.2


class Backoff:
    """Growing pauses: a quarter of a second, doubled each time up to 5 s, ± 20 %."""

    def __init__(self) -> None:
        self._failures = 0

    def next(self) -> timedelta:
        """Counts a failure and returns how long to pause."""
        base: timedelta = min(FIRST * 2 ** min(self._failures, 10), CAP)
        self._failures += 1
        return base * (1 + random.uniform(-JITTER, JITTER))  # noqa: S311  # no secret hangs on it

    def reset(self) -> None:
        """Forgets past failures."""
        self._failures = 0


async def pause(duration: timedelta, *events: asyncio.Event) -> bool:
    """Sleeps, but not longer than until one of the events; returns whether one came."""
    waiters = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(
            waiters, timeout=duration.total_seconds(), return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for waiter in waiters:
            waiter.cancel()
    return bool(done)


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
