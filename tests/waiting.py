"""Waiting for what other processes bring about. Nothing announces it, so it is looked for."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable

WAIT_S = 60.0
LOOK_S = 0.02


async def until(condition: Callable[[], object | Awaitable[object]], limit_s: float = WAIT_S) -> None:
    """Waits until a condition holds; it may be asked on servers, so it may be awaitable.

    Raises:
        TimeoutError: not within `limit_s`, which fails the test.
    """
    async with asyncio.timeout(limit_s):
        while not await _answer(condition):  # noqa: ASYNC110  # see above
            await asyncio.sleep(LOOK_S)


async def _answer(condition: Callable[[], object | Awaitable[object]]) -> object:
    found = condition()
    return await found if isawaitable(found) else found
