"""A finished run in Temporal: everything that it did says what it was, and it can be found."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from runlane import names
from tests.e2e.installation import Installation, open_installation, until

pytestmark = pytest.mark.e2e

SUMMARISED = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_MARKER_RECORDED,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
}


@pytest_asyncio.fixture(scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    """With so small a budget that large steps are handed to children."""
    settings = {"RUNLANE_DISPATCH_BUDGET": "8"}
    async with open_installation(tmp_path_factory.mktemp("visible"), settings, slow_ms=0) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module")
async def run_id(installation: Installation) -> UUID:
    """A run that has completed."""
    run_id = await installation.begin_scan("visible")
    await installation.assert_found_the_truth(run_id)
    await installation.wait_workflow_ended(run_id)
    return run_id


async def events_of(installation: Installation, workflow_id: str) -> list[HistoryEvent]:
    handle = installation.temporal.get_workflow_handle(workflow_id)
    return [event async for event in handle.fetch_history_events()]


async def test_everything_in_the_histories_has_a_summary(installation: Installation, run_id: UUID) -> None:
    events = await events_of(installation, names.run_workflow_id(run_id))
    children = [
        event.start_child_workflow_execution_initiated_event_attributes.workflow_id
        for event in events
        if event.event_type is EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED
    ]
    for child in children:
        events += await events_of(installation, child)
    named = [event for event in events if event.event_type in SUMMARISED]

    assert children
    assert {event.event_type for event in named} >= SUMMARISED - {EventType.EVENT_TYPE_TIMER_STARTED}
    assert [event for event in named if not event.user_metadata.summary.data] == []


async def test_finished_run_is_found_by_workspace_and_status(
    installation: Installation, run_id: UUID
) -> None:
    query = f"WorkspaceId='{installation.platform.workspace_id}' AND RunStatus='completed'"

    async def is_found() -> bool:
        found = [each.id async for each in installation.temporal.list_workflows(query)]
        return names.run_workflow_id(run_id) in found

    await until(is_found, 60)
