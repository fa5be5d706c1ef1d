"""Rotation of a scan worker's credential, asked for by a person or due by age."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import httpx2
import pytest
import pytest_asyncio
from grpc import StatusCode
from temporalio.api.workflowservice import v1 as api

from runlane.db.keys import NewKey, Scope, create_key
from runlane.db.pool import Pool
from runlane.errors import Conflict, Unauthenticated
from runlane.scan.credential import load_credential
from runlane.scan.polling import Temporal, connect
from runlane.scan.rotation import Rotation, Token
from runlane.settings import Settings
from tests.integration.gateway_host import RawHost, present_host, raw_host, refused
from tests.integration.worker_host import NOTHING, Host, joined_host, life
from tests.integration.worker_world import World, core_of, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration

OVERLAP_IS_OVER = "UPDATE workers SET previous_until = clock_timestamp()"


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


async def ask(world: World, worker_id: object, scope: str = Scope.WORKERS_WRITE) -> httpx2.Response:
    """What the API says to somebody who wants a worker to get a new credential."""
    pepper = world.settings.key_pepper.get_secret_value().encode()
    workspace_id = None if scope == Scope.PLATFORM_ADMIN else world.workspace_id
    async with world.pool.acquire() as conn:
        key = await create_key(conn, NewKey("operator", workspace_id, [scope]), pepper)
    path = f"/v1/{'platform/' if workspace_id is None else ''}workers/{worker_id}/rotate"
    headers = {"Authorization": f"Bearer {key.plaintext}"}
    async with httpx2.AsyncClient(base_url=world.settings.api_url, trust_env=False) as http:
        return await http.post(path, json={"reason": "quarterly"}, headers=headers)


async def rotated(world: World, host: Host) -> str:
    """A host that has been asked, has taken a new token, and has used it."""
    assert (await ask(world, host.joined.worker_id)).status_code == 202
    token = await host.api.new_credential()
    host.api.use_token(token)
    await host.api.heartbeat(NOTHING)
    return token


async def test_running_worker_takes_a_new_credential_and_goes_on(world: World) -> None:
    folder = world.scan_settings().state_dir
    async with core_of(world.settings), world.scan_worker():
        run_id = await world.start_run(3, {"sleep_ms": 3_000})
        await until(lambda: world.has_status(run_id, "in_progress", 3))
        before = load_credential(folder)
        assert before is not None

        answer = await ask(world, before.worker_id)
        again = await ask(world, before.worker_id)
        await until(lambda: world.pool.fetchval("SELECT previous_until IS NOT NULL FROM workers"))
        await world.pool.execute(OVERLAP_IS_OVER)

        assert await world.closed(run_id) == "completed"
        later = await world.start_run(5)  # two targets more
        assert await world.closed(later) == "completed"
    after = load_credential(folder)
    assert after is not None
    assert (after.worker_id, after.token == before.token) == (before.worker_id, False)
    assert (answer.status_code, again.json()) == (202, answer.json())
    assert await world.attempts(run_id) == {"completed": 3}
    with pytest.raises(Unauthenticated):
        async with joined_host(world, before.token):
            pass
    rows = await world.pool.fetch(
        """SELECT type, data->>'action' AS action, data->>'cause' AS cause, data->>'reason' AS reason
           FROM outbox WHERE type IN ('worker.command.executed', 'worker.credential_rotated') ORDER BY id"""
    )
    assert [tuple(row) for row in rows] == [
        ("worker.command.executed", "worker.rotate", None, "quarterly"),
        ("worker.credential_rotated", None, "asked", None),
    ]


async def test_stolen_old_credential_begins_nothing_and_is_dead_after_the_overlap(world: World) -> None:
    async with joined_host(world) as host:
        stolen = str(host.joined.token)
        await rotated(world, host)

        host.api.use_token(stolen)
        with pytest.raises(Unauthenticated) as no_token:
            await host.api.new_credential()
        with pytest.raises(Unauthenticated) as no_life:
            await host.api.join(life(str(uuid4())), stolen)
        await host.api.heartbeat(NOTHING)
        await world.pool.execute(OVERLAP_IS_OVER)
        with pytest.raises(Unauthenticated) as dead:
            await host.api.heartbeat(NOTHING)

    assert {no_token.value.code, no_life.value.code, dead.value.code} == {"worker.token"}


async def test_token_whose_answer_was_lost_is_asked_for_again(world: World) -> None:
    async with joined_host(world) as host:
        await ask(world, host.joined.worker_id)
        lost = await host.api.new_credential()
        await host.api.heartbeat(NOTHING)
        token = await host.api.new_credential()

        host.api.use_token(lost)
        with pytest.raises(Unauthenticated):
            await host.api.heartbeat(NOTHING)
        async with joined_host(world, token, host.incarnation) as later:
            assert later.joined.worker_id == host.joined.worker_id
            assert not (await later.api.heartbeat(NOTHING)).must_rotate


async def test_worker_that_is_told_twice_that_a_credential_is_due_goes_on_with_the_one_it_keeps(
    world: World, tmp_path: Path
) -> None:
    async with joined_host(world) as host:
        await ask(world, host.joined.worker_id)
        token = Token(str(host.joined.token))
        token.follow(host.api.use_token)
        rotation = Rotation(host.api, tmp_path, host.joined.worker_id, token)

        await asyncio.gather(rotation.renew(), rotation.renew())  # by both heartbeats when a drain begins
        await host.api.heartbeat(NOTHING)
        await rotation.renew()  # by an API with other settings than the one that is asked then
        answer = await host.api.heartbeat(NOTHING)

    kept = load_credential(tmp_path)
    assert kept is not None
    assert (kept.token, answer.must_rotate) == (token.value, False)


async def test_token_that_is_replaced_while_the_gateway_is_connected_to_is_presented_there(
    world: World,
) -> None:
    async with raw_host(world) as host:
        token = Token(host.token)
        joined = host.host.joined
        temporal = Temporal(
            joined.temporal_address, joined.temporal_namespace, "test", token, host.host.incarnation
        )
        connecting = asyncio.create_task(connect(temporal, asyncio.Event()))
        await asyncio.sleep(0)  # it has taken the token of the moment
        token.replace("later")

        client = await connecting

    assert client is not None
    assert client.api_key == "later"


async def test_credential_is_given_only_when_one_is_due(world: World) -> None:
    async with joined_host(world) as host:
        assert not (await host.api.heartbeat(NOTHING)).must_rotate
        with pytest.raises(Conflict) as refused_:
            await host.api.new_credential()

        await world.pool.execute("UPDATE workers SET token_issued_at = token_issued_at - interval '31 days'")

        assert (await host.api.heartbeat(NOTHING)).must_rotate
        host.api.use_token(await host.api.new_credential())
        assert not (await host.api.heartbeat(NOTHING)).must_rotate
    assert refused_.value.code == "worker.rotation_not_due"
    cause = "SELECT data->>'cause' FROM outbox WHERE type = 'worker.credential_rotated'"
    assert await world.pool.fetchval(cause) == "age"


async def test_gateway_takes_the_new_token_at_once_and_the_old_one_for_the_overlap(world: World) -> None:
    async with present_host(world) as host:
        await call(host)
        await ask(world, host.host.joined.worker_id)
        token = await host.host.api.new_credential()
        renewed = RawHost(world, host.channel, token, host.incarnation, host.host)

        await call(renewed)
        host.host.api.use_token(token)
        await host.host.api.heartbeat(NOTHING)
        await call(host)
        await world.pool.execute(OVERLAP_IS_OVER)

        await until(lambda: is_refused(host))
        await call(renewed)


async def call(host: RawHost) -> None:
    """A call that the gateway answers at once, if it takes the credential."""
    await host.call("GetSystemInfo", api.GetSystemInfoRequest(), api.GetSystemInfoResponse)


async def is_refused(host: RawHost) -> bool:
    """Whether the gateway knows this credential no more."""
    try:
        async with refused(StatusCode.UNAUTHENTICATED):
            await call(host)
    except (AssertionError, pytest.fail.Exception):
        return False
    return True


async def test_wrong_token_of_a_known_worker_is_refused_by_the_gateway(world: World) -> None:
    async with raw_host(world) as host:
        wrong = RawHost(world, host.channel, host.token[:-43] + "x" * 43, host.incarnation, host.host)
        for _ in range(3):
            async with refused(StatusCode.UNAUTHENTICATED):
                await call(wrong)


async def test_rotation_of_a_worker_that_is_not_there_is_refused(world: World) -> None:
    async with joined_host(world) as host:
        worker_id = UUID(host.joined.worker_id)
        unknown = await ask(world, uuid4())
        foreign = await ask(world, worker_id, Scope.PLATFORM_ADMIN)
        unentitled = await ask(world, worker_id, Scope.WORKERS_READ)
        await world.pool.execute("UPDATE workers SET status = 'revoked'")
        revoked = await ask(world, worker_id)

    answers = [(each.status_code, each.json()["code"]) for each in (unknown, foreign, unentitled, revoked)]
    assert answers == [
        (404, "worker.not_found"),
        (404, "worker.not_found"),
        (403, "key.scope"),
        (409, "worker.revoked"),
    ]


async def test_shared_worker_is_asked_by_the_platform(world: World) -> None:
    pepper = world.settings.key_pepper.get_secret_value().encode()
    async with world.pool.acquire() as conn:
        key = await create_key(conn, NewKey("shared", None, [Scope.WORKER_JOIN]), pepper)
    async with joined_host(world, key.plaintext) as host:
        answer = await ask(world, host.joined.worker_id, Scope.PLATFORM_ADMIN)
        token = await host.api.new_credential()
        host.api.use_token(token)
        assert not (await host.api.heartbeat(NOTHING)).must_rotate
    assert answer.status_code == 202
