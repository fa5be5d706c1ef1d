"""Onlookers of jobs in one API process: bounded, and sent away when it ends."""

from uuid import uuid4

import asyncpg
import pytest

from api.tails import MOST_ONLOOKERS, Onlooker, Piece, TailHub
from runlane.errors import Conflict, Unavailable


async def test_slow_onlooker_misses_the_oldest_lines() -> None:
    onlooker = Onlooker(uuid4())
    for number in range(1_000):
        onlooker.push(Piece(1, number, ("x",)))

    first = onlooker.pieces.get_nowait()
    assert first is not None
    assert first.first == 1_000 - onlooker.pieces.qsize() - 1


def hub_of(share: int) -> TailHub:
    # nobody is there to listen to
    return TailHub(asyncpg.create_pool("postgresql://127.0.0.1:1/none", min_size=0), share)


async def test_one_onlooker_too_many_and_those_of_a_process_that_ends_are_refused() -> None:
    hub, job_id, ours = hub_of(MOST_ONLOOKERS), uuid4(), uuid4()
    async with hub.looking_at(job_id, ours) as first:
        hub.require_room(ours)
        hub._onlookers[uuid4()] = {Onlooker(uuid4()) for _ in range(MOST_ONLOOKERS - 1)}
        with pytest.raises(Unavailable) as busy:
            hub.require_room(ours)
        hub._onlookers.popitem()
        hub.require_room(ours)
        hub.begin_shutdown()
        with pytest.raises(Unavailable):
            hub.require_room(ours)

        assert busy.value.code == "tail.busy"
        assert first.pieces.get_nowait() is None
    await hub.close()


async def test_workspace_with_many_onlookers_leaves_room_for_others() -> None:
    hub, ours, theirs = hub_of(2), uuid4(), uuid4()
    async with hub.looking_at(uuid4(), ours), hub.looking_at(uuid4(), ours):
        with pytest.raises(Conflict) as too_many:
            hub.require_room(ours)
        async with hub.looking_at(uuid4(), ours) as late, hub.looking_at(uuid4(), theirs) as other:
            hub.require_room(theirs)

            assert late.pieces.get_nowait() is None
            assert other.pieces.empty()
    hub.require_room(ours)
    assert too_many.value.code == "tail.too_many"
    await hub.close()
