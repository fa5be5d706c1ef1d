"""Workflows of today replay what workflows of the past have done.

A history is stored once for each shape and never edited. Where one does not replay any more, the change needs
`workflow.patched()`: runs that are open while a new version is installed would stop there.
"""

import re
from collections.abc import Sequence
from typing import Final

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from tests.replay.planted import HastyRunWorkflow
from tests.replay.record import FOLDER, IDENTITY, MANIFEST, digest_of
from tests.replay.shapes import SHAPES
from workflows.registration import WORKFLOWS
from workflows.shard import StepShard

STORED: Final = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.json"))}
_OF_A_MACHINE: Final = re.compile(r'"stackTrace"|Traceback|\.py\b|://|password|"\d+@')


def history_of(text: str) -> WorkflowHistory:
    """A history from its JSON, under the id of its workflow."""
    history = WorkflowHistory.from_json("unnamed", text)
    started = history.events[0].workflow_execution_started_event_attributes
    return WorkflowHistory(started.workflow_id, history.events)


def type_of(text: str) -> str:
    """The workflow type of a history."""
    started = history_of(text).events[0].workflow_execution_started_event_attributes
    return started.workflow_type.name


async def replay(text: str, workflows: Sequence[type] = WORKFLOWS) -> None:
    """Replays in the sandbox that the SDK sets up by itself.

    In debug mode nothing looks at the clock: the SDK takes a workflow task of 2 s for a deadlock, and on a
    busy machine the replay of a whole history may last as long.
    """
    await Replayer(workflows=workflows, debug_mode=True).replay_workflow(history_of(text))


@pytest.mark.parametrize("name", STORED)
async def test_stored_history_replays(name: str) -> None:
    await replay(STORED[name])


async def test_every_workflow_has_a_stored_history() -> None:
    names = {workflow._Definition.must_from_class(cls).name for cls in WORKFLOWS}

    assert names == {type_of(text) for text in STORED.values()}


async def test_every_shape_has_its_stored_histories() -> None:
    expected = {name for shape in SHAPES for name in shape.histories}

    assert expected <= STORED.keys()


async def test_workflow_that_orders_one_effect_more_does_not_replay() -> None:
    with pytest.raises(workflow.NondeterminismError):
        await replay(STORED["run_all_done"], [HastyRunWorkflow, StepShard])


async def test_history_with_another_activity_does_not_replay() -> None:
    stored = STORED["run_all_done"]
    edited = stored.replace('"activityType":{"name":"run_batch"}', '"activityType":{"name":"run_job"}', 1)
    assert edited != stored

    with pytest.raises(workflow.NondeterminismError):
        await replay(edited)


async def test_history_with_two_activities_swapped_does_not_replay() -> None:
    stored = STORED["run_all_done"]
    first, second = re.findall(r'"activityId":"([0-9a-f-]{36})"', stored)[1:3]
    edited = stored.replace(first, "swapped").replace(second, first).replace("swapped", second)
    assert edited != stored

    with pytest.raises(workflow.NondeterminismError):
        await replay(edited)


@pytest.mark.parametrize("name", STORED)
def test_stored_history_is_as_it_was_recorded(name: str) -> None:
    recorded = [line.split("  ") for line in MANIFEST.read_text().splitlines()]

    assert [digest for digest, file in recorded if file == f"{name}.json"] == [digest_of(STORED[name])]


def test_no_stored_history_was_taken_away() -> None:
    recorded = {line.split("  ")[1] for line in MANIFEST.read_text().splitlines()}

    assert recorded == {f"{name}.json" for name in STORED}


@pytest.mark.parametrize("name", STORED)
async def test_stored_history_names_no_machine(name: str) -> None:
    text = STORED[name]

    assert set(re.findall(r'"identity":"([^"]*)"', text)) <= {IDENTITY, "history-service"}
    assert _OF_A_MACHINE.findall(text) == []
