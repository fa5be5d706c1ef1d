"""Removes the containers of a worker that was killed: `python -m runlane.scan.orphans ENGINE INCARNATION`."""

import asyncio
import sys
from typing import Final

from runlane import names
from runlane.containers.engine import Engine
from runlane.errors import Invalid, Unavailable

_TRIES: Final = 60
_PAUSE_S: Final = 5.0
_CALLS_ON_THEIR_WAY_S: Final = 3.0
"""A container that the worker had asked for when it died may be made a little later."""


async def remove_orphans(engine_url: str, incarnation: str) -> None:
    """Removes them, and looks once more; tries again while the engine is away."""
    for _ in range(_TRIES):
        try:
            await _remove(engine_url, incarnation)
            await asyncio.sleep(_CALLS_ON_THEIR_WAY_S)
            await _remove(engine_url, incarnation)
        except (Invalid, Unavailable):
            await asyncio.sleep(_PAUSE_S)
        else:
            return


async def _remove(engine_url: str, incarnation: str) -> None:
    engine = await Engine.open(engine_url, 1)
    try:
        for container_id in await engine.labelled({names.CONTAINER_INCARNATION: incarnation}):
            await engine.remove(container_id)
    finally:
        engine.close()


if __name__ == "__main__":
    asyncio.run(remove_orphans(sys.argv[1], sys.argv[2]))
