"""When a loop goes on after a failure: growing pauses, and a sleep that an event ends."""

import asyncio
import random
from datetime import timedelta

MOST_DOUBLINGS = 16
"""Beyond these any limit has long been reached."""


class Backoff:
    """Growing pauses: `first`, doubled with each failure up to `most`, times a random factor from `spread`.

    The spread keeps those apart who failed at the same moment.
    """

    def __init__(self, first: timedelta, most: timedelta, spread: tuple[float, float] = (0.8, 1.2)) -> None:
        self._first = first
        self._most = most
        self._spread = spread
        self._failures = 0

    def next(self) -> timedelta:
        """Counts a failure and returns how long to pause."""
        base: timedelta = min(self._first * 2 ** min(self._failures, MOST_DOUBLINGS), self._most)
        self._failures += 1
        return base * random.uniform(*self._spread)  # noqa: S311  # no secret hangs on it

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
