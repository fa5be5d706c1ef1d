"""Starts the workflow of a run: the one place that knows its id, policies and search attributes."""

from dataclasses import dataclass
from uuid import UUID

from temporalio.client import Client
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from runlane import names
from workflows.dispatching import Limits
from workflows.run import RUN_STATUS, RunInput, RunWorkflow

WORKSPACE = SearchAttributeKey.for_keyword(names.SA_WORKSPACE)
RUN_KIND = SearchAttributeKey.for_keyword(names.SA_RUN_KIND)


@dataclass(frozen=True, slots=True)
class RunToStart:
    """A run's row, as far as Temporal shows it."""

    run_id: UUID
    workspace_id: UUID
    name: str
    kind: str


async def start_run_workflow(client: Client, run: RunToStart, limits: Limits) -> None:
    """Starts the run's workflow, or finds it running: a second call does nothing.

    A run that has ended may be started again; its workflow reads the rows and returns at once.

    Raises:
        temporalio.service.RPCError: Temporal does not answer or refuses.
    """
    await client.start_workflow(
        RunWorkflow.run,
        RunInput(str(run.run_id), str(run.workspace_id), limits),
        id=names.run_workflow_id(run.run_id),
        task_queue=names.CORE_QUEUE,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(WORKSPACE, str(run.workspace_id)),
                SearchAttributePair(RUN_KIND, run.kind),
                SearchAttributePair(RUN_STATUS, "accepted"),
            ]
        ),
        static_summary=f"run of {run.kind}",
    )
