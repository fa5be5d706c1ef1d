"""A scan host that speaks to the gateway without an SDK: it sends what it likes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import pytest
from google.protobuf.message import Message
from grpc import StatusCode, aio
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    RecordActivityTaskHeartbeatRequest,
    RecordActivityTaskHeartbeatResponse,
    RespondActivityTaskCompletedRequest,
    RespondActivityTaskCompletedResponse,
)

from runlane import names
from runlane.errors import Refused
from tests.integration.worker_host import NOTHING, Host, joined_host, open_stream
from tests.integration.worker_world import World

SERVICE = "/temporal.api.workflowservice.v1.WorkflowService/"
BEAT_S = 2.0
AnswerT = TypeVar("AnswerT", bound=Message)


@dataclass(frozen=True, slots=True)
class RawHost:
    """A credential, and a connection to the gateway."""

    world: World
    channel: aio.Channel
    token: str
    incarnation: str
    host: Host

    @property
    def queue(self) -> str:
        """The queue that it may poll."""
        return self.host.joined.queues[0].task_queue

    async def send(self, path: str, request: bytes, timeout_s: float = 20) -> bytes:
        """Sends bytes to whatever method."""
        metadata = [("authorization", f"Bearer {self.token}")] if self.token else []
        if self.incarnation:
            metadata.append((names.GATEWAY_INCARNATION_KEY, self.incarnation))
        method: aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(path)
        return await method(request, timeout=timeout_s, metadata=tuple(metadata))

    async def call(
        self, method: str, request: Message, answer: type[AnswerT], timeout_s: float = 20
    ) -> AnswerT:
        """Calls a method of the workflow service."""
        return answer.FromString(await self.send(SERVICE + method, request.SerializeToString(), timeout_s))

    async def poll(self, queue: str | None = None, timeout_s: float = 20) -> PollActivityTaskQueueResponse:
        """Polls a queue, its own unless another is named."""
        request = PollActivityTaskQueueRequest(
            namespace="default", task_queue=TaskQueue(name=queue or self.queue)
        )
        return await self.call("PollActivityTaskQueue", request, PollActivityTaskQueueResponse, timeout_s)

    async def beat(self, task_token: bytes) -> None:
        """Sends a heartbeat of a task."""
        request = RecordActivityTaskHeartbeatRequest(namespace="default", task_token=task_token)
        await self.call("RecordActivityTaskHeartbeat", request, RecordActivityTaskHeartbeatResponse)

    async def complete(self, task_token: bytes) -> None:
        """Says that a task is done, with a result of nothing."""
        request = RespondActivityTaskCompletedRequest(namespace="default", task_token=task_token)
        await self.call("RespondActivityTaskCompleted", request, RespondActivityTaskCompletedResponse)


@asynccontextmanager
async def raw_host(world: World, secret: str | None = None) -> AsyncIterator[RawHost]:
    """An enrolled host whose control stream is not open."""
    address = f"127.0.0.1:{world.settings.gateway_port}"
    async with joined_host(world, secret) as host, aio.insecure_channel(address) as channel:
        yield RawHost(world, channel, host.joined.token or "", host.incarnation, host)


@asynccontextmanager
async def present_host(world: World, secret: str | None = None) -> AsyncIterator[RawHost]:
    """An enrolled host that is there, however long the test takes."""
    async with raw_host(world, secret) as host, open_stream(world, host.host):
        beating = asyncio.create_task(_beat(host.host))
        try:
            yield host
        finally:
            beating.cancel()
            await asyncio.wait([beating])


async def _beat(host: Host) -> None:
    with suppress(Refused):  # the test has ended this life
        while True:
            await host.api.heartbeat(NOTHING)
            await asyncio.sleep(BEAT_S)


@asynccontextmanager
async def refused(code: StatusCode) -> AsyncIterator[None]:
    """The block ends with this status of a call."""
    with pytest.raises(aio.AioRpcError) as error:
        yield
    assert error.value.code() is code, error.value.details()
