"""Examines Temporal: abilities, search attributes, and settings that it accepts and silently ignores."""

import asyncio
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    DescribeNamespaceRequest,
    GetSystemInfoRequest,
    ListTaskQueuePartitionsRequest,
    PollWorkflowTaskQueueRequest,
)
from temporalio.client import Client
from temporalio.common import Priority
from temporalio.service import RPCError

from runlane.settings import Settings
from runlane.stack.findings import ANSWER_TIMEOUT_S, Check, Level
from runlane.stack.temporal_settings import SEARCH_ATTRIBUTES

CONNECT_TIMEOUT_S: Final = 5.0
CAPABILITIES: Final[Mapping[str, str]] = {
    "worker_commands": (
        "frontend.WorkerCommandsEnabled and system.enableCancelActivityWorkerCommand are off: "
        "a cancel reaches a tool with its next heartbeat (up to 24 s) instead of at once"
    ),
    "poller_autoscaling": "workers keep a fixed number of polls: more load on the server",
    "reported_problems_search_attribute": "workflows with failing tasks cannot be searched for",
}
"""Ability of the namespace → what its absence costs."""
SETTLE_S: Final = (0.15, 0.5, 1.5)
"""Pauses for the tasks to arrive, one for each try (seconds)."""
CROWD: Final = 12
"""Tasks of one fairness key put in front of a single one of another."""
FAIR_PLACE: Final = 4
"""A fair server serves the single task second."""


async def check_temporal(settings: Settings) -> list[Check]:
    """Everything that can be learnt about the server and its namespace within a second."""
    if not settings.temporal_address:
        return [Check("temporal", Level.FAIL, "RUNLANE_TEMPORAL_ADDRESS not set; start with `runlane up`")]
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            client = await Client.connect(settings.temporal_address, namespace=settings.temporal_namespace)
            checks = [await _server(client), *await _capabilities(client), *await _attributes(client)]
        partitions = await _count_partitions(client)
        return [*checks, _judge_partitions(partitions), await _fairness(client, partitions)]
    except (RPCError, RuntimeError, TimeoutError) as error:
        return [Check("temporal", Level.FAIL, f"{settings.temporal_address}: {error}")]


async def _server(client: Client) -> Check:
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest())
    return Check("temporal", Level.OK, f"version {info.server_version}, namespace {client.namespace}")


async def _capabilities(client: Client) -> list[Check]:
    answer = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace)
    )
    found = answer.namespace_info.capabilities
    checks = []
    for name, cost in CAPABILITIES.items():
        level, detail = (Level.OK, "on") if getattr(found, name) else (Level.WARN, cost)
        checks.append(Check(f"temporal {name}", level, detail))
    return checks


async def _attributes(client: Client) -> list[Check]:
    answer = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    missing = sorted(set(SEARCH_ATTRIBUTES) - set(answer.custom_attributes))
    if missing:
        return [
            Check(
                "temporal search attributes", Level.FAIL, f"missing: {', '.join(missing)}; no run can start"
            )
        ]
    return [Check("temporal search attributes", Level.OK, ", ".join(SEARCH_ATTRIBUTES))]


async def _count_partitions(client: Client) -> int:
    queue = TaskQueue(name="runlane-doctor")
    request = ListTaskQueuePartitionsRequest(namespace=client.namespace, task_queue=queue)
    answer = await client.workflow_service.list_task_queue_partitions(request)
    return max(len(answer.activity_task_queue_partitions), 1)


def _judge_partitions(count: int) -> Check:
    if count > 1:
        detail = f"{count} partitions (matching.numTaskqueue*Partitions): priority is only approximate"
        return Check("temporal partitions", Level.WARN, detail)
    return Check("temporal partitions", Level.OK, "one: priority is exact")


async def _fairness(client: Client, partitions: int) -> Check:
    """Puts one task behind a crowd and looks when it is served: no interface tells the setting.

    A started workflow's task arrives a little later, and order is only decided among those that wait; hence
    the pauses. An unfair server with one partition never serves the single task early: one early answer is
    proof.
    """
    if partitions > 1:
        detail = "cannot be told with several partitions; see matching.enableFairness"
        return Check("temporal fairness", Level.WARN, detail)
    for pause_s in SETTLE_S:
        if await _place_in_crowd(client, pause_s) <= FAIR_PLACE:
            return Check("temporal fairness", Level.OK, "on")
    detail = "matching.enableFairness is off: one busy workspace or run starves the others on shared queues"
    return Check("temporal fairness", Level.WARN, detail)


async def _place_in_crowd(client: Client, pause_s: float) -> int:
    queue = f"runlane-doctor-{secrets.token_hex(8)}"
    ids = [f"{queue}/{number}" for number in range(CROWD + 1)]
    try:
        await _enqueue(client, queue, ids[:-1], "crowd")
        await asyncio.sleep(pause_s)
        await _enqueue(client, queue, ids[-1:], "single")
        await asyncio.sleep(pause_s)
        return await _place_of(client, queue, ids[-1])
    finally:
        await _delete(client, ids)


async def _enqueue(client: Client, queue: str, ids: list[str], key: str) -> None:
    for workflow_id in ids:
        await client.start_workflow(
            "RunlaneDoctor",
            id=workflow_id,
            task_queue=queue,
            priority=Priority(fairness_key=key),
            execution_timeout=timedelta(minutes=1),
        )


async def _place_of(client: Client, queue: str, workflow_id: str) -> int:
    request = PollWorkflowTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), identity="runlane-doctor"
    )
    for place in range(1, CROWD + 2):
        timeout = timedelta(seconds=ANSWER_TIMEOUT_S)
        task = await client.workflow_service.poll_workflow_task_queue(request, timeout=timeout)
        if task.workflow_execution.workflow_id == workflow_id:
            return place
    return CROWD + 1


async def _delete(client: Client, ids: list[str]) -> None:
    for workflow_id in ids:
        request = DeleteWorkflowExecutionRequest(
            namespace=client.namespace, workflow_execution=WorkflowExecution(workflow_id=workflow_id)
        )
        try:
            await client.workflow_service.delete_workflow_execution(request)
        except RPCError:
            return  # the server went away; what is left ends by its own time limit
