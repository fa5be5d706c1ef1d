"""Whose call it is, and what of Temporal is this worker's."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue

from runlane.gateway.faults import denied
from runlane.gateway.seal import Seal

_CONTROL_QUEUE: Final = "temporal-sys/worker-commands"
_PLAIN_KINDS: Final = (TaskQueueKind.TASK_QUEUE_KIND_UNSPECIFIED, TaskQueueKind.TASK_QUEUE_KIND_NORMAL)


@dataclass(frozen=True, slots=True)
class Caller:
    """One life of a worker, as far as a call of it is concerned."""

    seal: Seal
    namespace: str
    queues: Collection[str]
    """The task queues that its row allows."""

    @property
    def identity(self) -> str:
        """Who it is in the history of a workflow, whatever it says of itself."""
        return f"{self.seal.worker_id}/{self.seal.incarnation}"

    def own_namespace(self, asked: str) -> str:
        """The namespace.

        Raises:
            Fault: PERMISSION_DENIED, another one was asked for.
        """
        if asked != self.namespace:
            raise denied("not the namespace of this worker")
        return self.namespace

    def own_queue(self, asked: TaskQueue) -> TaskQueue:
        """The queue to be polled for activities.

        Raises:
            Fault: PERMISSION_DENIED, it is not one of the worker's, or not an ordinary one.
        """
        if asked.kind not in _PLAIN_KINDS or asked.name not in self.queues:
            raise denied("not a queue of this worker")
        return TaskQueue(name=asked.name, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL)

    def control_queue(self, asked: TaskQueue) -> TaskQueue:
        """The queue to be polled for commands: whatever was asked for, it is one that only this life reaches.

        Raises:
            Fault: PERMISSION_DENIED, the queue is not for commands.
        """
        if asked.kind != TaskQueueKind.TASK_QUEUE_KIND_WORKER_COMMANDS:
            raise denied("not a queue for commands")
        return TaskQueue(name=self.control_queue_name(asked.name), kind=asked.kind)

    def control_queue_name(self, asked: str) -> str:
        """Name of that queue in Temporal; empty stays empty."""
        return f"{_CONTROL_QUEUE}/{self.namespace}/{self.seal.name('control', asked)}" if asked else ""

    def queue_name(self, asked: str) -> str:
        """A queue that the worker tells of: one of its own, or its queue for commands.

        Raises:
            Fault: PERMISSION_DENIED, it is neither.
        """
        if not asked or asked in self.queues:
            return asked
        if asked.startswith(f"{_CONTROL_QUEUE}/"):
            return self.control_queue_name(asked)
        raise denied("not a queue of this worker")
