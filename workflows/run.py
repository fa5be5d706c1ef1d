"""A run: reads its rows, opens steps as their needs complete, dispatches their jobs, closes.

From outside comes one signal, `nudge`: rows changed (a cancel, a lost worker), look again. The workflow is
correct from any state of the rows, so start, restart after a termination and recovery are this same code.
"""

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from temporalio import workflow
from temporalio.common import SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from activities.runs import (
        AdmittedChunk,
        AdoptInput,
        CloseInput,
        NextResult,
        OpenShardsInput,
        RunActivities,
        RunRef,
        RunView,
        ShardRef,
        SkipInput,
        StepRef,
    )
    from runlane import names
    from runlane.db.settle import Ending
    from runlane.jobs import RUNS, RunStatus, RunVerb, StepStatus
    from runlane.runs import Step, doomed_steps, ready_steps, run_verb
    from workflows.shard import ShardInput, StepShard

# Ours to guard like the workflow itself: loaded anew inside the sandbox, not passed through.
with workflow.unsafe.sandbox_import_notification_policy(workflow.SandboxImportNotificationPolicy.SILENT):
    from workflows import policies
    from workflows.dispatching import Dispatcher, Limits, RunIdentity

RUN_STATUS = SearchAttributeKey.for_keyword(names.SA_RUN_STATUS)
TOOLS = SearchAttributeKey.for_keyword_list(names.SA_TOOLS)


@dataclass
class RunInput:
    """Which run, and how much it dispatches."""

    run_id: str
    workspace_id: str
    limits: Limits = field(default_factory=Limits)


@dataclass
class RunOutcome:
    """How the run closed: a `RunStatus`."""

    run_id: str
    status: str


@workflow.defn(name=names.RUN_WORKFLOW)
class RunWorkflow:
    """Drives one run from its rows to its end."""

    @workflow.init
    def __init__(self, request: RunInput) -> None:
        self._request = request
        self._identity = RunIdentity(request.run_id, request.workspace_id, workflow.info().run_id)
        self._dispatcher = Dispatcher(self._identity, request.limits)
        self._steps: dict[str, Step] = {}
        self._shards: set[str] = set()
        self._admitting: set[str] = set()
        self._status = ""
        self._is_closed = False
        self._nudged = False

    @workflow.run
    async def run(self, request: RunInput) -> RunOutcome:
        """Runs the steps to the end of the run; cancelled, it cancels the rows first."""
        self._settling = asyncio.create_task(self._dispatcher.settle_forever())
        try:
            await self._load()
            while not self._is_closed:
                await self._turn()
        except asyncio.CancelledError:
            await self._cancel_rows()
            await self._stop()
            raise
        await self._stop()
        self._show_status()
        return RunOutcome(request.run_id, self._status)

    @workflow.signal(name=names.NUDGE_SIGNAL)
    def nudge(self) -> None:
        """Look at the rows: something changed there."""
        self._nudged = True
        self._dispatcher.changed = True

    async def _turn(self) -> None:
        if self._nudged:
            await self._resync()
            if self._is_closed:
                return
        has_unadmitted = await self._admit()
        work = await self._dispatcher.pump(self._running())
        if work.is_superseded:
            # this workflow was reset to an earlier point: it drives the run again, from the rows of now
            self._dispatcher.forget()
            self._shards.clear()
            await self._load()
            return
        if work.is_closed:
            self._nudged = True
            return
        if await self._close_finished(work) or has_unadmitted:
            return
        await self._open_shards(work)
        await self._dispatcher.wait(work.steps, summary="until the next back-off is over")

    async def _load(self) -> None:
        info = workflow.info()
        adopt = AdoptInput(self._request.run_id, info.run_id, info.workflow_start_time)
        view: RunView = await workflow.execute_local_activity_method(
            RunActivities.load_run, adopt, summary="read the run", **policies.ROWS
        )
        self._see(view)
        self._dispatcher.abandon(view.orphans, Ending.RELEASED)
        tools = sorted({step.tool_id for step in view.steps})
        workflow.upsert_search_attributes([TOOLS.value_set(tools), RUN_STATUS.value_set(view.status)])

    async def _resync(self) -> None:
        self._nudged = False
        view: RunView = await workflow.execute_local_activity_method(
            RunActivities.resync_run, self._ref(), summary="look again", **policies.ROWS
        )
        self._see(view)
        self._dispatcher.abandon(view.orphans, Ending.LOST)
        self._dispatcher.settle_early(view.slow)

    def _see(self, view: RunView) -> None:
        self._steps = {step.step_id: step for step in view.steps}
        self._status = view.status
        self._is_closed = view.is_closed
        self._show_steps()

    def _ref(self) -> RunRef:
        return RunRef(self._request.run_id, workflow.info().workflow_id)

    def _running(self) -> list[str]:
        return [s.step_id for s in self._steps.values() if s.status is StepStatus.RUNNING]

    async def _admit(self) -> bool:
        """Admits one chunk for each open step that is not fully admitted; says whether some is left."""
        has_left = False
        for step_id in self._running():
            step = self._steps[step_id]
            if step.is_admitted or step_id in self._admitting:
                continue
            admitted = await workflow.execute_local_activity_method(
                RunActivities.admit_chunk,
                StepRef(self._request.run_id, step_id),
                summary=f"admit jobs of {step_id}",
                **policies.ROWS,
            )
            self._steps[step_id] = replace(step, is_admitted=admitted.is_done)
            if not admitted.is_done and workflow.patched("admit-aside"):
                self._admit_rest(step_id)
            else:
                has_left = has_left or not admitted.is_done
        return has_left

    def _admit_rest(self, step_id: str) -> None:
        """Has the rest of a large step admitted beside the main loop, which starts batches meanwhile."""
        self._admitting.add(step_id)
        handle = workflow.start_activity_method(
            RunActivities.admit_rest,
            StepRef(self._request.run_id, step_id),
            start_to_close_timeout=policies.ADMIT_START_TO_CLOSE,
            heartbeat_timeout=policies.ADMIT_HEARTBEAT,
            retry_policy=policies.ROWS["retry_policy"],
            summary=f"admit the rest of {step_id}",
        )
        handle.add_done_callback(partial(self._land_admitted, step_id))

    def _land_admitted(self, step_id: str, ended: asyncio.Task[AdmittedChunk]) -> None:
        self._admitting.discard(step_id)
        if not ended.cancelled() and ended.exception() is None:
            step = self._steps[step_id]
            self._steps[step_id] = replace(step, is_admitted=step.is_admitted or ended.result().is_done)
        self._dispatcher.changed = True

    async def _close_finished(self, work: NextResult) -> bool:
        """Closes steps without live jobs and moves the graph on; says whether anything moved."""
        is_live = {item.step_id: item.is_live for item in work.steps}
        finished = [s for s in self._running() if self._steps[s].is_admitted and not is_live.get(s, True)]
        for step_id in finished:
            status = await workflow.execute_local_activity_method(
                RunActivities.close_step,
                StepRef(self._request.run_id, step_id),
                summary=f"close {step_id}",
                **policies.ROWS,
            )
            self._set_status(step_id, StepStatus(status))
        moved = await self._move_graph()
        return bool(finished) or moved

    async def _move_graph(self) -> bool:
        steps = list(self._steps.values())
        doomed = doomed_steps(steps)
        if doomed:
            await self._skip([step.step_id for step in doomed])
        ready = ready_steps(list(self._steps.values()))
        for step in ready:
            await workflow.execute_local_activity_method(
                RunActivities.open_step,
                StepRef(self._request.run_id, step.step_id),
                summary=f"open {step.step_id}",
                **policies.ROWS,
            )
            self._set_status(step.step_id, StepStatus.RUNNING)
        verb = run_verb(list(self._steps.values()))
        if verb is not None and self._dispatcher.is_idle and not self._shards:
            await self._close(verb)
        return bool(doomed or ready or self._is_closed)

    async def _skip(self, step_ids: list[str]) -> None:
        await workflow.execute_local_activity_method(
            RunActivities.skip_steps,
            SkipInput(self._request.run_id, step_ids),
            summary=f"skip {', '.join(step_ids)}",
            **policies.ROWS,
        )
        for step_id in step_ids:
            self._set_status(step_id, StepStatus.SKIPPED)

    async def _close(self, verb: RunVerb) -> None:
        self._status = await workflow.execute_local_activity_method(
            RunActivities.close_run,
            CloseInput(self._request.run_id, verb),
            summary="close the run",
            **policies.ROWS,
        )
        # not while jobs of a cancelled step are left: whoever cancels them will nudge
        self._is_closed = RunStatus(self._status) in RUNS.terminal

    async def _open_shards(self, work: NextResult) -> None:
        """Hands the rest of large steps to shards once this workflow's own budget is used up.

        Not before all of it is admitted: shards end when nothing is due, and would come and go.
        """
        if self._dispatcher.budget_left > 0:
            return
        for item in work.steps:
            if item.has_more and self._steps[item.step_id].is_admitted:
                numbers = await workflow.execute_local_activity_method(
                    RunActivities.open_shards,
                    OpenShardsInput(self._request.run_id, item.step_id, self._request.limits.open_shards),
                    summary=f"open shards of {item.step_id}",
                    **policies.ROWS,
                )
                for number in numbers:
                    await self._start_shard(item.step_id, number)

    async def _start_shard(self, step_id: str, number: int) -> None:
        request = self._request
        workflow_id = names.shard_workflow_id(UUID(request.run_id), step_id, number)
        if workflow_id in self._shards:
            return
        self._shards.add(workflow_id)
        handle = await workflow.start_child_workflow(
            StepShard.run,
            ShardInput(self._identity, step_id, number, request.limits),
            id=workflow_id,
            parent_close_policy=workflow.ParentClosePolicy.TERMINATE,
            static_summary=f"shard {number} of {step_id}",
        )
        handle.add_done_callback(lambda _: self._land_shard(workflow_id))

    def _land_shard(self, workflow_id: str) -> None:
        asyncio.create_task(self._close_shard(workflow_id))  # noqa: RUF006  # its end wakes the main loop

    async def _close_shard(self, workflow_id: str) -> None:
        await workflow.execute_local_activity_method(
            RunActivities.close_shard, ShardRef(workflow_id), summary="a shard has ended", **policies.ROWS
        )
        self._shards.discard(workflow_id)
        self._dispatcher.changed = True

    async def _cancel_rows(self) -> None:
        await workflow.execute_local_activity_method(
            RunActivities.cancel_run, self._ref(), summary="cancelled in Temporal", **policies.ROWS
        )

    async def _stop(self) -> None:
        """Stops what runs and waits a while for it; shards see the closed run in its rows and stop theirs."""
        await self._dispatcher.stop()
        try:
            await workflow.wait_condition(
                lambda: not self._shards,
                timeout=policies.CANCEL_WAIT,
                timeout_summary="until shards have stopped",
            )
        except TimeoutError:
            workflow.logger.warning("shards_still_stopping")

    def _set_status(self, step_id: str, status: StepStatus) -> None:
        self._steps[step_id] = replace(self._steps[step_id], status=status)
        self._show_steps()

    def _show_steps(self) -> None:
        rows = "\n".join(f"| {s.step_id} | {s.tool_id} | {s.status} |" for s in self._steps.values())
        workflow.set_current_details(f"| step | tool | status |\n|-|-|-|\n{rows}")

    def _show_status(self) -> None:
        workflow.upsert_search_attributes([RUN_STATUS.value_set(self._status)])
