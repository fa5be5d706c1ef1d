"""Workers that are bound to an internal network: they get its jobs and no others.

That they contact nothing else is the option `bound`; what tools make of it is tested with the tools.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import httpx2
import pytest
import pytest_asyncio
from grpc import StatusCode

from runlane import names
from runlane.db.keys import NewKey, Scope, create_key, rotate_key
from runlane.db.pool import Pool
from runlane.errors import Forbidden
from runlane.lab.server import Lab
from runlane.scan.worker import run_scan_worker
from runlane.settings import Settings
from tests.integration.gateway_host import raw_host, refused
from tests.integration.worker_host import claimed_host, dispatch, joined_host, post
from tests.integration.worker_world import World, core_of, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration

BASE = f"127.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}.64/26"
CONNECTED = "SELECT data FROM outbox WHERE type = 'worker.network.connected'"


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


async def network(world: World, name: str = "site", cidr: str = BASE) -> UUID:
    """A network of the workspace."""
    network_id: UUID = await world.pool.fetchval(
        """INSERT INTO internal_networks (workspace_id, name, cidrs) VALUES ($1, $2, $3::text[]::cidr[])
           RETURNING id""",
        world.workspace_id,
        name,
        [cidr],
    )
    return network_id


async def key_of(world: World, network_id: UUID | None, *scopes: Scope) -> str:
    """A key of the workspace; for a network, one to enrol with."""
    pepper = world.settings.key_pepper.get_secret_value().encode()
    new = NewKey("k", world.workspace_id, scopes or [Scope.WORKER_JOIN], network_id=network_id)
    async with world.pool.acquire() as conn, conn.transaction():
        return (await create_key(conn, new, pepper)).plaintext


@asynccontextmanager
async def operator(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody who may do everything in the workspace."""
    headers = {"Authorization": f"Bearer {await key_of(world, None, *Scope)}"}
    async with httpx2.AsyncClient(base_url=world.settings.api_url, trust_env=False, headers=headers) as http:
        yield http


@asynccontextmanager
async def bound_worker(world: World, key: str, name: str = "bound") -> AsyncIterator[None]:
    """A real worker that was enrolled with this key, on line."""
    stop = asyncio.Event()
    wanted = replace(world.scan_settings(name), enrolment_key=key)
    worker = asyncio.create_task(run_scan_worker(wanted, stop))
    try:
        await until(lambda: world.is_online(name))
        yield
    finally:
        stop.set()
        await worker


async def test_targets_of_a_network_are_scanned_by_its_workers_alone(world: World) -> None:
    site = await network(world)
    key = await key_of(world, site)
    async with Lab.open(BASE, "small") as lab, core_of(world.settings), operator(world) as http:
        found = next(each for each in lab.manifest.services)
        address = next(each.address for each in lab.manifest.assets if each.name == found.host)
        inside = (await http.post("/v1/targets", json={"value": address, "network": "site"})).json()["id"]
        look = {"name": "look", "jobs": {"ports": {"run": "portprobe", "config": {"ports": str(found.port)}}}}

        async def begin() -> str:
            body = {"definition": look, "targets": [inside]}
            return str((await http.post("/v1/runs", json=body)).json()["run_id"])

        async def why(run_id: str) -> str:
            job = (await http.get(f"/v1/jobs?run={run_id}")).json()["items"][0]["id"]
            return str((await http.get(f"/v1/jobs/{job}/why")).json()["text"])

        async with world.scan_worker("open"):
            run_id = await begin()
            await until(lambda: world.pool.fetchval("SELECT blocked_reason FROM job_histories"))
            blocked = await why(run_id)
            async with bound_worker(world, key):
                assert await world.closed(UUID(run_id)) == "completed"
                busy = await http.post(f"/v1/networks/{site}/delete")
        workers = (await http.get("/v1/workers")).json()["items"]
        services = (await http.get("/v1/services")).json()["items"]

    assert blocked.startswith("no live worker for the tool set probe in the network site")
    assert {each["name"]: each["network_id"] for each in workers} == {"open": None, "bound": str(site)}
    assert [(each["host"], each["port"]) for each in services] == [(address, found.port)]
    assert await world.pool.fetchval(
        "SELECT array_agg(DISTINCT w.name) FROM job_attempts a JOIN workers w ON w.id = a.worker_id"
    ) == ["bound"]
    assert busy.json()["code"] == "network.in_use"


async def test_worker_is_bound_by_its_key_and_says_so_once(world: World) -> None:
    site = await network(world)
    key = await key_of(world, site)

    async with joined_host(world, key) as first:
        token = first.joined.token
    async with joined_host(world, token) as again:
        queues = [queue.task_queue for queue in again.joined.queues]

    assert queues == [names.scan_queue(world.workspace_id, "probe", site)]
    (event,) = [row["data"] for row in await world.pool.fetch(CONNECTED)]
    assert (event["network_id"], event["network"]) == (str(site), "site")


async def test_worker_cannot_choose_its_network(world: World) -> None:
    site = await network(world)
    said: Mapping[str, object] = {
        "name": "host", "toolsets": ["probe"], "slots": {"probe": 1}, "version": "1",
        "protocol": names.WORKER_PROTOCOL, "incarnation": str(uuid4()),
    }  # fmt: skip
    bearer = {"Authorization": f"Bearer {world.enrolment_key}"}

    fields = ("network_id", "network")
    chosen = [await post(world, "/join", {**said, field: str(site)}, **bearer) for field in fields]
    async with joined_host(world) as host:
        queues = [queue.task_queue for queue in host.joined.queues]

    assert [answer.status_code for answer in chosen] == [422, 422]
    assert queues == [names.scan_queue(world.workspace_id, "probe")]
    assert await world.pool.fetch(CONNECTED) == []


async def test_bound_worker_gets_nothing_of_others_and_others_nothing_of_it(world: World) -> None:
    here, there = await network(world, "here"), await network(world, "there")
    run_id = await world.start_run(1)
    hosts = [await key_of(world, here), await key_of(world, there), world.enrolment_key]

    refusals = 0
    for at in (here, there, None):
        await world.pool.execute("UPDATE targets SET network_id = $1", at)
        await world.pool.execute("UPDATE jobs SET network_id = $1", at)
        queue = names.scan_queue(world.workspace_id, "probe", at)
        for secret, bound_to in zip(hosts, (here, there, None), strict=True):
            if bound_to == at:
                continue
            dispatch_id = await dispatch(world, run_id, queue)
            async with joined_host(world, secret) as host:
                with pytest.raises(Forbidden, match="not for this worker"):
                    await host.api.claim(dispatch_id, str(uuid4()), 1)
                refusals += 1

    assert refusals == 6
    assert await world.statuses(run_id) == {"pending": 1}


async def test_gateway_lets_a_bound_worker_poll_no_other_queue(world: World) -> None:
    here, there = await network(world, "here"), await network(world, "there")
    world.enrolment_key = await key_of(world, here)

    async with raw_host(world) as raw:
        for queue in (
            names.scan_queue(world.workspace_id, "probe"),
            names.scan_queue(world.workspace_id, "probe", there),
            names.shared_scan_queue("probe"),
        ):
            async with refused(StatusCode.PERMISSION_DENIED):
                await raw.poll(queue)

    assert raw.queue == names.scan_queue(world.workspace_id, "probe", here)


async def test_bound_worker_is_told_to_contact_its_network_alone(world: World) -> None:
    site = await network(world, cidr="10.1.0.0/16")
    await world.pool.execute("UPDATE workspaces SET allowed_networks = '{127.0.0.0/8}'")

    async with claimed_host(world, 1) as (_, _, claimed):
        open_options = claimed.options
    run_id = await world.start_run(2)  # about the target that is new
    await world.pool.execute("UPDATE jobs SET network_id = $1 WHERE run_id = $2", site, run_id)
    await world.pool.execute(
        "UPDATE targets t SET network_id = j.network_id FROM jobs j WHERE j.target_id = t.id"
    )
    async with joined_host(world, await key_of(world, site)) as host:
        dispatch_id = await dispatch(world, run_id, names.scan_queue(world.workspace_id, "probe", site))
        options = (await host.api.claim(dispatch_id, "key", 1)).options

    assert (open_options["allow"], open_options["bound"]) == (["127.0.0.0/8"], False)
    assert (options["allow"], options["bound"]) == (["10.1.0.0/16"], True)


async def test_key_of_a_network_stays_one_when_it_is_rotated(world: World) -> None:
    site = await network(world)
    pepper = world.settings.key_pepper.get_secret_value().encode()
    await key_of(world, site)
    key_id = await world.pool.fetchval("SELECT id FROM api_keys WHERE network_id = $1", site)

    async with world.pool.acquire() as conn, conn.transaction():
        rotated = await rotate_key(conn, key_id, 0, pepper)
    async with joined_host(world, rotated.plaintext) as host:
        queues = [queue.task_queue for queue in host.joined.queues]

    assert queues == [names.scan_queue(world.workspace_id, "probe", site)]
