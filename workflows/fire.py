"""A fire of a schedule, started by Temporal: has it decided, and waits while another run of it is open.

The rows decide. This workflow is how a fire that waits is called when the run before it has ended.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from activities.fires import FireActivities, FireAnswer, FireRequest
    from runlane import names
    from runlane.schedules import FireOutcome

# Ours to guard like the workflow itself: loaded anew inside the sandbox, not passed through.
with workflow.unsafe.sandbox_import_notification_policy(workflow.SandboxImportNotificationPolicy.SILENT):
    from workflows.policies import ROWS

NOMINAL: Final = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
"""Temporal's own: the time that the schedule says, before any jitter or catching up."""

LOOK: Final = timedelta(minutes=10)
"""A fire that waits looks so often, should nobody call."""


@dataclass
class FireInput:
    """Which schedule. `due_at` of a fire that has waited for long."""

    schedule_id: str
    due_at: datetime | None = None


@workflow.defn(name=names.SCHEDULE_FIRE_WORKFLOW)
class ScheduleFire:
    """Does one fire."""

    @workflow.init
    def __init__(self, request: FireInput) -> None:
        self._is_called = True

    @workflow.run
    async def run(self, request: FireInput) -> FireAnswer:
        """Answers what became of the fire, once that is final."""
        due_at = request.due_at or _nominal()
        asked = FireRequest(request.schedule_id, due_at, workflow.info().workflow_id)
        while True:
            self._is_called = False
            answer: FireAnswer = await workflow.execute_local_activity_method(
                FireActivities.decide_fire, asked, **ROWS
            )
            workflow.set_current_details(answer.outcome)
            if answer.outcome != FireOutcome.BUFFERED:
                return answer
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(lambda: self._is_called, timeout=LOOK)
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(FireInput(request.schedule_id, due_at))

    @workflow.signal(name=names.NUDGE_SIGNAL)
    def nudge(self) -> None:
        """Asks to look at the rows: what the fire waits for has ended."""
        self._is_called = True


def _nominal() -> datetime:
    return workflow.info().typed_search_attributes.get(NOMINAL) or workflow.info().start_time
