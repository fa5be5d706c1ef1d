"""Every path that current code takes through a run is in a stored history.

Each shape is played anew, and its history is described by the kinds of commands in it. One that no stored
history of that workflow holds is a change that the workflows of tomorrow would not be tested on.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowHistory

from runlane.db.pool import Pool
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.replay.description import describe
from tests.replay.planted import PatchedRunWorkflow
from tests.replay.record import IDENTITY, Recorder
from tests.replay.shapes import SHAPES, Shape
from tests.replay.test_histories import STORED, history_of, replay, type_of
from workflows.shard import StepShard

pytestmark = pytest.mark.integration

WHAT_TO_DO: Final = (
    "No stored history has this shape. If the change is meant, it stands behind `workflow.patched`: give the "
    "shape another name in tests/replay/shapes.py, keep its earlier history, and run ./dev record-histories."
)


@pytest_asyncio.fixture
async def recorder(settings: Settings, pool: Pool, database: Database) -> AsyncIterator[Recorder]:
    """Plays shapes on the servers of the tests."""
    client = await Client.connect(settings.temporal_address, identity=IDENTITY)
    yield Recorder(pool, database.owner, client, Storage(StorageConfig(**settings.bucket)))


def stored_shapes(workflow_type: str) -> list[tuple[str, ...]]:
    """Descriptions of the stored histories of a workflow."""
    return [describe(history_of(text)) for text in STORED.values() if type_of(text) == workflow_type]


def new_shapes(histories: Mapping[str, str]) -> dict[str, Sequence[str]]:
    """Those of the histories that give commands which no stored one gives together, with what is new in them.

    A command fewer is no fault here: on a busy machine a batch has ended before it could be cancelled. Code
    that leaves a command out does not replay the histories that have it.
    """
    found: dict[str, Sequence[str]] = {}
    for name, text in histories.items():
        shape, stored = set(describe(history_of(text))), stored_shapes(type_of(text))
        new = min((shape - set(each) for each in stored), key=len)
        if new:
            found[name] = sorted(new)
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.histories[0])
async def test_current_code_takes_no_path_without_a_stored_history(shape: Shape, recorder: Recorder) -> None:
    assert new_shapes(await recorder.play(shape)) == {}, WHAT_TO_DO


async def test_patched_change_without_a_history_of_its_own_is_caught(recorder: Recorder) -> None:
    planted = [PatchedRunWorkflow, StepShard]
    await replay(STORED["run_all_done"], planted)

    histories = await replace(recorder, workflows=planted).play(SHAPES[0])

    assert new_shapes(histories).keys() == {"run_all_done"}
    assert {"patch planted", "timer: planted"} <= set(new_shapes(histories)["run_all_done"])


def test_shape_does_not_depend_on_how_often_or_in_which_order() -> None:
    whole = history_of(STORED["run_all_done"])
    shuffled = WorkflowHistory(whole.workflow_id, [*whole.events[::-1], *whole.events])

    assert describe(whole) == describe(shuffled)
