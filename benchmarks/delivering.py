"""What an endpoint that does not answer costs the others: rounds with one dead and with none, in turn.

A delivery is measured from the insert of its event to its arrival, both in this process: outbox, relay, lane,
command, workflow and transport lie between.
"""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

import orjson

from benchmarks.report import Bound
from runlane import names
from runlane.cli.platform import Platform
from runlane.db import integrations, outbox
from runlane.db.acts import Act
from runlane.db.integration_secrets import Place
from runlane.db.integrations import NewIntegration
from runlane.db.pool import Pool
from runlane.events import EVENT_CATALOG, envelope
from runlane.events.payloads import JobCancelled
from runlane.integrations import Kind
from runlane.keyring import Keyring
from runlane.outbound.signing import new_key

ENDPOINTS: Final = 50
EVENTS: Final = 12
"""Of one round, so that it has more than 500 deliveries."""

SPACING_S: Final = 1.0
ROUNDS: Final = 3
"""Of each kind."""

LIMIT_S: Final = 120.0
MOST_SLOWER: Final = 0.2
MOST_LATER_MS: Final = 50.0


@dataclass(frozen=True, slots=True)
class Delivering:
    """95th percentiles of the endpoints that answer, by round (ms)."""

    all_well: list[float]
    one_dead: list[float]

    def bounds(self) -> list[Bound]:
        """How much later a delivery is while another endpoint is dead."""
        well, dead = statistics.median(self.all_well), statistics.median(self.one_dead)
        limit = max(MOST_SLOWER * well, MOST_LATER_MS)
        return [Bound("deliveries beside a dead endpoint, later at p95", dead - well, limit, False, "ms")]

    def line(self) -> str:
        """Both for people."""
        well, dead = (", ".join(f"{each:.0f}" for each in kind) for kind in (self.all_well, self.one_dead))
        return f"deliveries at p95 in ms: {well} with all endpoints well, {dead} with one of {ENDPOINTS} dead"


@dataclass(slots=True)
class _Receivers:
    """All endpoints, as paths of one server. `dead`: the path that never answers."""

    port: int = 0
    dead: str = ""
    arrived: dict[str, dict[UUID, float]] = field(default_factory=lambda: defaultdict(dict))


async def measure(platform: Platform, pool: Pool) -> Delivering:
    """Plays the rounds in turn; needs loopback among the allowed networks."""
    found: dict[bool, list[float]] = {False: [], True: []}
    async with _receivers() as receivers:
        await _round(platform, pool, receivers, has_dead=False)  # connections and caches, not counted
        for _ in range(ROUNDS):
            for has_dead in (False, True):
                found[has_dead].append(await _round(platform, pool, receivers, has_dead=has_dead))
    return Delivering(found[False], found[True])


async def _round(platform: Platform, pool: Pool, receivers: _Receivers, *, has_dead: bool) -> float:
    keyring, workspace_id = Keyring.of(platform.settings.secret_key_texts), platform.workspace_id
    receivers.arrived.clear()
    paths = [f"/{uuid4()}" for _ in range(ENDPOINTS)]
    receivers.dead = paths[0] if has_dead else ""
    places: list[Place] = []
    for path in paths:
        wanted = NewIntegration(
            workspace_id, Kind.WEBHOOK, path, {"url": f"http://127.0.0.1:{receivers.port}{path}"},
            events=["job.*"], signing_key=new_key(),
        )  # fmt: skip
        async with pool.acquire() as conn, conn.transaction():
            row = await integrations.connect(conn, wanted, keyring, Act())
        places.append(Place(workspace_id, UUID(str(row["id"]))))
    sent: dict[UUID, float] = {}
    for _ in range(EVENTS):
        await asyncio.sleep(SPACING_S)
        began = time.perf_counter()
        sent[await _publish(pool, workspace_id)] = began
    well = paths[1:]
    async with asyncio.timeout(LIMIT_S):
        while any(len(receivers.arrived[path]) < EVENTS for path in well):  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0.05)
    for place in places:
        async with pool.acquire() as conn, conn.transaction():
            await integrations.disconnect(conn, place, Act())
    late = [1000 * (at - sent[event_id]) for path in well for event_id, at in receivers.arrived[path].items()]
    return statistics.quantiles(late, n=20, method="inclusive")[18]


async def _publish(pool: Pool, workspace_id: UUID) -> UUID:
    await asyncio.sleep(SPACING_S)
    job_id = uuid4()
    payload = JobCancelled(
        job_id=job_id, run_id=uuid4(), step_id="bench", tool_id="noop", attempt=0, reason=None
    )
    event = envelope(
        EVENT_CATALOG.job.cancelled, payload, workspace_id=workspace_id, subject=names.job_subject(job_id)
    )
    async with pool.acquire() as conn, conn.transaction():
        await outbox.insert(conn, [event])
    return event.id


@asynccontextmanager
async def _receivers() -> AsyncIterator[_Receivers]:
    receivers = _Receivers()
    conversations: set[asyncio.Task[object]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            conversations.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                orjson.loads(await reader.readexactly(int(headers["content-length"])))
                path = head[0].split(" ")[1]
                if path == receivers.dead:
                    await asyncio.Event().wait()
                receivers.arrived[path].setdefault(UUID(headers["webhook-id"]), time.perf_counter())
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                await writer.drain()
        except (EOFError, OSError, asyncio.CancelledError):
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    receivers.port = server.sockets[0].getsockname()[1]
    try:
        yield receivers
    finally:
        server.close()
        for task in conversations:
            task.cancel()
        await asyncio.gather(*conversations, return_exceptions=True)
