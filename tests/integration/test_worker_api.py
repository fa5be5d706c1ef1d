"""The worker endpoints, called as a scan worker or as somebody who pretends to be one."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from runlane import names
from runlane.db.keys import NewKey, Scope, create_key
from runlane.db.pool import Pool
from runlane.errors import Conflict, Forbidden, Invalid, TooLarge, Unauthenticated, Unavailable
from runlane.scan.client import WorkerApi
from runlane.scan.spool import Spool
from runlane.scan.wire import Beat
from runlane.settings import Settings
from tests.integration.worker_host import (
    NOTHING,
    claimed_host,
    column,
    deliverer,
    dispatch,
    has_no,
    joined_host,
    life,
    open_stream,
    package,
    post,
)
from tests.integration.worker_world import World, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


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

    async def test_known_worker_of_another_protocol_is_refused_and_that_is_published_once(
        self, world: World
    ) -> None:
        async with joined_host(world) as host:
            newer = life(str(uuid4()), protocol=2)
            for _ in range(2):
                with pytest.raises(Conflict):
                    await host.api.join(newer, str(host.joined.token))
        assert await rejections(world) == 1

    async def test_second_process_with_the_credential_is_refused_while_the_first_lives(
        self, world: World
    ) -> None:
        async with joined_host(world) as host, open_stream(world, host):
            with pytest.raises(Conflict) as refused:
                async with joined_host(world, host.joined.token):
                    pass
            assert refused.value.code == "worker.identity_conflict"
            assert await column(world, host, "incarnation") == UUID(host.incarnation)
        assert await rejections(world) == 1

    async def test_newcomer_takes_over_once_the_stream_is_closed(self, world: World) -> None:
        async with joined_host(world) as host:
            async with open_stream(world, host):
                pass
            await until(lambda: has_no(world, host, "stream_seen_at"))
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


async def rejections(world: World) -> int:
    """How many events say that a host was refused."""
    count: int = await world.pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'worker.rejected'")
    return count


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
        assert await rejections(world) == 1

    async def test_shared_worker_is_given_jobs_of_workspaces_that_allow_it_and_of_no_other(
        self, world: World
    ) -> None:
        pepper = world.settings.key_pepper.get_secret_value().encode()
        async with world.pool.acquire() as conn:
            key = await create_key(conn, NewKey("shared", None, [Scope.WORKER_JOIN]), pepper)
        queue = names.shared_scan_queue("probe")
        dispatch_id = await dispatch(world, await world.start_run(1), queue)
        async with joined_host(world, key.plaintext) as host, open_stream(world, host):
            unwilling = await host.api.claim(dispatch_id, "first", 1)
            await world.pool.execute("UPDATE workspaces SET allow_shared = true")
            await world.pool.execute("UPDATE jobs SET dispatch_id = $1", UUID(dispatch_id))
            willing = await host.api.claim(dispatch_id, "second", 1)
        assert [each.task_queue for each in host.joined.queues] == [queue]
        assert (len(unwilling.jobs), len(willing.jobs)) == (0, 1)
        assert willing.options["allow"] == []

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
    async def test_heartbeat_is_no_event(self, world: World) -> None:
        async with joined_host(world) as host:
            before = await world.pool.fetchval("SELECT count(*) FROM outbox")
            for sequence in range(1, 4):
                await host.api.heartbeat(Beat(sequence, is_draining=False, running=()))
            assert await world.pool.fetchval("SELECT count(*) FROM outbox") == before

    async def test_jobs_that_are_not_the_workers_are_named(self, world: World) -> None:
        async with claimed_host(world) as (host, _, claimed):
            mine, other = claimed.jobs
            running = [(mine.job_id, mine.attempt), (other.job_id, other.attempt + 1), (str(uuid4()), 1)]
            answer = await host.api.heartbeat(Beat(1, is_draining=False, running=running))
        assert set(answer.cancels) == set(running[1:])

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
