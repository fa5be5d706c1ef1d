"""What the tests of the bus share: producing events, running its parts, reading what became of them."""

import asyncio
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

from redis.asyncio import Redis

from lanes.audit import AuditSink
from lanes.loop import LaneConfig, run_lane
from lanes.relay import RelayConfig, run_relay
from lanes.runner import Part, supervise
from lanes.sink import Sink
from runlane import names
from runlane.db import outbox
from runlane.db.event_counts import count_unpublished
from runlane.db.pool import Pool
from runlane.events import EVENT_CATALOG, Envelope, envelope, payloads
from runlane.settings import Settings
from runlane.stack import binaries

CAP = 100_000


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A server in cluster mode, by its URL; it may still be starting."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        port, bus_port = one.getsockname()[1], two.getsockname()[1]
    argv = [str(binaries.valkey_server()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    argv += ["--cluster-enabled", "yes", "--cluster-port", str(bus_port), "--save", ""]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, start_new_session=True) as server:
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.send_signal(signal.SIGTERM)


def created(workspace_id: UUID, job_id: UUID | None = None) -> Envelope:
    """An event that the audit trail does not keep."""
    job = job_id or uuid4()
    payload = payloads.JobCreated(
        job_id=job, run_id=job, step_id="ports", tool_id="portprobe", attempt=0,
        category="ports_scanner", target_id=None, asset_id=None,
    )  # fmt: skip
    subject = names.job_subject(job)
    return envelope(EVENT_CATALOG.job.created, payload, workspace_id=workspace_id, subject=subject)


def cancelled(workspace_id: UUID, job_id: UUID | None = None, reason: str | None = None) -> Envelope:
    """An event that the audit trail keeps."""
    job = job_id or uuid4()
    payload = payloads.JobCancelled(
        job_id=job, run_id=job, step_id="ports", tool_id="portprobe", attempt=0, reason=reason
    )
    subject = names.job_subject(job)
    return envelope(EVENT_CATALOG.job.cancelled, payload, workspace_id=workspace_id, subject=subject)


async def produce(pool: Pool, events: Sequence[Envelope]) -> None:
    """Writes events in one transaction."""
    async with pool.acquire() as conn, conn.transaction():
        await outbox.insert(conn, events)


@dataclass(slots=True)
class Running:
    """A part of the bus under supervision."""

    part: Part
    stop: asyncio.Event
    task: asyncio.Task[None]

    async def kill(self) -> None:
        """Ends it in the middle of whatever it does."""
        while not self.task.done():
            # more than once: `asyncio.wait_for` of Python 3.11 may swallow a cancellation
            self.task.cancel()
            await asyncio.wait([self.task], timeout=1)

    async def restart(self) -> None:
        """Ends it and starts it again."""
        await self.kill()
        self.task = asyncio.create_task(supervise("part", self.part, self.stop))


@asynccontextmanager
async def running(part: Part) -> AsyncIterator[Running]:
    """Runs a part for the length of the block, then stops it as the process would."""
    stop = asyncio.Event()
    run = Running(part, stop, asyncio.create_task(supervise("part", part, stop)))
    try:
        yield run
    finally:
        stop.set()
        if not run.task.cancelled():
            await run.task


def relay(settings: Settings, cap: int = CAP) -> Part:
    """The relay on the test's servers."""
    config = RelayConfig(settings.database_system_url, settings.redis_url, cap=cap)
    return lambda stop: run_relay(config, stop)


def lane(settings: Settings, sink: Sink | None = None) -> Part:
    """A lane on the test's servers, the audit lane by default."""
    config = LaneConfig(settings.database_system_url, settings.redis_url)
    return lambda stop: run_lane(sink or AuditSink(), config, stop)


async def entries(redis: Redis, key: str = names.EVENT_STREAM) -> list[dict[bytes, bytes]]:
    """Fields of each entry of a stream, in its order."""
    pairs = await redis.xrange(key)
    return [fields for _, fields in cast("list[tuple[bytes, dict[bytes, bytes]]]", pairs)]  # protocol 2


async def entry_ids(redis: Redis) -> list[bytes]:
    """Id of each entry of the bus, in its order."""
    return [
        entry_id for entry_id, _ in cast("list[tuple[bytes, object]]", await redis.xrange(names.EVENT_STREAM))
    ]


async def sequences(redis: Redis) -> list[int]:
    """Sequence of each entry of the bus, in its order."""
    return [int(fields[b"sequence"]) for fields in await entries(redis)]


async def are_published(pool: Pool) -> bool:
    """Whether nothing waits in the outbox."""
    async with pool.acquire() as conn:
        return await count_unpublished(conn) == 0


async def checkpoint(pool: Pool) -> int:
    """How far the audit lane came; 0 when it never ran."""
    return await pool.fetchval("SELECT last_seq FROM lane_checkpoints WHERE lane = 'audit'") or 0


async def audited(pool: Pool) -> list[int]:
    """Places on the bus of the audit rows, in the order in which they were written."""
    rows = await pool.fetch("SELECT bus_seq FROM audit_events ORDER BY audit_id")
    return [row["bus_seq"] for row in rows]
