"""A worker's side of the API without a worker behind it: joins, claims, opens its stream, as a test says."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID, uuid4

import httpx2
import orjson

from runlane import names
from runlane.jobs import Outcome
from runlane.scan.client import WorkerApi
from runlane.scan.delivery import Deliverer
from runlane.scan.spool import BatchIdentity, Package, Spool, pack
from runlane.scan.wire import Beat, Claimed, Joined, JoinRequest, Member
from tests.integration.worker_world import World
from tests.waiting import WAIT_S

NOTHING = Beat(slots_free=1, is_draining=False, running=())


@dataclass(frozen=True, slots=True)
class Host:
    """A worker's side of the API without a worker behind it."""

    api: WorkerApi
    joined: Joined
    incarnation: str


def life(incarnation: str, protocol: int = names.WORKER_PROTOCOL) -> JoinRequest:
    return JoinRequest("host", ("probe",), {"probe": 2}, "1", protocol, incarnation)


@asynccontextmanager
async def joined_host(
    world: World, secret: str | None = None, incarnation: str | None = None
) -> AsyncIterator[Host]:
    incarnation = incarnation or str(uuid4())
    async with WorkerApi(world.settings.api_url) as api:
        joined = await api.join(life(incarnation), secret or world.enrolment_key)
        yield Host(api, joined, incarnation)


@asynccontextmanager
async def open_stream(world: World, host: Host) -> AsyncIterator["asyncio.Queue[Mapping[str, object]]"]:
    """The control stream of a host, read into a queue."""
    messages: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()

    async def read() -> None:
        try:
            async for message in host.api.stream():
                messages.put_nowait(message)
        finally:
            messages.put_nowait({"ended": True})

    reading = asyncio.create_task(read())
    try:
        async with asyncio.timeout(WAIT_S):
            assert "hello" in await messages.get()
        yield messages
    finally:
        reading.cancel()
        await asyncio.wait([reading])


async def next_of(messages: "asyncio.Queue[Mapping[str, object]]", key: str) -> object:
    async with asyncio.timeout(WAIT_S):
        while key not in (message := await messages.get()):
            pass
        return message[key]


async def column(world: World, host: Host, name: str) -> object:
    row = await world.pool.fetchrow("SELECT * FROM workers WHERE id = $1", UUID(host.joined.worker_id))
    assert row is not None
    return row[name]


async def dispatch(world: World, run_id: UUID, queue: str | None = None) -> str:
    """Dispatches all jobs of a run as one batch, as its workflow would."""
    async with world.pool.acquire() as conn, conn.transaction():
        dispatch_id = await conn.fetchval(
            """INSERT INTO dispatches (workspace_id, run_id, step_id, workflow_id, workflow_run_id,
                                       call_number, task_queue, priority, size)
               SELECT workspace_id, id, 'only', 'run/' || id, 'x', 1, $2, 2, 10
               FROM job_histories WHERE id = $1
               RETURNING id""",
            run_id,
            queue or names.scan_queue(world.workspace_id, "probe"),
        )
        await conn.execute("UPDATE jobs SET dispatch_id = $2 WHERE run_id = $1", run_id, dispatch_id)
    return str(dispatch_id)


@asynccontextmanager
async def claimed_host(world: World, count: int = 2) -> AsyncIterator[tuple[Host, str, Claimed]]:
    """A host that holds the jobs of a run."""
    async with joined_host(world) as host:
        dispatch_id = await dispatch(world, await world.start_run(count))
        yield host, dispatch_id, await host.api.claim(dispatch_id, "key", count)


def package(host: Host, dispatch_id: str, claimed: Claimed, *records: bytes) -> Package:
    members = [
        Member(job.job_id, job.attempt, Outcome.COMPLETED, None, True, True, {}, records)
        for job in claimed.jobs
    ]
    (only,) = pack(BatchIdentity(dispatch_id, host.incarnation, claimed.category, "1.0.0"), members)
    return only


def deliverer(world: World, host: Host, inline_bytes: int | None = None) -> Deliverer:
    spool = Spool(world.folder / "spool", 10_000_000)
    return Deliverer(host.api, spool, host.joined.inline_bytes if inline_bytes is None else inline_bytes)


async def post(world: World, path: str, body: object, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=world.settings.api_url, trust_env=False) as http:
        return await http.post(f"/v1/worker{path}", content=orjson.dumps(body), headers=headers)


async def has(world: World, host: Host, name: str, value: object) -> bool:
    """Whether the host's row has that value."""
    return await column(world, host, name) == value


async def has_no(world: World, host: Host, name: str) -> bool:
    """Whether the host's row has no such value."""
    return await column(world, host, name) is None
