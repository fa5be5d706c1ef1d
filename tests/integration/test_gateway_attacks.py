"""A scan host that does not keep to the rules: nothing but its own work is within its reach."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from google.protobuf.message import Message
from grpc import StatusCode
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TaskQueueKind, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice import v1 as api
from temporalio.client import Client

from runlane import names
from runlane.db.acts import Act
from runlane.db.keys import NewKey, Scope, create_key
from runlane.db.pool import Pool, open_pool
from runlane.db.revoking import revoke_worker
from runlane.gateway import rates, roster
from runlane.gateway.faults import Fault
from runlane.gateway.roster import MOST_POLLS, Roster
from runlane.gateway.server import MOST_MESSAGE_BYTES
from runlane.settings import Settings
from tests.integration.gateway_host import SERVICE, RawHost, present_host, raw_host, refused
from tests.integration.worker_host import next_of, open_stream
from tests.integration.worker_world import World, core_of, world_of
from tests.waiting import WAIT_S, until

pytestmark = pytest.mark.integration

SEAL_BYTES = 32
CONTROL = TaskQueueKind.TASK_QUEUE_KIND_WORKER_COMMANDS
EXECUTION = WorkflowExecution(workflow_id="run/x")


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


async def stranger_key(world: World) -> str:
    """An enrolment key of another workspace."""
    other = await world.pool.fetchval("INSERT INTO workspaces (name) VALUES ('other') RETURNING id")
    pepper = world.settings.key_pepper.get_secret_value().encode()
    async with world.pool.acquire() as conn:
        return (await create_key(conn, NewKey("enrol", other, [Scope.WORKER_JOIN]), pepper)).plaintext


class TestCredentials:
    async def test_nobody_but_a_living_worker_is_let_in(self, world: World) -> None:
        info = api.GetSystemInfoRequest()
        async with raw_host(world) as host:
            assert (await host.call("GetSystemInfo", info, api.GetSystemInfoResponse)).server_version
            for stranger in (
                replace(host, token=""),
                replace(host, token="rlw_x"),
                replace(host, token=host.token[:-1] + ("A" if host.token[-1] != "A" else "B")),
                replace(host, token=world.enrolment_key),
                replace(host, token=f"rlw_{uuid4().hex}_{'x' * 43}"),
                replace(host, incarnation=""),
                replace(host, incarnation="no uuid"),
                replace(host, incarnation=str(uuid4())),
            ):
                async with refused(StatusCode.UNAUTHENTICATED):
                    await stranger.call("GetSystemInfo", info, api.GetSystemInfoResponse)

    async def test_worker_that_calls_too_often_is_slowed_down(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rates, "BURST", 2.0)
        monkeypatch.setattr(rates, "CALLS_PER_S", 0.0)
        async with raw_host(world) as host:
            for _ in range(2):
                await host.call("GetSystemInfo", api.GetSystemInfoRequest(), api.GetSystemInfoResponse)
            async with refused(StatusCode.RESOURCE_EXHAUSTED):
                await host.call("GetSystemInfo", api.GetSystemInfoRequest(), api.GetSystemInfoResponse)

    async def test_message_that_is_too_large_is_refused(self, world: World) -> None:
        async with raw_host(world) as host, refused(StatusCode.RESOURCE_EXHAUSTED):
            await host.complete(b"x" * (MOST_MESSAGE_BYTES + 1))


def attacks(queue: str) -> list[tuple[str, Message]]:
    """Methods and requests that are not a scan worker's."""
    sticky = TaskQueueKind.TASK_QUEUE_KIND_STICKY
    mine = TaskQueue(name=queue)
    return [
        ("PollWorkflowTaskQueue", api.PollWorkflowTaskQueueRequest(namespace="default", task_queue=mine)),
        ("StartWorkflowExecution", api.StartWorkflowExecutionRequest(namespace="default", workflow_id="x")),
        ("ListWorkflowExecutions", api.ListWorkflowExecutionsRequest(namespace="default")),
        (
            "GetWorkflowExecutionHistory",
            api.GetWorkflowExecutionHistoryRequest(namespace="default", execution=EXECUTION),
        ),
        (
            "TerminateWorkflowExecution",
            api.TerminateWorkflowExecutionRequest(namespace="default", workflow_execution=EXECUTION),
        ),
        (
            "SignalWorkflowExecution",
            api.SignalWorkflowExecutionRequest(
                namespace="default", workflow_execution=EXECUTION, signal_name=names.NUDGE_SIGNAL
            ),
        ),
        ("QueryWorkflow", api.QueryWorkflowRequest(namespace="default", execution=EXECUTION)),
        ("DescribeTaskQueue", api.DescribeTaskQueueRequest(namespace="default", task_queue=mine)),
        ("ListWorkers", api.ListWorkersRequest(namespace="default")),
        ("RegisterNamespace", api.RegisterNamespaceRequest(namespace="mine")),
        (
            "RespondActivityTaskCompletedById",
            api.RespondActivityTaskCompletedByIdRequest(namespace="default", workflow_id="run/x"),
        ),
        ("DescribeNamespace", api.DescribeNamespaceRequest(namespace="temporal-system")),
        (
            "PollActivityTaskQueue",
            api.PollActivityTaskQueueRequest(namespace="other", task_queue=mine),
        ),
        *(
            ("PollActivityTaskQueue", api.PollActivityTaskQueueRequest(namespace="default", task_queue=each))
            for each in (
                TaskQueue(name=names.CORE_QUEUE),
                TaskQueue(name=names.RESULT_QUEUE),
                TaskQueue(name=names.scan_queue(uuid4(), "probe")),
                TaskQueue(name=names.shared_scan_queue("probe")),
                TaskQueue(name=f"/_sys/{queue}/1"),
                TaskQueue(name=queue, kind=sticky),
                TaskQueue(name=queue, kind=CONTROL),
            )
        ),
        ("PollNexusTaskQueue", api.PollNexusTaskQueueRequest(namespace="default", task_queue=mine)),
        (
            "ShutdownWorker",
            api.ShutdownWorkerRequest(namespace="default", sticky_task_queue=names.CORE_QUEUE),
        ),
        ("ShutdownWorker", api.ShutdownWorkerRequest(namespace="default", task_queue=names.CORE_QUEUE)),
    ]


class TestReach:
    async def test_nothing_but_its_own_queues_and_calls_is_reached(self, world: World) -> None:
        async with present_host(world) as host:
            for method, request in attacks(host.queue):
                async with refused(StatusCode.PERMISSION_DENIED):
                    await host.send(SERVICE + method, request.SerializeToString())
            for path in (
                "/temporal.api.operatorservice.v1.OperatorService/ListSearchAttributes",
                "/temporal.server.api.adminservice.v1.AdminService/DescribeCluster",
                "/grpc.health.v1.Health/Check",
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                "/x/GetSystemInfo",
                f"/{SERVICE}GetSystemInfo",
            ):
                async with refused(StatusCode.PERMISSION_DENIED):
                    await host.send(path, b"")

    async def test_bytes_that_are_no_message_are_refused(self, world: World) -> None:
        async with present_host(world) as host, refused(StatusCode.INVALID_ARGUMENT):
            await host.send(f"{SERVICE}PollActivityTaskQueue", b"\xff\xff\xff")

    async def test_owner_and_data_of_the_namespace_are_not_shown(self, world: World) -> None:
        async with raw_host(world) as host:
            request = api.DescribeNamespaceRequest(namespace="default")
            answer = await host.call("DescribeNamespace", request, api.DescribeNamespaceResponse)
        assert {field.name for field, _ in answer.ListFields()} == {"namespace_info"}
        shown = {field.name for field, _ in answer.namespace_info.ListFields()}
        assert shown <= {"name", "state", "capabilities", "limits"}

    async def test_commands_for_another_worker_are_not_heard(self, world: World) -> None:
        """A worker chooses the name of its queue for commands; whoever guesses it reaches one of his own."""
        guessed = TaskQueue(name="temporal-sys/worker-commands/default/guessed", kind=CONTROL)
        request = api.PollNexusTaskQueueRequest(namespace="default", task_queue=guessed)
        async with present_host(world) as host:
            answer = await host.call("PollNexusTaskQueue", request, api.PollNexusTaskQueueResponse, 4)
        assert not answer.task_token

    async def test_polls_of_one_worker_are_limited(self, world: World) -> None:
        async with present_host(world) as host:
            polls = [asyncio.create_task(host.poll()) for _ in range(MOST_POLLS + 1)]
            (refusal,), _ = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
            async with refused(StatusCode.RESOURCE_EXHAUSTED):
                refusal.result()
            for poll in polls:
                poll.cancel()
            await asyncio.wait(polls)


class TestTasks:
    @pytest_asyncio.fixture
    async def running(self, world: World) -> AsyncIterator[World]:
        async with core_of(world.settings):
            yield world

    async def test_task_is_its_workers_alone_and_answered_once(self, running: World) -> None:
        await running.start_run(1)
        async with (
            present_host(running) as host,
            present_host(running) as colleague,
            present_host(running, await stranger_key(running)) as stranger,
        ):
            token = (await host.poll()).task_token
            raw = token[SEAL_BYTES:]
            flipped = bytes([token[0] ^ 1]) + token[1:]
            forged = [
                (colleague, token),
                (stranger, token),
                (host, raw),
                (stranger, raw),
                (host, flipped),
                (host, b""),
                (host, b"x"),
                (host, token[:SEAL_BYTES]),
                (host, token + b"x"),
            ]
            for thief, stolen in forged:
                async with refused(StatusCode.NOT_FOUND):
                    await thief.beat(stolen)
                async with refused(StatusCode.NOT_FOUND):
                    await thief.complete(stolen)

            await host.beat(token)
            await host.complete(token)
            async with refused(StatusCode.NOT_FOUND):
                await host.complete(token)

    async def test_task_of_an_earlier_life_is_over(self, running: World) -> None:
        await running.start_run(1)
        async with present_host(running) as host:
            token = (await host.poll()).task_token
            await host.beat(token)
            later = str(uuid4())
            await running.pool.execute("UPDATE workers SET incarnation = $1", later)

            for life in (host, replace(host, incarnation=later)):
                async with refused(StatusCode.NOT_FOUND):
                    await self._until_noticed(life, token)
            async with refused(StatusCode.UNAUTHENTICATED):
                await host.poll()

    async def _until_noticed(self, host: RawHost, token: bytes) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                await host.beat(token)

    async def test_forged_answer_completes_no_job_and_stops_no_run(self, running: World) -> None:
        """The answer has no payload, which no workflow could read."""
        run_id = await running.start_run(2)
        async with present_host(running) as host:
            await host.complete((await host.poll()).task_token)

        async with running.scan_worker("honest"):
            assert await running.closed(run_id) == "completed"
        assert await running.attempts(run_id) == {"completed": 2}

    async def test_task_survives_a_restart_of_the_gateway(self, running: World) -> None:
        await running.start_run(1)
        async with present_host(running) as host:
            token = (await host.poll()).task_token
            await running.stop_gateway()
            await running.start_gateway()

            async def is_known() -> bool:
                async with refused(StatusCode.NOT_FOUND):
                    await host.beat(token[SEAL_BYTES:])
                await host.beat(token)
                return True

            assert await is_known()


class TestPresence:
    async def test_open_poll_of_a_revoked_worker_ends(self, world: World) -> None:
        async with raw_host(world) as host, open_stream(world, host.host) as messages:
            poll = asyncio.create_task(host.poll())
            await until(lambda: is_polled(host))

            worker_id = UUID(host.host.joined.worker_id)
            for is_first in (True, False):
                async with world.pool.acquire() as conn, conn.transaction():
                    revoked = await revoke_worker(conn, world.workspace_id, worker_id, Act(reason="stolen"))
                assert revoked is is_first

            async with refused(StatusCode.UNAUTHENTICATED), asyncio.timeout(WAIT_S):
                await poll
            async with refused(StatusCode.UNAUTHENTICATED):
                await host.poll()
            assert await next_of(messages, "ended")
        (event,) = await world.pool.fetch("SELECT data FROM outbox WHERE data ? 'action'")
        assert event["data"]["action"] == "worker.revoke"

    async def test_poll_ends_within_a_look_when_the_notice_is_lost(self, world: World) -> None:
        async with present_host(world) as host:
            poll = asyncio.create_task(host.poll())
            await until(lambda: is_polled(host))

            await world.pool.execute("UPDATE workers SET status = 'revoked'")

            async with refused(StatusCode.UNAUTHENTICATED), asyncio.timeout(WAIT_S):
                await poll

    async def test_open_poll_of_a_frozen_worker_ends(self, world: World) -> None:
        """Its connections stand, but it beats no more."""
        async with raw_host(world) as host, open_stream(world, host.host):
            poll = asyncio.create_task(host.poll())
            await until(lambda: is_polled(host))

            await world.pool.execute("UPDATE workers SET beat_at = beat_at - interval '1 minute'")

            async with refused(StatusCode.UNAVAILABLE), asyncio.timeout(WAIT_S):
                await poll

    async def test_polls_are_held_while_the_control_stream_is_broken(self, world: World) -> None:
        async with raw_host(world) as host:
            assert not (await host.poll(timeout_s=2)).task_token
            assert not await is_polled(host)
            async with open_stream(world, host.host):
                open_poll = asyncio.create_task(host.poll())
                await until(lambda: is_polled(host))
            async with refused(StatusCode.UNAVAILABLE), asyncio.timeout(WAIT_S):
                await open_poll
            held = asyncio.create_task(host.poll())
            async with open_stream(world, host.host), core_of(world.settings):
                await world.start_run(1)
                assert (await held).task_token

    async def test_rows_that_cannot_be_read_are_taken_to_be_as_they_were(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = await open_pool(world.settings.database_system_url, size=1)
        known = Roster(pool, world.settings.key_pepper.get_secret_value().encode())
        async with raw_host(world) as host, raw_host(world) as newcomer:
            before = await known.find(host.token, UUID(host.incarnation))
            await pool.close()
            monkeypatch.setattr(roster, "_FRESH_S", 0.0)

            assert await known.find(host.token, UUID(host.incarnation)) == before
            with pytest.raises(Fault) as unknown:
                await known.find(newcomer.token, UUID(newcomer.incarnation))
            assert unknown.value.code is StatusCode.UNAVAILABLE
            monkeypatch.setattr(roster, "_STALE_S", 0.0)
            with pytest.raises(Fault):
                await known.find(host.token, UUID(host.incarnation))


async def is_polled(host: RawHost) -> bool:
    """Whether Temporal has seen a poll of the host's queue."""
    request = api.DescribeTaskQueueRequest(
        namespace="default",
        task_queue=TaskQueue(name=host.queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    client = await Client.connect(host.world.settings.temporal_address)
    answer = await client.workflow_service.describe_task_queue(request)
    return any(host.host.joined.worker_id in poller.identity for poller in answer.pollers)
