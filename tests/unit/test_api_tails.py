"""Onlookers of jobs in one API process: bounded, and sent away when it ends."""

from uuid import uuid4

import asyncpg
import pytest

from api.tails import MOST_ONLOOKERS, Onlooker, Piece, TailHub
from runlane.errors import Unavailable


async def test_slow_onlooker_misses_the_oldest_lines() -> None:
    onlooker = Onlooker()
    for number in range(1_000):
        onlooker.push(Piece(1, number, ("x",)))

    first = onlooker.pieces.get_nowait()
    assert first is not None
    assert first.first == 1_000 - onlooker.pieces.qsize() - 1


async def test_one_onlooker_too_many_and_those_of_a_process_that_ends_are_refused() -> None:
    pool = asyncpg.create_pool("postgresql://127.0.0.1:1/none", min_size=0)  # nobody is there to listen to
    hub = TailHub(pool)
    job_id = uuid4()
    async with hub.looking_at(job_id) as first:
        hub.require_room()
        hub._onlookers[uuid4()] = {Onlooker() for _ in range(MOST_ONLOOKERS - 1)}
        with pytest.raises(Unavailable) as busy:
            hub.require_room()
        hub._onlookers.popitem()
        hub.require_room()
        hub.begin_shutdown()
        with pytest.raises(Unavailable):
            hub.require_room()

        assert busy.value.code == "tail.busy"
        assert first.pieces.get_nowait() is None
    await hub.close()
