"""Lets Temporal have the schedules of workspaces as their rows say. Every call may be repeated.

Temporal says when; what becomes of a fire is decided by rows (`runlane/db/fires.py`). So all fires start a
small workflow, whatever runs, and none is dropped without a word in the ledger.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from runlane import names
from runlane.db.schedules import Plan
from runlane.schedules import Timing, timing_of
from workflows.fire import FireInput, ScheduleFire
from workflows.starting import WORKSPACE

PAUSED: Final = "paused by its workspace"
"""Note of a pause that a row says. One with another note is an operator's, and stays."""


async def tell_schedule(client: Client, plan: Plan) -> None:
    """Makes, updates or deletes a schedule, so that it is as planned; a pause set in Temporal itself stays.

    Raises:
        temporalio.service.RPCError: Temporal does not answer or refuses.
    """
    schedule_id = names.schedule_id(plan.schedule_id)
    if plan.spec is None:
        try:
            await client.get_schedule_handle(schedule_id).delete()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        return
    wanted = schedule_of(plan, timing_of(plan.spec, plan.schedule_id))
    of_workspace = TypedSearchAttributes([SearchAttributePair(WORKSPACE, str(plan.workspace_id))])
    with suppress(ScheduleAlreadyRunningError):
        await client.create_schedule(schedule_id, wanted, search_attributes=of_workspace)
        return

    def update(found: ScheduleUpdateInput) -> ScheduleUpdate:
        state = _state(found.description.schedule.state, is_paused=plan.is_paused)
        return ScheduleUpdate(schedule=replace(wanted, state=state))

    await client.get_schedule_handle(schedule_id).update(update)


async def start_fire(client: Client, workflow_id: str, fire: Mapping[str, object]) -> None:
    """Starts the workflow of a fire that a person wanted and that waits; one that runs is found.

    Raises:
        temporalio.service.RPCError: Temporal does not answer or refuses.
    """
    due_at = datetime.fromisoformat(str(fire["due_at"]))
    with suppress(WorkflowAlreadyStartedError):
        await client.start_workflow(
            ScheduleFire.run,
            FireInput(str(fire["schedule"]), due_at),
            id=workflow_id,
            task_queue=names.CORE_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary="fire of a schedule, by hand",
        )


def schedule_of(plan: Plan, timing: Timing) -> Schedule:
    """What the schedule of a row should be in Temporal."""
    return Schedule(
        action=ScheduleActionStartWorkflow(
            ScheduleFire.run,
            FireInput(str(plan.schedule_id)),
            id=names.fire_workflow_id(plan.schedule_id),
            task_queue=names.CORE_QUEUE,
            static_summary="fire of a schedule",
            typed_search_attributes=TypedSearchAttributes(
                [SearchAttributePair(WORKSPACE, str(plan.workspace_id))]
            ),
        ),
        spec=spec_of(timing),
        policy=SchedulePolicy(
            overlap=ScheduleOverlapPolicy.ALLOW_ALL,
            catchup_window=timedelta(seconds=timing.catch_up_s),
            pause_on_failure=False,
        ),
        state=_state(ScheduleState(), is_paused=plan.is_paused),
    )


def spec_of(timing: Timing) -> ScheduleSpec:
    """The times of a schedule as Temporal says them."""
    calendar = timing.calendar
    calendars = []
    if calendar is not None:
        calendars = [
            ScheduleCalendarSpec(
                second=_ranges((0,)),
                minute=_ranges(calendar.minutes),
                hour=_ranges(calendar.hours),
                day_of_month=_ranges(calendar.days),
                month=_ranges(calendar.months),
                day_of_week=_ranges(calendar.weekdays),
            )
        ]
    every, phase = timedelta(seconds=timing.every_s), timedelta(seconds=timing.phase_s)
    return ScheduleSpec(
        calendars=calendars,
        intervals=[] if calendars else [ScheduleIntervalSpec(every=every, offset=phase)],
        jitter=timedelta(seconds=timing.jitter_s) or None,
        end_at=timing.ends_at,
        time_zone_name=timing.time_zone,
    )


def _ranges(values: tuple[int, ...]) -> list[ScheduleRange]:
    return [ScheduleRange(value) for value in values]


def _state(found: ScheduleState, *, is_paused: bool) -> ScheduleState:
    if is_paused and not found.paused:
        return replace(found, paused=True, note=PAUSED)
    if not is_paused and found.paused and found.note == PAUSED:
        return replace(found, paused=False, note=None)
    return found
