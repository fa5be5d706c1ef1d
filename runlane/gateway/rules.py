"""Which calls of a scan worker go to Temporal, and in which form. What is not here is refused.

Each request is built anew from the fields that an activity worker needs, so that a field which a newer server
understands, or one that acts on others (a rate for the whole queue), does not pass unseen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from temporalio.api.nexusservices.workerservice.v1 import ExecuteCommandsRequest
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    GetSystemInfoRequest,
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    PollNexusTaskQueueRequest,
    PollNexusTaskQueueResponse,
    RecordActivityTaskHeartbeatRequest,
    RecordWorkerHeartbeatRequest,
    RespondActivityTaskCanceledRequest,
    RespondActivityTaskCompletedRequest,
    RespondActivityTaskFailedRequest,
    RespondNexusTaskCompletedRequest,
    RespondNexusTaskFailedRequest,
    ShutdownWorkerRequest,
)

from runlane.gateway import answers
from runlane.gateway.caller import Caller
from runlane.gateway.faults import denied, malformed

_SERVICE: Final = "/temporal.api.workflowservice.v1.WorkflowService/"
_WORK_POLL: Final = f"{_SERVICE}PollActivityTaskQueue"
_COMMANDS: Final = "ExecuteCommands"
_ACTIVITY: Final = "activity"
_NEXUS: Final = "nexus"
_MOST_HEARTBEATS: Final = 16
"""Workers of one host in a heartbeat: one for each tool set."""

MessageT = TypeVar("MessageT", bound=Message)
Rewrite = Callable[[bytes, Caller], bytes]


class Kind(StrEnum):
    """How a call is to be treated."""

    FACT = "fact"  # the same for every worker, and remembered
    POLL = "poll"  # waits for a task; not while the worker is away
    TASK = "task"  # about a task that the worker was given
    REPORT = "report"  # says something of the worker


@dataclass(frozen=True, slots=True)
class Rule:
    """One call that is let through."""

    kind: Kind
    inbound: Rewrite
    """Makes the request that Temporal gets. Raises Fault for what the caller may not have."""
    outbound: Rewrite
    """Makes the answer that the worker gets."""


def read(kind: type[MessageT], raw: bytes) -> MessageT:
    """Parses a message and forgets what this version does not know.

    Raises:
        Fault: INVALID_ARGUMENT, the bytes are none.
    """
    try:
        message = kind.FromString(raw)
    except DecodeError as error:
        raise malformed() from error
    message.DiscardUnknownFields()
    return message


def polled_queue(method: str, request: bytes) -> str:
    """The queue that a request asks for work; empty if it asks for something else."""
    if method != _WORK_POLL:
        return ""
    return read(PollActivityTaskQueueRequest, request).task_queue.name


def _as_it_is(raw: bytes, _caller: Caller) -> bytes:
    return raw


def _system_info(raw: bytes, _caller: Caller) -> bytes:
    read(GetSystemInfoRequest, raw)
    return b""


def _namespace(raw: bytes, caller: Caller) -> bytes:
    asked = read(DescribeNamespaceRequest, raw)
    return DescribeNamespaceRequest(namespace=caller.own_namespace(asked.namespace)).SerializeToString()


def _namespace_answer(raw: bytes, _caller: Caller) -> bytes:
    """What a worker needs: abilities and limits, no owner, no data, no replication."""
    whole = read(DescribeNamespaceResponse, raw).namespace_info
    answer = DescribeNamespaceResponse()
    answer.namespace_info.name = whole.name
    answer.namespace_info.state = whole.state
    answer.namespace_info.capabilities.CopyFrom(whole.capabilities)
    answer.namespace_info.limits.CopyFrom(whole.limits)
    return answer.SerializeToString()


def _activity_poll(raw: bytes, caller: Caller) -> bytes:
    asked = read(PollActivityTaskQueueRequest, raw)
    return PollActivityTaskQueueRequest(
        namespace=caller.own_namespace(asked.namespace),
        task_queue=caller.own_queue(asked.task_queue),
        identity=caller.identity,
        worker_instance_key=caller.seal.name("instance", asked.worker_instance_key),
        worker_control_task_queue=caller.control_queue_name(asked.worker_control_task_queue),
    ).SerializeToString()


def _activity_task(raw: bytes, caller: Caller) -> bytes:
    task = read(PollActivityTaskQueueResponse, raw)
    task.task_token = caller.seal.wrap(_ACTIVITY, task.task_token)
    task.ClearField("poller_group_infos")
    task.ClearField("poller_groups_info")
    return task.SerializeToString()


def _heartbeat(raw: bytes, caller: Caller) -> bytes:
    beat = read(RecordActivityTaskHeartbeatRequest, raw)
    return RecordActivityTaskHeartbeatRequest(
        namespace=caller.own_namespace(beat.namespace),
        task_token=caller.seal.unwrap(_ACTIVITY, beat.task_token),
        identity=caller.identity,
        details=answers.details(beat.details),
    ).SerializeToString()


def _completed(raw: bytes, caller: Caller) -> bytes:
    answer = read(RespondActivityTaskCompletedRequest, raw)
    return RespondActivityTaskCompletedRequest(
        namespace=caller.own_namespace(answer.namespace),
        task_token=caller.seal.unwrap(_ACTIVITY, answer.task_token),
        identity=caller.identity,
        result=answers.result(answer.result),
    ).SerializeToString()


def _failed(raw: bytes, caller: Caller) -> bytes:
    answer = read(RespondActivityTaskFailedRequest, raw)
    return RespondActivityTaskFailedRequest(
        namespace=caller.own_namespace(answer.namespace),
        task_token=caller.seal.unwrap(_ACTIVITY, answer.task_token),
        identity=caller.identity,
        failure=answers.failure(answer.failure),
    ).SerializeToString()


def _canceled(raw: bytes, caller: Caller) -> bytes:
    answer = read(RespondActivityTaskCanceledRequest, raw)
    return RespondActivityTaskCanceledRequest(
        namespace=caller.own_namespace(answer.namespace),
        task_token=caller.seal.unwrap(_ACTIVITY, answer.task_token),
        identity=caller.identity,
    ).SerializeToString()


def _command_poll(raw: bytes, caller: Caller) -> bytes:
    asked = read(PollNexusTaskQueueRequest, raw)
    return PollNexusTaskQueueRequest(
        namespace=caller.own_namespace(asked.namespace),
        task_queue=caller.control_queue(asked.task_queue),
        identity=caller.identity,
        worker_instance_key=caller.seal.name("instance", asked.worker_instance_key),
    ).SerializeToString()


def _command(raw: bytes, caller: Caller) -> bytes:
    """A pushed cancel names its task by Temporal's token, and the worker knows it by the sealed one."""
    task = read(PollNexusTaskQueueResponse, raw)
    task.task_token = caller.seal.wrap(_NEXUS, task.task_token)
    task.ClearField("poller_group_infos")
    task.ClearField("poller_groups_info")
    if task.request.HasField("start_operation"):
        start = task.request.start_operation
        given = read(ExecuteCommandsRequest, start.payload.data if start.operation == _COMMANDS else b"")
        start.payload.data = _sealed_commands(given, caller).SerializeToString()
    return task.SerializeToString()


def _sealed_commands(given: ExecuteCommandsRequest, caller: Caller) -> ExecuteCommandsRequest:
    sealed = ExecuteCommandsRequest()
    for command in given.commands:
        if command.HasField("cancel_activity"):
            token = caller.seal.wrap(_ACTIVITY, command.cancel_activity.task_token)
            sealed.commands.add().cancel_activity.task_token = token
    return sealed


def _command_done(raw: bytes, caller: Caller) -> bytes:
    answer = read(RespondNexusTaskCompletedRequest, raw)
    return RespondNexusTaskCompletedRequest(
        namespace=caller.own_namespace(answer.namespace),
        task_token=caller.seal.unwrap(_NEXUS, answer.task_token),
        identity=caller.identity,
        response=answer.response,
    ).SerializeToString()


def _command_failed(raw: bytes, caller: Caller) -> bytes:
    answer = read(RespondNexusTaskFailedRequest, raw)
    sealed = RespondNexusTaskFailedRequest(
        namespace=caller.own_namespace(answer.namespace),
        task_token=caller.seal.unwrap(_NEXUS, answer.task_token),
        identity=caller.identity,
    )
    if answer.HasField("error"):
        sealed.error.CopyFrom(answer.error)
    if answer.HasField("failure"):
        sealed.failure.CopyFrom(answer.failure)
    return sealed.SerializeToString()


def _worker_heartbeat(raw: bytes, caller: Caller) -> bytes:
    beat = read(RecordWorkerHeartbeatRequest, raw)
    if len(beat.worker_heartbeat) > _MOST_HEARTBEATS:
        raise denied("too many workers in one heartbeat")
    return RecordWorkerHeartbeatRequest(
        namespace=caller.own_namespace(beat.namespace),
        identity=caller.identity,
        worker_heartbeat=[_own(each, caller) for each in beat.worker_heartbeat],
    ).SerializeToString()


def _shutdown(raw: bytes, caller: Caller) -> bytes:
    end = read(ShutdownWorkerRequest, raw)
    if end.sticky_task_queue:
        raise denied("not a queue of this worker")
    sealed = ShutdownWorkerRequest(
        namespace=caller.own_namespace(end.namespace),
        identity=caller.identity,
        reason="graceful shutdown",
        worker_instance_key=caller.seal.name("instance", end.worker_instance_key),
        task_queue=caller.queue_name(end.task_queue),
        task_queue_types=end.task_queue_types,
    )
    if end.HasField("worker_heartbeat"):
        sealed.worker_heartbeat.CopyFrom(_own(end.worker_heartbeat, caller))
    return sealed.SerializeToString()


def _own(said: WorkerHeartbeat, caller: Caller) -> WorkerHeartbeat:
    """What a worker says of itself, under its own name and about its own queues."""
    said.worker_identity = caller.identity
    said.worker_instance_key = caller.seal.name("instance", said.worker_instance_key)
    said.task_queue = caller.queue_name(said.task_queue)
    return said


RULES: Final[Mapping[str, Rule]] = {
    _SERVICE + method: rule
    for method, rule in {
        "GetSystemInfo": Rule(Kind.FACT, _system_info, _as_it_is),
        "DescribeNamespace": Rule(Kind.FACT, _namespace, _namespace_answer),
        "PollActivityTaskQueue": Rule(Kind.POLL, _activity_poll, _activity_task),
        "RecordActivityTaskHeartbeat": Rule(Kind.TASK, _heartbeat, _as_it_is),
        "RespondActivityTaskCompleted": Rule(Kind.TASK, _completed, _as_it_is),
        "RespondActivityTaskFailed": Rule(Kind.TASK, _failed, _as_it_is),
        "RespondActivityTaskCanceled": Rule(Kind.TASK, _canceled, _as_it_is),
        "PollNexusTaskQueue": Rule(Kind.POLL, _command_poll, _command),
        "RespondNexusTaskCompleted": Rule(Kind.TASK, _command_done, _as_it_is),
        "RespondNexusTaskFailed": Rule(Kind.TASK, _command_failed, _as_it_is),
        "RecordWorkerHeartbeat": Rule(Kind.REPORT, _worker_heartbeat, _as_it_is),
        "ShutdownWorker": Rule(Kind.REPORT, _shutdown, _as_it_is),
    }.items()
}
"""By the whole path of the method: a part of it may be that of another service."""
