"""The pure rules of the gateway: seals, what of a request is passed on, and how often one may call."""

from uuid import UUID, uuid4

import pytest
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload, Payloads, WorkerVersionCapabilities
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.failure.v1 import Failure
from temporalio.api.nexusservices.workerservice.v1 import ExecuteCommandsRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice import v1 as api

from runlane.gateway import answers, rates
from runlane.gateway.caller import Caller
from runlane.gateway.faults import Fault
from runlane.gateway.rules import RULES, Rule
from runlane.gateway.seal import Seal, sealing_key

KEY = sealing_key(b"p" * 32)
QUEUE = "scan.w.probe"
SEAL = Seal(KEY, UUID(int=1), UUID(int=2))
CALLER = Caller(SEAL, "default", frozenset({QUEUE}))


def rule(method: str) -> Rule:
    return RULES[f"/temporal.api.workflowservice.v1.WorkflowService/{method}"]


class TestSeals:
    @given(st.binary(min_size=1, max_size=200))
    def test_only_the_life_that_a_token_was_given_to_opens_it(self, token: bytes) -> None:
        sealed = SEAL.wrap("activity", token)

        assert SEAL.unwrap("activity", sealed) == token
        assert sealed == Seal(sealing_key(b"p" * 32), UUID(int=1), UUID(int=2)).wrap("activity", token)
        for other in (
            Seal(KEY, uuid4(), SEAL.incarnation),
            Seal(KEY, SEAL.worker_id, uuid4()),
            Seal(sealing_key(b"q" * 32), SEAL.worker_id, SEAL.incarnation),
        ):
            with pytest.raises(Fault) as refused:
                other.unwrap("activity", sealed)
            assert refused.value.code is StatusCode.NOT_FOUND
        with pytest.raises(Fault):
            SEAL.unwrap("nexus", sealed)

    @given(st.binary(max_size=200))
    def test_bytes_of_somebody_elses_making_open_nothing(self, sealed: bytes) -> None:
        with pytest.raises(Fault):
            SEAL.unwrap("activity", sealed)


class TestRequests:
    def test_fields_that_act_on_others_are_not_passed_on(self) -> None:
        asked = api.PollActivityTaskQueueRequest(
            namespace="default",
            task_queue=TaskQueue(name=QUEUE, normal_name="core"),
            identity="forged",
            worker_instance_key="key",
            worker_control_task_queue="control",
            poller_group_id="group",
            worker_version_capabilities=WorkerVersionCapabilities(build_id="x", use_versioning=True),
        )
        asked.task_queue_metadata.max_tasks_per_second.value = 0.01

        sent = api.PollActivityTaskQueueRequest.FromString(
            rule("PollActivityTaskQueue").inbound(asked.SerializeToString(), CALLER)
        )

        assert {field.name for field, _ in sent.ListFields()} == {
            "namespace",
            "task_queue",
            "identity",
            "worker_instance_key",
            "worker_control_task_queue",
        }
        assert sent.identity == CALLER.identity
        assert sent.task_queue == TaskQueue(name=QUEUE, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL)
        assert sent.worker_instance_key != "key"
        assert sent.worker_control_task_queue.startswith("temporal-sys/worker-commands/default/")

    def test_pushed_cancel_names_the_task_as_the_worker_knows_it(self) -> None:
        commands = ExecuteCommandsRequest()
        commands.commands.add().cancel_activity.task_token = b"task"
        commands.commands.add()
        pushed = api.PollNexusTaskQueueResponse(task_token=b"command")
        pushed.request.start_operation.operation = "ExecuteCommands"
        pushed.request.start_operation.payload.data = commands.SerializeToString()

        got = api.PollNexusTaskQueueResponse.FromString(
            rule("PollNexusTaskQueue").outbound(pushed.SerializeToString(), CALLER)
        )

        said = ExecuteCommandsRequest.FromString(got.request.start_operation.payload.data)
        assert [each.cancel_activity.task_token for each in said.commands] == [SEAL.wrap("activity", b"task")]
        assert SEAL.unwrap("nexus", got.task_token) == b"command"

    def test_worker_speaks_for_itself_alone(self) -> None:
        beat = api.RecordWorkerHeartbeatRequest(
            namespace="default",
            identity="forged",
            worker_heartbeat=[WorkerHeartbeat(worker_identity="forged", task_queue=QUEUE)],
        )

        sent = api.RecordWorkerHeartbeatRequest.FromString(
            rule("RecordWorkerHeartbeat").inbound(beat.SerializeToString(), CALLER)
        )

        assert sent.identity == sent.worker_heartbeat[0].worker_identity == CALLER.identity
        beat.worker_heartbeat[0].task_queue = "core"
        with pytest.raises(Fault):
            rule("RecordWorkerHeartbeat").inbound(beat.SerializeToString(), CALLER)


class TestAnswers:
    @pytest.mark.parametrize("count", [0, 2, 100])
    def test_result_always_has_one_payload(self, count: int) -> None:
        said = Payloads(payloads=[Payload(data=b"x")] * count)

        assert [each.metadata["encoding"] for each in answers.result(said).payloads] == [b"binary/null"]
        assert not answers.details(said).payloads

    def test_result_that_can_be_read_is_passed_on(self) -> None:
        said = Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=b"1")])

        assert answers.result(said) == said
        said.payloads[0].data = b"x" * (answers.MOST_BYTES + 1)
        assert answers.result(said).payloads[0].data == b""

    def test_failure_keeps_its_kind_and_loses_its_causes(self) -> None:
        said = Failure(message="m " * 10_000, cause=Failure(message="inner"))
        said.application_failure_info.type = "WorkerShutdown"
        said.application_failure_info.details.payloads.add().data = b"{"

        kept = answers.failure(said)

        assert len(kept.message) == answers.MOST_TEXT
        assert kept.application_failure_info.type == "WorkerShutdown"
        assert not kept.HasField("cause")
        assert not kept.application_failure_info.HasField("details")

    def test_failure_of_another_kind_becomes_one_of_the_tool(self) -> None:
        said = Failure(message="m")
        said.terminated_failure_info.SetInParent()

        assert answers.failure(said).HasField("application_failure_info")


def test_bucket_lets_a_burst_through_and_then_a_steady_rate() -> None:
    bucket = rates.Bucket(now_s=0.0)

    assert sum(bucket.take(0.0) for _ in range(2 * int(rates.BURST))) == rates.BURST
    assert sum(bucket.take(1.0) for _ in range(2 * int(rates.BURST))) == rates.CALLS_PER_S
