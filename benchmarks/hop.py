"""What the gateway costs: the same call to Temporal straight and through it, in turn, on idle connections."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from grpc import aio
from temporalio.api.workflowservice.v1 import RecordWorkerHeartbeatRequest

from runlane import names
from runlane.cli.platform import Platform
from runlane.scan.client import WorkerApi
from runlane.scan.wire import JoinRequest

CALLS: Final = 300
_METHOD: Final = "/temporal.api.workflowservice.v1.WorkflowService/RecordWorkerHeartbeat"

Metadata = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Hop:
    """Milliseconds of one call, straight and through the gateway."""

    calls: int
    straight_p50: float
    straight_p99: float
    through_p50: float
    through_p99: float


async def measure(platform: Platform) -> Hop:
    """Makes the calls as a scan worker of its own, which takes no work and leaves."""
    incarnation = str(uuid4())
    request = JoinRequest("bench", ("probe",), {"probe": 1}, "0", names.WORKER_PROTOCOL, incarnation)
    async with WorkerApi(platform.profile.api_url) as api:
        joined = await api.join(request, platform.profile.enrolment_key)
        credential = (
            ("authorization", f"Bearer {joined.token}"),
            (names.GATEWAY_INCARNATION_KEY, incarnation),
        )
        async with (
            aio.insecure_channel(platform.settings.temporal_address) as temporal,
            aio.insecure_channel(joined.temporal_address) as gateway,
        ):
            for _ in range(CALLS // 10):  # connections and caches, not counted
                await _call(temporal, ())
                await _call(gateway, credential)
            pairs = [(await _call(temporal, ()), await _call(gateway, credential)) for _ in range(CALLS)]
        await api.leave()
    return Hop(CALLS, *_percentiles([p[0] for p in pairs]), *_percentiles([p[1] for p in pairs]))


async def _call(channel: aio.Channel, metadata: Metadata) -> float:
    method: aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
    request = RecordWorkerHeartbeatRequest(namespace=names.TEMPORAL_NAMESPACE).SerializeToString()
    began = time.perf_counter()
    await method(request, timeout=10, metadata=tuple(metadata))
    return 1000 * (time.perf_counter() - began)


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    return statistics.median(values), statistics.quantiles(values, n=100, method="inclusive")[98]
