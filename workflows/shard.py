"""A shard: dispatches batches of one large step on behalf of its run, up to a fixed budget, then ends.

A slow job delays only the end of its own shard. Jobs whose back-off is not over stay in their rows for the
next shard, so a shard never waits for a clock.
"""

import asyncio
from dataclasses import dataclass, field

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.runs import RunActivities, RunRef
    from runlane import names
    from runlane.db.settle import Ending

# Ours to guard like the workflow itself: loaded anew inside the sandbox, not passed through.
with workflow.unsafe.sandbox_import_notification_policy(workflow.SandboxImportNotificationPolicy.SILENT):
    from workflows import policies
    from workflows.dispatching import Dispatcher, Limits, RunIdentity


@dataclass
class ShardInput:
    """Which step of which run, and how much."""

    run: RunIdentity
    step_id: str
    number: int
    limits: Limits = field(default_factory=Limits)


@dataclass
class ShardResult:
    """How many batches were started."""

    batches: int


@workflow.defn(name=names.STEP_SHARD_WORKFLOW)
class StepShard:
    """Dispatches one step until its budget is used or nothing is due, and everything is settled."""

    @workflow.init
    def __init__(self, request: ShardInput) -> None:
        self._request = request
        self._dispatcher = Dispatcher(request.run, request.limits)
        self._nudged = False
        self._is_closed = False

    @workflow.run
    async def run(self, request: ShardInput) -> ShardResult:
        """Dispatches the step's jobs; answers how much of the budget it used."""
        self._settling = asyncio.create_task(self._dispatcher.settle_forever())
        while not await self._turn():
            pass
        if self._is_closed:
            await self._dispatcher.stop()
        return ShardResult(request.limits.budget - self._dispatcher.budget_left)

    @workflow.signal(name=names.NUDGE_SIGNAL)
    def nudge(self) -> None:
        """Look at the rows: something changed there."""
        self._nudged = True
        self._dispatcher.changed = True

    async def _turn(self) -> bool:
        if self._nudged:
            await self._resync()
        work = await self._dispatcher.pump([self._request.step_id])
        if work.is_closed or work.is_superseded or self._is_closed:
            self._is_closed = True
            return True
        if self._dispatcher.is_idle:
            # Nothing was due, the budget is used, or others hold the locks of what is: they take it.
            return True
        await self._dispatcher.wait([], summary="")
        return False

    async def _resync(self) -> None:
        self._nudged = False
        ref = RunRef(self._request.run.run_id, workflow.info().workflow_id)
        view = await workflow.execute_local_activity_method(
            RunActivities.resync_run, ref, summary="look again", **policies.ROWS
        )
        self._is_closed = view.is_closed
        self._dispatcher.abandon(view.orphans, Ending.LOST)
        self._dispatcher.settle_early(view.slow)
