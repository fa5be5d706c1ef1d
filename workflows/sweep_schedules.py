"""The schedules of the sweeps: made when they are missing, brought up to date when they are there."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError, RPCStatusCode

from runlane import names
from runlane.sweeps import DAY, SWEEPS, Sweep
from workflows.sweeps import SweepInput, SweepResult, SweepWorkflow

JITTER: Final = timedelta(minutes=10)
"""By how much daily sweeps are spread."""

LONGEST: Final = timedelta(hours=2)
"""A sweep that takes longer goes on by the next one."""

BEGINS_WITHIN_S: Final = 60.0
LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class SweepState:
    """A sweep as its schedule has it. `last`: workflow id of the newest sweep that was started."""

    sweep: Sweep
    is_there: bool
    is_paused: bool = False
    note: str = ""
    last: str = ""
    last_at: datetime | None = None
    next_at: datetime | None = None


async def ensure_schedules(client: Client) -> None:
    """Makes or updates the schedule of every sweep; a pause stays. Safe to repeat, and from several places.

    Raises:
        temporalio.service.RPCError: Temporal does not answer or refuses.
    """
    for sweep in SWEEPS.values():
        await _ensure(client, sweep)


async def make_missing(client: Client) -> None:
    """Makes the schedules that are missing, and leaves the others as they are.

    Raises:
        temporalio.service.RPCError: Temporal does not answer or refuses.
    """
    for sweep in SWEEPS.values():
        with suppress(ScheduleAlreadyRunningError):
            await client.create_schedule(names.sweep_schedule_id(sweep.name), schedule_of(sweep))


async def read_schedule(client: Client, sweep: Sweep) -> SweepState:
    """The schedule of one sweep.

    Raises:
        temporalio.service.RPCError: Temporal does not answer.
    """
    try:
        found = await client.get_schedule_handle(names.sweep_schedule_id(sweep.name)).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return SweepState(sweep, is_there=False)
        raise
    state, info = found.schedule.state, found.info
    last = info.recent_actions[-1] if info.recent_actions else None
    started = last.action if last is not None else None
    return SweepState(
        sweep,
        is_there=True,
        is_paused=state.paused,
        note=state.note or "",
        last=started.workflow_id if isinstance(started, ScheduleActionExecutionStartWorkflow) else "",
        last_at=last.started_at if last is not None else None,
        next_at=info.next_action_times[0] if info.next_action_times else None,
    )


async def run_now(client: Client, sweep: Sweep) -> str:
    """Has a sweep begin now, or once the one that runs has ended; answers the id of its workflow.

    Also while its schedule is paused.

    Raises:
        temporalio.service.RPCError: Temporal does not answer, or there is no such schedule.
        TimeoutError: it has not begun in time.
    """
    handle = client.get_schedule_handle(names.sweep_schedule_id(sweep.name))
    before = (await handle.describe()).info.num_actions
    await handle.trigger(overlap=ScheduleOverlapPolicy.BUFFER_ONE)
    async with asyncio.timeout(BEGINS_WITHIN_S):
        while True:
            info = (await handle.describe()).info
            action = info.recent_actions[-1].action if info.recent_actions else None
            if info.num_actions > before and isinstance(action, ScheduleActionExecutionStartWorkflow):
                return action.workflow_id
            await asyncio.sleep(LOOK_S)


async def result_of(client: Client, workflow_id: str) -> SweepResult:
    """Waits for the end of a sweep; answers what it did.

    Raises:
        temporalio.client.WorkflowFailureError: a part of it could not be done.
        temporalio.service.RPCError: Temporal does not answer, or has forgotten it.
    """
    return await client.get_workflow_handle_for(SweepWorkflow.run, workflow_id).result()


async def has_failed(client: Client, state: SweepState) -> bool:
    """Whether the newest sweep has ended without having done all its parts.

    Raises:
        temporalio.service.RPCError: Temporal does not answer.
    """
    if not state.last:
        return False
    try:
        described = await client.get_workflow_handle(state.last).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return described.status not in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED)


async def newest_result(client: Client, state: SweepState) -> SweepResult | None:
    """What the newest sweep did; None while it runs, if it failed, or if Temporal has forgotten it.

    Raises:
        temporalio.service.RPCError: Temporal does not answer.
    """
    handle = client.get_workflow_handle_for(SweepWorkflow.run, state.last)
    try:
        if (await handle.describe()).status is not WorkflowExecutionStatus.COMPLETED:
            return None
        return await handle.result()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


def schedule_of(sweep: Sweep) -> Schedule:
    """What the schedule of a sweep should be.

    One at a time: two sweeps would do each other's work. After an outage one is made up for, not all that
    were missed.
    """
    return Schedule(
        action=ScheduleActionStartWorkflow(
            SweepWorkflow.run,
            SweepInput(sweep.name, [str(part) for part in sweep.parts]),
            id=names.sweep_schedule_id(sweep.name),
            task_queue=names.CORE_QUEUE,
            execution_timeout=LONGEST,
            static_summary=f"sweep: {sweep.sentence}",
        ),
        spec=ScheduleSpec(
            intervals=[ScheduleIntervalSpec(every=sweep.every, offset=sweep.at)],
            jitter=JITTER if sweep.every >= DAY else None,
        ),
        policy=SchedulePolicy(
            overlap=ScheduleOverlapPolicy.SKIP, catchup_window=sweep.every, pause_on_failure=False
        ),
    )


async def _ensure(client: Client, sweep: Sweep) -> None:
    wanted = schedule_of(sweep)
    schedule_id = names.sweep_schedule_id(sweep.name)

    def update(found: ScheduleUpdateInput) -> ScheduleUpdate:
        return ScheduleUpdate(schedule=replace(wanted, state=found.description.schedule.state))

    try:
        await client.create_schedule(schedule_id, wanted)
    except ScheduleAlreadyRunningError:
        await client.get_schedule_handle(schedule_id).update(update)
