"""Starts the workflow that delivers to an endpoint: the one place that knows its policies."""

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy

from runlane import names
from workflows.deliver import DeliverInput, DeliverWorkflow


async def start_deliveries(client: Client, workflow_id: str) -> None:
    """Has one more turn made at an endpoint, by the workflow that runs there or by a new one. Repeatable.

    Raises:
        temporalio.service.RPCError: Temporal does not answer or refuses.
    """
    await client.start_workflow(
        DeliverWorkflow.run,
        DeliverInput(str(names.integration_of(workflow_id))),
        id=workflow_id,
        task_queue=names.CORE_QUEUE,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        start_signal=names.NUDGE_SIGNAL,
        static_summary="deliveries to an integration",
    )
