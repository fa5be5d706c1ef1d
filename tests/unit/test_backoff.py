"""Growing pauses, and a sleep that an event ends."""

import asyncio
from datetime import timedelta

from runlane.backoff import Backoff, pause

NO_SPREAD = (1.0, 1.0)
FIRST = timedelta(seconds=1)
MOST = timedelta(seconds=5)


def test_pauses_double_up_to_the_most() -> None:
    backoff = Backoff(FIRST, MOST, NO_SPREAD)

    assert [backoff.next().total_seconds() for _ in range(5)] == [1, 2, 4, 5, 5]


def test_pauses_begin_anew_after_a_success() -> None:
    backoff = Backoff(FIRST, MOST, NO_SPREAD)
    backoff.next()
    backoff.next()

    backoff.reset()

    assert backoff.next() == FIRST


def test_pauses_stay_inside_their_spread_however_often_something_failed() -> None:
    backoff = Backoff(FIRST, MOST, spread=(0.5, 1.0))

    pauses = [backoff.next() for _ in range(2_000)]

    assert FIRST / 2 <= pauses[0] <= FIRST
    assert all(MOST / 2 <= each <= MOST for each in pauses[3:])


async def test_pause_ends_with_the_first_event_and_says_so() -> None:
    early, late = asyncio.Event(), asyncio.Event()
    early.set()

    assert await pause(timedelta(hours=1), late, early)


async def test_pause_without_an_event_is_over_by_itself() -> None:
    assert not await pause(timedelta(milliseconds=1), asyncio.Event())
