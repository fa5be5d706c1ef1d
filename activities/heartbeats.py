"""Heartbeats of an activity that is at work for longer than a moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from temporalio import activity

BEAT_EVERY_S: Final = 2.0


@asynccontextmanager
async def beating() -> AsyncIterator[None]:
    """Beats every two seconds for the length of the block, as long as the event loop lives."""
    beats = asyncio.create_task(_beat_forever())
    try:
        yield
    finally:
        beats.cancel()


async def _beat_forever() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(BEAT_EVERY_S)
