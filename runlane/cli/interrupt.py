"""Ctrl-C and SIGTERM for commands that have started something and must stop it orderly."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def until_interrupted(work: Coroutine[object, object, ResultT]) -> ResultT | None:
    """Runs `work`; at the first signal cancels it, once, and waits for its orderly end. None: interrupted.

    Further signals change nothing: a second cancel would tear the orderly end itself.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    is_asked = False

    def stop() -> None:
        nonlocal is_asked
        if not is_asked:
            is_asked = True
            task.cancel()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
    try:
        await asyncio.wait([task])
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
    return None if is_asked and task.cancelled() else task.result()
