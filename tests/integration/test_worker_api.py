"""The worker endpoints, called as a scan worker or as somebody who pretends to be one."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import httpx2
import orjson
import pytest
import pytest_asyncio

from api import control
from runlane import names
from runlane.db.cancel import cancel_run
from runlane.db.keys import NewKey, Scope, create_key
from runlane.db.pool import Pool
from runlane.errors import Conflict, Forbidden, Invalid, TooLarge, Unauthenticated, Unavailable
from runlane.jobs import Outcome
from runlane.scan.client import WorkerApi
from runlane.scan.delivery import Deliverer
from runlane.scan.spool import BatchIdentity, Package, Spool, pack
from runlane.scan.wire import Beat, Claimed, Joined, JoinRequest, Member
from runlane.settings import Settings
from tests.integration.worker_world import World, until, world_of

NOTHING = Beat(slots_free=1, is_draining=False, running=())


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


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
        async with asyncio.timeout(10):
            assert "hello" in await messages.get()
        yield messages
    finally:
        reading.cancel()
        await asyncio.wait([reading])


async def next_of(messages: "asyncio.Queue[Mapping[str, object]]", key: str) -> object:
    async with asyncio.timeout(10):
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


class TestJoin:
    async def test_enrolment_gives_a_token_once(self, world: World) -> None:
        async with joined_host(world) as host:
            assert host.joined.token is not None
            assert await column(world, host, "status") == "online"
        async with joined_host(world, host.joined.token) as again:
            assert again.joined.token is None
            assert again.joined.worker_id == host.joined.worker_id

    async def test_token_is_not_stored(self, world: World) -> None:
        async with joined_host(world) as host:
            row = await world.pool.fetchval("SELECT workers::text FROM workers")
            assert host.joined.token is not None
            assert host.joined.token.rpartition("_")[2] not in row

    async def test_queues_are_those_of_the_workspace(self, world: World) -> None:
        async with joined_host(world) as host:
            (queue,) = host.joined.queues
            assert (queue.task_queue, queue.slots) == (names.scan_queue(world.workspace_id, "probe"), 2)

    async def test_key_without_the_scope_is_refused(self, world: World) -> None:
        pepper = world.settings.key_pepper.get_secret_value().encode()
        async with world.pool.acquire() as conn:
            key = await create_key(conn, NewKey("other", world.workspace_id, [Scope.RUNS_WRITE]), pepper)
        with pytest.raises(Forbidden) as refused:
            async with joined_host(world, key.plaintext):
                pass
        assert refused.value.code == "key.scope"

    @pytest.mark.parametrize("secret", ["rlw_" + "0" * 32 + "_" + "x" * 43, "nonsense", "rl_abc_def"])
    async def test_wrong_secret_is_refused(self, world: World, secret: str) -> None:
        with pytest.raises(Unauthenticated):
            async with joined_host(world, secret):
                pass

    async def test_other_protocol_is_refused_with_a_clear_text(self, world: World) -> None:
        async with WorkerApi(world.settings.api_url) as api:
            with pytest.raises(Conflict, match="protocol 1, the worker 2") as refused:
                await api.join(life(str(uuid4()), protocol=2), world.enrolment_key)
        assert refused.value.code == "worker.protocol"

    async def test_second_process_with_the_credential_is_refused_while_the_first_lives(
        self, world: World
    ) -> None:
        async with joined_host(world) as host, open_stream(world, host):
            with pytest.raises(Conflict) as refused:
                async with joined_host(world, host.joined.token):
                    pass
            assert refused.value.code == "worker.identity_conflict"
            assert await column(world, host, "incarnation") == UUID(host.incarnation)
        rejected = await world.pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'worker.rejected'")
        assert rejected == 1

    async def test_newcomer_takes_over_once_the_stream_is_closed(self, world: World) -> None:
        async with joined_host(world) as host:
            async with open_stream(world, host):
                pass
            await until(lambda: _is_null(world, host, "stream_seen_at"))
            async with joined_host(world, host.joined.token):
                with pytest.raises(Conflict) as refused:
                    await host.api.heartbeat(NOTHING)
        assert refused.value.code == "worker.stale_incarnation"

    async def test_revoked_worker_is_refused_everywhere(self, world: World) -> None:
        async with joined_host(world) as host:
            await world.pool.execute("UPDATE workers SET status = 'revoked'")
            with pytest.raises(Unauthenticated) as refused:
                await host.api.heartbeat(NOTHING)
            with pytest.raises(Unauthenticated):
                await host.api.claim(str(uuid4()), "key", 1)
            with pytest.raises(Unauthenticated):
                async with joined_host(world, host.joined.token):
                    pass
        assert refused.value.code == "worker.revoked"

    async def test_joining_and_leaving_are_events(self, world: World) -> None:
        async with joined_host(world) as host:
            await host.api.leave()
        rows = await world.pool.fetch("SELECT type FROM outbox WHERE type LIKE 'worker.%' ORDER BY id")
        types = [row["type"] for row in rows]
        assert types == ["worker.joined", "worker.left"]

    @pytest.mark.parametrize(
        "change", [{"slots": {}}, {"toolsets": []}, {"name": "a\x00b"}, {"incarnation": "x"}, {"more": 1}]
    )
    async def test_malformed_join_is_refused(self, world: World, change: dict[str, object]) -> None:
        body: dict[str, object] = {"name": "a", "toolsets": ["probe"], "slots": {"probe": 1}, "version": "1"}
        body |= {"protocol": 1, "incarnation": str(uuid4())} | change
        answer = await post(world, "/join", body, Authorization=f"Bearer {world.enrolment_key}")
        assert answer.status_code == 422
        assert answer.json()["code"] == "request.invalid"


class TestClaim:
    async def test_repeated_key_gets_the_same_answer(self, world: World) -> None:
        async with claimed_host(world) as (host, dispatch_id, claimed):
            again = await host.api.claim(dispatch_id, "key", 2)
        assert len(claimed.jobs) == 2
        assert again == claimed

    async def test_other_key_gets_nothing_more(self, world: World) -> None:
        async with claimed_host(world) as (host, dispatch_id, _):
            assert (await host.api.claim(dispatch_id, "other", 2)).jobs == ()

    async def test_dispatch_of_another_queue_is_refused_and_keeps_its_jobs(self, world: World) -> None:
        run_id = await world.start_run(1)
        dispatch_id = await dispatch(world, run_id, names.scan_queue(uuid4(), "probe"))
        async with joined_host(world) as host:
            with pytest.raises(Forbidden) as refused:
                await host.api.claim(dispatch_id, "key", 1)
        assert refused.value.code == "worker.queue"
        kept = await world.pool.fetchval("SELECT dispatch_id FROM jobs WHERE run_id = $1", run_id)
        assert str(kept) == dispatch_id

    async def test_unknown_dispatch_has_no_jobs(self, world: World) -> None:
        async with joined_host(world) as host:
            assert (await host.api.claim(str(uuid4()), "key", 1)).jobs == ()

    async def test_offline_worker_must_open_its_stream_first(self, world: World) -> None:
        async with joined_host(world) as host:
            dispatch_id = await dispatch(world, await world.start_run(1))
            await world.pool.execute("UPDATE workers SET status = 'offline'")
            with pytest.raises(Unavailable):
                await host.api.claim(dispatch_id, "key", 1)
            async with open_stream(world, host):
                assert len((await host.api.claim(dispatch_id, "key", 1)).jobs) == 1

    async def test_no_token_is_401_and_wrong_incarnation_409(self, world: World) -> None:
        body = {"dispatch_id": str(uuid4()), "claim_key": "k", "slots": 1}
        async with joined_host(world) as host:
            nobody = await post(world, "/claims", body)
            token = {"Authorization": f"Bearer {host.joined.token}"}
            stale = await post(
                world, "/claims", body, **token | {names.WORKER_INCARNATION_HEADER: str(uuid4())}
            )
        assert (nobody.status_code, nobody.json()["code"]) == (401, "worker.token")
        assert (stale.status_code, stale.json()["code"]) == (409, "worker.stale_incarnation")


class TestHeartbeat:
    async def test_jobs_that_are_not_the_workers_are_named(self, world: World) -> None:
        async with claimed_host(world) as (host, _, claimed):
            mine, other = claimed.jobs
            running = [(mine.job_id, mine.attempt), (other.job_id, other.attempt + 1), (str(uuid4()), 1)]
            cancels = await host.api.heartbeat(Beat(1, is_draining=False, running=running))
        assert set(cancels) == set(running[1:])

    async def test_draining_worker_is_given_nothing_more(self, world: World) -> None:
        async with joined_host(world) as host:
            dispatch_id = await dispatch(world, await world.start_run(1))
            await host.api.heartbeat(Beat(1, is_draining=True, running=()))
            assert (await host.api.claim(dispatch_id, "key", 1)).jobs == ()
            assert await column(world, host, "status") == "draining"


class TestResults:
    async def test_small_result_is_staged_inline_and_a_repeat_is_answered_alike(self, world: World) -> None:
        async with claimed_host(world) as (host, dispatch_id, claimed):
            only = package(host, dispatch_id, claimed, b'{"number":1}')
            first = await deliverer(world, host).deliver(only, 1)
            second = await deliverer(world, host).deliver(only, 1)
        assert len(first.accepted) == 2
        assert second == first
        (stored,) = await world.pool.fetch("SELECT body FROM job_results")
        assert stored["body"].count(b'"records":[{"number":1}]') == 2

    async def test_large_result_goes_through_the_bucket(self, world: World) -> None:
        async with claimed_host(world) as (host, dispatch_id, claimed):
            only = package(host, dispatch_id, claimed, b'"' + b"x" * 200_000 + b'"')
            answer = await deliverer(world, host).deliver(only, 5)
        assert len(answer.accepted) == 2
        (stored,) = await world.pool.fetch("SELECT body, object_key, size_bytes FROM job_results")
        assert stored["body"] is None
        assert stored["size_bytes"] == len(only.body or b"")
        assert stored["object_key"].startswith(f"{world.workspace_id}/{dispatch_id}/")

    async def test_result_that_is_too_large_for_the_call_is_uploaded_instead(self, world: World) -> None:
        async with claimed_host(world) as (host, dispatch_id, claimed):
            only = package(host, dispatch_id, claimed, b'"' + b"x" * 200_000 + b'"')
            await deliverer(world, host, inline_bytes=10_000_000).deliver(only, 5)
        assert await world.pool.fetchval("SELECT object_key IS NOT NULL FROM job_results")

    async def test_inline_result_over_the_limit_is_refused(self, world: World) -> None:
        async with claimed_host(world) as (host, dispatch_id, claimed):
            only = package(host, dispatch_id, claimed)
            with pytest.raises(TooLarge) as refused:
                await host.api.results(only.fields, b"x" * 70_000)
        assert refused.value.code == "result.inline"

    async def test_object_of_somebody_else_is_refused(self, world: World) -> None:
        async with claimed_host(world) as (host, dispatch_id, claimed):
            foreign = {"key": f"{uuid4()}/{uuid4()}/x.ndjson", "size": 1, "sha256": "0" * 64}
            fields = {**package(host, dispatch_id, claimed).fields, "object": foreign}
            with pytest.raises(Invalid) as refused:
                await host.api.results(fields, None)
        assert refused.value.code == "result.object"

    async def test_result_of_another_category_is_refused(self, world: World) -> None:
        async with claimed_host(world) as (host, dispatch_id, claimed):
            fields = {**package(host, dispatch_id, claimed).fields, "category": "ports_scanner"}
            with pytest.raises(Invalid) as refused:
                await host.api.results(fields, None)
        assert refused.value.code == "result.category"

    @pytest.mark.breaks_invariants  # the attempt moves on without a claim
    async def test_result_at_another_attempt_is_stale(self, world: World) -> None:
        async with claimed_host(world) as (host, dispatch_id, claimed):
            await world.pool.execute("UPDATE jobs SET attempt = attempt + 1")
            answer = await deliverer(world, host).deliver(package(host, dispatch_id, claimed), 1)
        assert (len(answer.accepted), len(answer.stale)) == (0, 2)

    async def test_later_life_delivers_what_an_earlier_one_left_in_the_spool(self, world: World) -> None:
        async with claimed_host(world) as (host, dispatch_id, claimed):
            only = package(host, dispatch_id, claimed)
            await Spool(world.folder / "spool", 1_000_000).put(only)
            async with joined_host(world, host.joined.token) as later:
                assert await deliverer(world, later).redeliver() == 1
        staged = await world.pool.fetchval("SELECT count(*) FROM job_attempts WHERE staged_at IS NOT NULL")
        assert staged == 2

    async def test_hostile_text_is_stored_clean(self, world: World) -> None:
        async with claimed_host(world, 1) as (host, dispatch_id, claimed):
            member = {
                "job_id": claimed.jobs[0].job_id,
                "attempt": 1,
                "outcome": "completed",
                "complete": True,
            }
            member |= {"reachable": True, "argv": None, "tool_version": None}
            member |= {"error": "a\x00b", "coverage": {"\x00": "\x00"}}
            fields = {**package(host, dispatch_id, claimed).fields, "members": [member]}
            await host.api.results(fields, None)
        row = await world.pool.fetchrow("SELECT staged_error, coverage FROM job_attempts")
        assert row is not None
        assert "\x00" not in row["staged_error"]


class TestStream:
    async def test_cancelled_run_is_told_to_workers_of_its_workspace_only(self, world: World) -> None:
        other = await world.pool.fetchval("INSERT INTO workspaces (name) VALUES ('other') RETURNING id")
        pepper = world.settings.key_pepper.get_secret_value().encode()
        async with world.pool.acquire() as conn:
            key = await create_key(conn, NewKey("enrol", other, [Scope.WORKER_JOIN]), pepper)
        run_id = await world.start_run(1)
        async with (
            joined_host(world) as host,
            joined_host(world, key.plaintext) as stranger,
            open_stream(world, host) as mine,
            open_stream(world, stranger) as theirs,
        ):
            async with world.pool.acquire() as conn, conn.transaction():
                await cancel_run(conn, world.workspace_id, run_id)
            assert await next_of(mine, "cancel_run") == str(run_id)
            assert await next_of(theirs, "ping") == 1
            assert theirs.empty()

    async def test_cancelled_job_is_told_to_its_worker(self, world: World) -> None:
        async with joined_host(world) as host, open_stream(world, host) as messages:
            notice = {"kind": "cancel_job", "worker": host.joined.worker_id, "job": "j", "attempt": 3}
            await world.pool.execute(
                "SELECT pg_notify($1, $2)", names.CONTROL_CHANNEL, orjson.dumps(notice).decode()
            )
            async with asyncio.timeout(10):
                assert await messages.get() == {"cancel_job": "j", "attempt": 3}

    async def test_malformed_notices_are_survived(self, world: World) -> None:
        async with joined_host(world) as host, open_stream(world, host) as messages:
            for notice in (
                "",
                "[]",
                "{",
                '{"kind": "drain", "worker": "no id"}',
                '{"kind": "cancel_run", "run": "x"}',
            ):
                await world.pool.execute("SELECT pg_notify($1, $2)", names.CONTROL_CHANNEL, notice)
            drain = {"kind": "drain", "worker": host.joined.worker_id}
            await world.pool.execute(
                "SELECT pg_notify($1, $2)", names.CONTROL_CHANNEL, orjson.dumps(drain).decode()
            )
            assert await next_of(messages, "drain") is True

    async def test_broken_stream_takes_the_worker_off_line_after_the_grace(self, world: World) -> None:
        async with joined_host(world) as host:
            async with open_stream(world, host):
                assert await column(world, host, "status") == "online"
            await until(lambda: _is(world, host, "status", "offline"), 10)
        assert await world.pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'worker.timed_out'") == 1

    async def test_stream_that_comes_back_in_time_keeps_the_worker(self, world: World) -> None:
        async with joined_host(world) as host:
            async with open_stream(world, host):
                pass
            async with open_stream(world, host) as messages:
                await next_of(messages, "ping")
                await next_of(messages, "ping")
                assert await column(world, host, "status") == "online"
        assert await world.pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'worker.timed_out'") == 0

    async def test_stop_of_the_api_is_no_disconnect(self, world: World) -> None:
        async with joined_host(world) as host, open_stream(world, host):
            await world.stop_api()
            seen = await column(world, host, "stream_seen_at")
            status = await column(world, host, "status")
            await world.start_api()
        assert seen is not None
        assert status == "online"

    async def test_worker_whose_replica_died_with_it_is_found(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(control, "SILENT_S", 0.5)
        async with joined_host(world) as host:
            await world.pool.execute(
                """UPDATE workers SET stream_replica = 'gone', beat_at = beat_at - interval '1 minute',
                                      stream_seen_at = clock_timestamp() - interval '1 minute'"""
            )
            await until(lambda: _is(world, host, "status", "offline"), 15)

    async def test_stream_of_a_replaced_life_is_closed(self, world: World) -> None:
        async with joined_host(world) as host, open_stream(world, host) as messages:
            await world.pool.execute("UPDATE workers SET incarnation = $1", uuid4())
            assert await next_of(messages, "ended")
            with pytest.raises(Conflict):
                await host.api.heartbeat(NOTHING)


async def _is(world: World, host: Host, name: str, value: object) -> bool:
    return await column(world, host, name) == value


async def _is_null(world: World, host: Host, name: str) -> bool:
    return await column(world, host, name) is None
