"""A short storm of random kills under load; `make chaos` makes longer ones, from new seeds."""

from pathlib import Path

import pytest

from tests.chaos.bounds import NEVER_S
from tests.chaos.containers import engine_at_hand
from tests.chaos.plan import plan
from tests.chaos.storm import Plan, Storm
from tests.chaos.times import measure_times
from tests.e2e.installation import open_installation

pytestmark = pytest.mark.e2e

SEED = 2_026
BLOWS = 30


def test_seed_gives_the_same_storm_again() -> None:
    assert plan(7, 50) == plan(7, 50) != plan(8, 50)


async def test_thirty_random_kills_under_load_lose_double_and_corrupt_nothing(tmp_path: Path) -> None:
    planned = Plan(SEED, BLOWS, gap_s=1.5)

    with engine_at_hand() as engine:
        async with open_installation(tmp_path / "state", planned.settings(engine)) as installation:
            outcome = await Storm(installation, planned, engine).run()

    assert outcome.faults == []
    assert outcome.checks > 0
    assert outcome.deeds.total() > 0
    assert engine.containers is None or outcome.containers > 0
    assert sum(outcome.blows.values()) >= BLOWS - 2  # one may find its process between two lives


async def test_every_time_of_release_and_cancel_is_measured() -> None:
    measured = (await measure_times(samples=1)).times

    assert len({times.name for times in measured}) == 7
    assert [fault for times in measured for fault in times.faults] == []
    assert [times.name for times in measured if times.values == [] or NEVER_S in times.values] == []
