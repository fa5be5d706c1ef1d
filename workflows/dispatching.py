"""The dispatch loop that a run and its shards share: take batches, start them, settle what has ended.

At most `budget` batches are ever started by one workflow, so its history stays small and nothing has to
continue as new with work in flight. One settle is in flight at a time; what ends meanwhile is the next group.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import Priority, RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.results import EndedBatch, ResultActivities, SettleInput, SettleResult
    from activities.runs import BatchView, NextInput, NextResult, RunActivities, WorkView
    from runlane import names
    from runlane.db.settle import Ending
    from runlane.failures import DECODE_ERRORS
    from runlane.runs import BatchInput, BatchResult

# Ours to guard like the workflow itself: loaded anew inside the sandbox, not passed through.
with workflow.unsafe.sandbox_import_notification_policy(workflow.SandboxImportNotificationPolicy.SILENT):
    from workflows import policies

REFILL_SHARE: Final = 4
"""More is asked for once a quarter of the window has landed: fewer calls, and the rest keeps hosts busy."""

SETTLE_BATCHES: Final = 16
"""Batches of one settle."""

SETTLE_JOBS: Final = 500
"""Jobs of one settle, unless a single batch has more."""

LOCKED_LOOK_S: Final = 1.0
"""Due jobs that were not taken though there was room are locked by somebody: look again after this."""

_DRAINED: Final = frozenset({"WorkerShutdown", "WorkerDraining"})


@dataclass
class Limits:
    """How much one workflow dispatches."""

    window: int = 16
    """Batches of one step in flight."""
    budget: int = 200
    """Batches in the life of the workflow, retries included."""
    open_shards: int = 4
    """Shards of one step open at once."""
    least_batch: int = 1
    """Members of a batch while as many are due."""


@dataclass
class Flight:
    """A batch activity that runs."""

    batch: BatchView
    handle: workflow.ActivityHandle[RawValue]


@dataclass
class RunIdentity:
    """The run that batches belong to. `owner` is the Temporal run id of the run's own workflow."""

    run_id: str
    workspace_id: str
    owner: str


class Dispatcher:
    """Drives batches of one run; owned by one workflow, woken by `changed`."""

    def __init__(self, run: RunIdentity, limits: Limits) -> None:
        self.changed = False
        self._run = run
        self._limits = limits
        self._flights: dict[str, Flight] = {}
        self._ended: list[EndedBatch] = []
        self._sizes: dict[str, int] = {}
        self._unsettled = 0
        self._calls = 0
        self._started = 0
        self._landed = 0
        self._hungry: frozenset[str] = frozenset()

    @property
    def budget_left(self) -> int:
        """Batches that this workflow may still start."""
        return self._limits.budget - self._started

    @property
    def is_idle(self) -> bool:
        """Whether no batch runs and none waits to be settled."""
        return not self._flights and not self._ended and not self._unsettled

    async def pump(self, step_ids: Sequence[str]) -> NextResult:
        """Takes as many batches of these steps as there is room for, starts them, says what is left."""
        self.changed = False
        self._landed = 0
        self._calls += 1
        info = workflow.info()
        request = NextInput(
            run_id=self._run.run_id,
            workspace_id=self._run.workspace_id,
            workflow_id=info.workflow_id,
            workflow_run_id=info.run_id,
            owner=self._run.owner,
            call_number=self._calls,
            rooms=self._rooms(step_ids),
            least_batch=self._limits.least_batch,
        )
        result: NextResult = await workflow.execute_local_activity_method(
            RunActivities.next_batches, request, summary=f"batches of {', '.join(step_ids)}", **policies.ROWS
        )
        for batch in result.batches:
            self._start(batch)
        self._hungry = frozenset(step.step_id for step in result.steps if step.has_more)
        return result

    def _rooms(self, step_ids: Sequence[str]) -> dict[str, int]:
        left = self.budget_left
        rooms: dict[str, int] = {}
        # What is left goes first to steps that had more: a step that waits for one long job must not keep it.
        for step_id in sorted(step_ids, key=lambda step_id: step_id not in self._hungry):
            in_flight = sum(flight.batch.step_id == step_id for flight in self._flights.values())
            rooms[step_id] = max(0, min(self._limits.window - in_flight, left))
            left -= rooms[step_id]
        return rooms

    def _start(self, batch: BatchView) -> None:
        self._started += 1
        handle = workflow.start_activity(
            names.RUN_BATCH_ACTIVITY,
            BatchInput(batch.dispatch_id, self._run.run_id, batch.step_id, batch.tool_id, batch.size),
            result_type=RawValue,
            activity_id=batch.dispatch_id,
            task_queue=batch.task_queue,
            start_to_close_timeout=timedelta(seconds=batch.start_to_close_s),
            heartbeat_timeout=timedelta(seconds=batch.heartbeat_s),
            retry_policy=policies.BATCH_RETRY,
            cancellation_type=policies.WAIT,
            priority=Priority(
                priority_key=batch.priority + 1, fairness_key=batch.fairness_key or self._run.run_id
            ),
            summary=f"{batch.step_id}: {batch.tool_id} × {batch.size}",
        )
        self._flights[batch.dispatch_id] = Flight(batch, handle)
        handle.add_done_callback(lambda _: self._land(batch.dispatch_id))

    def _land(self, dispatch_id: str) -> None:
        flight = self._flights.pop(dispatch_id, None)
        if flight is None:
            return
        self._sizes[dispatch_id] = flight.batch.size
        self._ended.append(EndedBatch(dispatch_id, _ending(flight.handle)))
        self._landed += 1
        enough = max(1, self._limits.window // REFILL_SHARE)
        if self._hungry and (self._landed >= enough or not self._flights):
            self.changed = True

    def abandon(self, dispatch_ids: Sequence[str], ending: Ending) -> None:
        """Settles batches without waiting for their activities, which are told to stop."""
        for dispatch_id in dispatch_ids:
            flight = self._flights.pop(dispatch_id, None)
            if flight is not None:
                _let_go(flight)
            self._ended.append(EndedBatch(dispatch_id, ending))

    def settle_early(self, dispatch_ids: Sequence[str]) -> None:
        """Has settled what running batches have staged so far; they go on."""
        running = [dispatch_id for dispatch_id in dispatch_ids if dispatch_id in self._flights]
        self._ended += [EndedBatch(dispatch_id, Ending.RUNNING) for dispatch_id in running]

    def forget(self) -> None:
        """Drops every batch in hand without settling it: an adoption of the run starts from its rows."""
        for flight in self._flights.values():
            _let_go(flight)
        self._flights.clear()
        self._ended.clear()

    async def settle_forever(self) -> None:
        """Settles what has ended, group by group; runs beside the main loop until it is cancelled."""
        while True:
            await workflow.wait_condition(lambda: bool(self._ended))
            group = self._next_group()
            self._unsettled += len(group)
            result = await self._settle(group)
            self._unsettled -= len(group)
            if result.again:
                self._unsettled += len(result.again)
                asyncio.create_task(self._end_again(result))  # noqa: RUF006  # counted in _unsettled
            self.changed = True

    def _next_group(self) -> list[EndedBatch]:
        group: list[EndedBatch] = []
        jobs = 0
        while self._ended and len(group) < SETTLE_BATCHES and jobs < SETTLE_JOBS:
            group.append(self._ended.pop(0))
            jobs += self._sizes.pop(group[-1].dispatch_id, 1)
        return group

    async def _settle(self, group: list[EndedBatch]) -> SettleResult:
        try:
            return await workflow.execute_activity_method(
                ResultActivities.settle_batches,
                SettleInput(group),
                task_queue=names.RESULT_QUEUE,
                start_to_close_timeout=policies.SETTLE_START_TO_CLOSE,
                heartbeat_timeout=policies.SETTLE_HEARTBEAT,
                retry_policy=policies.SETTLE_RETRY,
                summary=f"merge of {len(group)} {'batch' if len(group) == 1 else 'batches'}",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.error("settle_failed", exc_info=error)
            return SettleResult(again=group, delay_s=policies.SETTLE_AGAIN_S)

    async def _end_again(self, result: SettleResult) -> None:
        if result.delay_s > 0:
            await workflow.sleep(result.delay_s, summary="before the next merge")
        self._unsettled -= len(result.again)
        self._ended += result.again
        self.changed = True

    async def wait(self, work: Sequence[WorkView], summary: str) -> None:
        """Waits until something changed or the next back-off of these steps is over."""
        dues = [item.next_due_s for item in work if item.next_due_s is not None]
        if self.is_idle and self.budget_left > 0 and any(item.has_more for item in work):
            dues.append(LOCKED_LOOK_S)
        timeout = max(0.05, min(dues)) if dues else None
        try:
            await workflow.wait_condition(lambda: self.changed, timeout=timeout, timeout_summary=summary)
        except TimeoutError:
            self.changed = True

    async def stop(self) -> None:
        """Tells every running batch to stop; waits a while until their processes are dead and all is settled.

        The settle finds nothing in progress any more and discards what was staged.
        """
        for flight in self._flights.values():
            flight.handle.cancel()
        try:
            await workflow.wait_condition(
                lambda: self.is_idle,
                timeout=policies.CANCEL_WAIT,
                timeout_summary="until cancelled batches have stopped",
            )
        except TimeoutError:
            workflow.logger.warning("batches_still_stopping")


def _let_go(flight: Flight) -> None:
    """Tells a batch to stop that nobody waits for any more; how it ends is looked at and forgotten."""
    flight.handle.cancel()
    flight.handle.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


def _ending(handle: workflow.ActivityHandle[RawValue]) -> Ending:
    """How an ended activity ended. Rows decide what it means; this only colours what is missing there."""
    if handle.cancelled():
        return Ending.CANCELLED
    error = handle.exception()
    if error is None:
        return _said(handle.result())
    if is_cancelled_exception(error):
        return Ending.CANCELLED
    cause = error.cause if isinstance(error, ActivityError) else None
    if isinstance(cause, ApplicationError) and cause.type in _DRAINED:
        return Ending.RELEASED
    return Ending.LOST


def _said(answer: object) -> Ending:
    """What a batch says of its own end. A host says it, so it may be anything: then the batch has ended."""
    if not isinstance(answer, RawValue):
        return Ending.ENDED
    try:
        result = workflow.payload_converter().from_payload(answer.payload, BatchResult)
        said = Ending(result.outcome)
    except DECODE_ERRORS:
        return Ending.ENDED
    return Ending.ENDED if said is Ending.RUNNING else said
