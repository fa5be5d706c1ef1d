"""A workspace and its runs: what tests of the run workflow start from, and what they ask of the servers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from activities.results import ResultActivities
from activities.runs import RunActivities
from lanes.commands import relay_once
from runlane import names
from runlane.db.acts import Act
from runlane.db.cancel import CancelResult, cancel_run
from runlane.db.claims import ClaimedJob
from runlane.db.commands import write_start
from runlane.db.nudges import nudge, nudge_for_worker
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.definitions import Definition, parse_definition
from runlane.storage import Storage
from runlane.worker import RUNNER
from tests.integration.scan_host import Done, ScanHost, ToolFunction, enrol, serve
from tests.waiting import WAIT_S, until
from workflows.dispatching import Limits
from workflows.registration import WORKFLOWS
from workflows.run import RunOutcome, RunWorkflow

_REFUSE_BAD_NAMES = "ALTER TABLE assets ADD CONSTRAINT no_bad_names CHECK (value NOT LIKE 'bad.%')"
_ALLOW_BAD_NAMES = "ALTER TABLE assets DROP CONSTRAINT no_bad_names"

DISCONNECTED = "UPDATE workers SET status = 'offline' WHERE id = $1"
BEGUN_ANEW = "UPDATE workers SET incarnation = gen_random_uuid() WHERE id = $1"
"""How a worker is lost, as a change of its row."""


def graph(tool_id: str = "noop", /, **steps: list[str]) -> Definition:
    """A definition of steps with one tool: id → the steps it needs."""
    jobs = {step: {"run": tool_id, "needs": needs} for step, needs in steps.items()}
    return parse_definition({"name": "test", "jobs": jobs})


class Gate:
    """Keeps first attempts in progress until it opens; later ones complete at once."""

    def __init__(self) -> None:
        self._entered = asyncio.Event()
        self._opened = asyncio.Event()

    async def tool(self, step_id: str, job: ClaimedJob) -> Done:
        """The tool of a scan host."""
        if job.attempt == 1:
            self._entered.set()
            await self._opened.wait()
        return Done()

    async def entered(self) -> None:
        """Waits until a first attempt is in progress."""
        await asyncio.wait_for(self._entered.wait(), WAIT_S)

    def open(self) -> None:
        """Lets first attempts complete."""
        self._opened.set()


@dataclass(frozen=True, slots=True)
class RunWorld:
    """One workspace on one database."""

    pool: Pool
    owner_url: str
    temporal: Client
    storage: Storage
    workspace_id: UUID
    limits: Limits = field(default_factory=Limits)
    workflows: Sequence[type] = tuple(WORKFLOWS)
    cached_workflows: int = 1000
    """Workflows that the workers of `workers()` keep in memory; 0 replays each at every task."""

    @asynccontextmanager
    async def workers(self, *, heartbeat_s: float = 30.0) -> AsyncIterator[None]:
        """Core and result workers on the world's own client and pool."""
        core = Worker(
            self.temporal,
            task_queue=names.CORE_QUEUE,
            workflows=self.workflows,
            activities=RunActivities(self.pool, heartbeat_s=heartbeat_s).all(),
            workflow_runner=RUNNER,
            max_cached_workflows=self.cached_workflows,
            # a task that replays all may take 2 s on a busy machine, which the SDK takes for a deadlock
            debug_mode=self.cached_workflows == 0,
            graceful_shutdown_timeout=timedelta(seconds=1),
        )
        results = Worker(
            self.temporal,
            task_queue=names.RESULT_QUEUE,
            activities=[ResultActivities(self.pool, self.storage).settle_batches],
            graceful_shutdown_timeout=timedelta(seconds=1),
        )
        async with core, results:
            yield

    @asynccontextmanager
    async def host(
        self, tool: ToolFunction, *, slots: int = 50, in_bucket: bool = False, toolset: str = "probe"
    ) -> AsyncIterator[ScanHost]:
        """A scan host of the workspace, on a connection of its own.

        `in_bucket` says that its results are staged as objects.
        """
        config = self.temporal.service_client.config
        client = await Client.connect(config.target_host, identity=config.identity)
        storage = self.storage if in_bucket else None
        host = await enrol(self.pool, self.workspace_id, slots=slots, storage=storage, toolset=toolset)
        queue = names.scan_queue(self.workspace_id, toolset)
        async with serve(host, client, tool, slots=slots, queue=queue):
            yield host

    async def begin(self, definition: Definition, count: int = 1) -> UUID:
        """Writes a run over `count` new targets."""
        rows = await self.pool.fetch(
            """INSERT INTO targets (workspace_id, kind, value)
               SELECT $1, 'domain', 'h' || n || '.lab.test' FROM generate_series(1, $2) n RETURNING id""",
            self.workspace_id,
            count,
        )
        return await self.begin_over(definition, [row["id"] for row in rows])

    async def begin_over(self, definition: Definition, target_ids: Sequence[UUID]) -> UUID:
        """Writes a run over these targets."""
        async with self.pool.acquire() as conn, conn.transaction():
            started = await start_run(conn, StartRun(self.workspace_id, definition, list(target_ids), "test"))
            await conn.execute("UPDATE commands SET due_at = clock_timestamp()")
        return started.run_id

    async def relay(self) -> None:
        """Tells Temporal what commands are due."""
        await relay_once(self.pool, self.temporal, self.limits)

    async def start(self, definition: Definition, count: int = 1) -> UUID:
        """Writes a run and starts its workflow."""
        run_id = await self.begin(definition, count)
        await self.relay()
        return run_id

    def handle(self, run_id: UUID) -> WorkflowHandle[RunWorkflow, RunOutcome]:
        """The newest workflow of a run."""
        return self.temporal.get_workflow_handle_for(RunWorkflow.run, names.run_workflow_id(run_id))

    async def end_of(self, run_id: UUID) -> str:
        """Waits for the end of a run's workflow; answers the status that it gives."""
        outcome = await asyncio.wait_for(self.handle(run_id).result(), WAIT_S)
        return outcome.status

    async def cancel(self, run_id: UUID) -> CancelResult:
        """Cancels a run in its rows and tells its workflows to look."""
        async with self.pool.acquire() as conn, conn.transaction():
            cancelled = await cancel_run(conn, self.workspace_id, run_id, Act(reason="enough"))
        await self.relay()
        return cancelled

    async def start_again(self, run_id: UUID) -> None:
        """Starts the workflow of a run again, as a resume does."""
        async with self.pool.acquire() as conn, conn.transaction():
            await write_start(conn, self.workspace_id, run_id)
        await self.relay()

    async def reset(self, run_id: UUID) -> None:
        """Resets the workflow of a run to the end of its first task, as an operator can in Temporal."""
        history = await self.handle(run_id).fetch_history()
        first = next(
            event.event_id
            for event in history.events
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        )
        execution = WorkflowExecution(workflow_id=names.run_workflow_id(run_id))
        await self.temporal.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=self.temporal.namespace,
                workflow_execution=execution,
                workflow_task_finish_event_id=first,
                request_id=str(uuid4()),
                reason="test",
            )
        )

    async def lose(self, host: ScanHost, change: str = DISCONNECTED) -> None:
        """Changes a worker's row so that it is lost, and tells the workflows that this concerns."""
        async with self.pool.acquire() as conn, conn.transaction():
            await conn.execute(change, host.worker_id)
            await nudge_for_worker(conn, host.worker_id)
        await self.relay()

    async def end_back_off(self, run_id: UUID) -> None:
        """Makes every waiting job of a run due and tells its workflow to look."""
        async with self.pool.acquire() as conn, conn.transaction():
            await conn.execute(
                "UPDATE jobs SET due_at = clock_timestamp() WHERE run_id = $1 AND status = 'pending'", run_id
            )
            await nudge(conn, [names.run_workflow_id(run_id)])
        await self.relay()

    async def value(self, sql: str, *arguments: object) -> object:
        """The first column of the first row of a query."""
        return await self.pool.fetchval(sql, *arguments)

    async def row(self, sql: str, *arguments: object) -> tuple[object, ...]:
        """The only row of a query."""
        rows = await self.pool.fetch(sql, *arguments)
        assert len(rows) == 1, rows
        return tuple(rows[0])

    async def assets(self) -> list[str]:
        """Names in the inventory, sorted."""
        rows = await self.pool.fetch("SELECT value FROM assets WHERE workspace_id = $1", self.workspace_id)
        return sorted(row["value"] for row in rows)

    async def staged(self) -> tuple[int, int]:
        """How many staged results there are: rows, and objects in the bucket."""
        rows = await self.pool.fetchval(
            "SELECT count(*) FROM job_results WHERE workspace_id = $1", self.workspace_id
        )
        return rows, len(await self.storage.keys(f"{self.workspace_id}/"))

    async def until(self, sql: str, *arguments: object) -> None:
        """Waits until a query answers true."""
        await until(lambda: self.pool.fetchval(sql, *arguments))

    async def until_timer(self, run_id: UUID) -> None:
        """Waits until the workflow of a run has set a timer."""

        async def has_timer() -> bool:
            events = (await self.handle(run_id).fetch_history()).events
            return any(event.event_type == EventType.EVENT_TYPE_TIMER_STARTED for event in events)

        await until(has_timer)

    async def count_jobs(self, run_id: UUID) -> dict[str, int]:
        """Jobs of a run by status."""
        rows = await self.pool.fetch("SELECT status, count(*) FROM jobs WHERE run_id = $1 GROUP BY 1", run_id)
        return {row[0]: row[1] for row in rows}

    @asynccontextmanager
    async def broken_merge(self) -> AsyncIterator[None]:
        """The database refuses assets named `bad.…` meanwhile: a record set with one cannot be merged."""
        owner = await asyncpg.connect(self.owner_url)
        try:
            await owner.execute(_REFUSE_BAD_NAMES)
            yield
            await owner.execute(_ALLOW_BAD_NAMES)
        finally:
            await owner.close()

    async def change(self, statement: str) -> None:
        """Changes the schema."""
        owner = await asyncpg.connect(self.owner_url)
        try:
            await owner.execute(statement)
        finally:
            await owner.close()
