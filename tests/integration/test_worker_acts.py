"""What people do to scan workers: look at one, drain it, have it take jobs again, revoke it, put it away."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from runlane import names
from runlane.db.keys import Scope
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem, served
from tests.integration.scan_host import enrol
from tests.integration.test_bound_workers import operator
from tests.integration.test_cli_api import Terminal
from tests.integration.worker_host import dispatch, has, joined_host, open_stream
from tests.integration.worker_world import World, core_of, is_true, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration

ACTS = "SELECT data ->> 'action' AS action FROM outbox WHERE data ? 'action' ORDER BY id"


@pytest_asyncio.fixture
async def live(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world:
        yield world


async def test_drained_worker_finishes_what_it_has_and_takes_nothing_until_that_is_undone(
    live: World,
) -> None:
    async with core_of(live.settings), live.scan_worker(), operator(live) as http:
        worker_id = (await http.get("/v1/workers")).json()["items"][0]["id"]
        first = await live.start_run(1, {"sleep_ms": 1_500})
        await until(lambda: live.has_status(first, "in_progress", 1))

        drained = await http.post(f"/v1/workers/{worker_id}/drain", json={"reason": "patches"})
        shown = (await http.get(f"/v1/workers/{worker_id}")).json()
        second = await live.start_run(2)  # about the target that is new
        assert await live.closed(first) == "completed"
        await until(
            lambda: is_true(
                live.pool.fetchval("SELECT blocked_reason FROM job_histories WHERE id = $1", second)
            )
        )
        waiting = await live.statuses(second)
        undone = await http.post(f"/v1/workers/{worker_id}/undrain")

        assert await live.closed(second) == "completed"

    assert (drained.json()["changed"], undone.json()["changed"]) == (True, True)
    assert (shown["status"], shown["drained_at"] is not None) == ("draining", True)
    assert waiting == {"pending": 1}
    assert await live.attempts(first) == {"completed": 1}
    assert [row["action"] for row in await live.pool.fetch(ACTS)] == ["worker.drain", "worker.undrain"]


async def test_batch_that_waits_for_a_revoked_worker_is_dispatched_where_another_is(live: World) -> None:
    await live.pool.execute("UPDATE workspaces SET allow_shared = true")
    async with core_of(live.settings), operator(live) as http:
        lost = await enrol(live.pool, live.workspace_id)  # on line, but never polls
        run_id = await live.start_run(1)
        await until(lambda: is_true(live.pool.fetchval("SELECT count(*) = 1 FROM dispatches")))

        await http.post(f"/v1/workers/{lost.worker_id}/revoke")
        await until(lambda: is_true(live.pool.fetchval("SELECT blocked_reason FROM job_histories")))
        async with live.scan_worker():
            assert await live.closed(run_id) == "completed"


async def test_host_that_is_started_again_stays_drained(live: World) -> None:
    async with operator(live) as http, joined_host(live) as host:
        await http.post(f"/v1/workers/{host.joined.worker_id}/drain")
        async with joined_host(live, host.joined.token) as again, open_stream(live, again):
            await live.pool.execute("UPDATE workers SET status = 'offline'")
            await until(lambda: has(live, again, "status", "draining"))
            dispatch_id = await dispatch(live, await live.start_run(1))
            claimed = await again.api.claim(dispatch_id, "key", 1)
            await http.post(f"/v1/workers/{host.joined.worker_id}/undrain")

            assert await has(live, again, "status", "online")

    assert claimed.jobs == ()


async def test_acts_are_repeatable_and_refused_where_they_make_no_sense(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    host = await enrol(pool, caller.workspace_id)
    path = f"/v1/workers/{host.worker_id}"

    async def act(verb: str) -> object:
        answer = await caller.http.post(f"{path}/{verb}", json={"reason": "why"})
        return answer.json().get("changed", answer.json().get("code"))

    said = [(verb, await act(verb)) for verb in ("drain", "drain", "undrain", "undrain", "delete")]
    said += [(verb, await act(verb)) for verb in ("revoke", "revoke", "drain", "delete", "delete", "revoke")]
    shown = (await caller.http.get(path)).json()

    assert said == [
        ("drain", True), ("drain", False), ("undrain", True), ("undrain", False),
        ("delete", "worker.present"), ("revoke", True), ("revoke", False), ("drain", "worker.revoked"),
        ("delete", True), ("delete", False), ("revoke", "worker.not_found"),
    ]  # fmt: skip
    assert (shown["status"], shown["deleted_at"] is not None, shown["jobs"]) == ("revoked", True, 0)
    assert (await caller.http.get("/v1/workers")).json()["items"] == []
    assert [row["action"] for row in await pool.fetch(ACTS)] == [
        "worker.drain", "worker.undrain", "worker.revoke", "worker.delete",
    ]  # fmt: skip
    async with world.caller_of(caller.workspace_id, [Scope.WORKERS_READ]) as reader:
        assert_problem(await reader.http.post(f"{path}/drain"), 403, "key.scope")
    assert_problem(await caller.http.post(f"/v1/workers/{uuid4()}/drain"), 404, "worker.not_found")


async def test_attempts_refer_to_a_worker_that_was_deleted(live: World) -> None:
    async with core_of(live.settings), operator(live) as http:
        async with live.scan_worker():
            run_id = await live.start_run(1)
            assert await live.closed(run_id) == "completed"
        worker_id = (await http.get("/v1/workers")).json()["items"][0]["id"]
        deleted = await http.post(f"/v1/workers/{worker_id}/delete")
        job = (await http.get(f"/v1/jobs?run={run_id}")).json()["items"][0]["id"]
        attempt = (await http.get(f"/v1/jobs/{job}")).json()["attempts"][0]
        shown = await http.get(f"/v1/workers/{attempt['worker_id']}")

    assert deleted.json() == {"worker_id": worker_id, "changed": True}
    assert (attempt["worker_id"], shown.json()["name"]) == (worker_id, "one")


async def test_workers_are_managed_from_the_command_line(
    world: ApiWorld, caller: Caller, pool: Pool, tmp_path: Path
) -> None:
    own = str((await enrol(pool, caller.workspace_id)).worker_id)
    shared = str((await enrol(pool, caller.workspace_id, is_shared=True)).worker_id)
    async with served(world.app) as url, world.caller_of(caller.workspace_id) as other:
        terminal = Terminal(url, other.key, tmp_path, world.settings)
        drained = await terminal.run("worker", "drain", own[-8:], "--reason", "patches")
        shown = await terminal.run("worker", "show", own, "--json")
        undrained = await terminal.run("worker", "undrain", own, "--json")
        foreign = await terminal.run("worker", "revoke", shared)
        revoked = await terminal.run("worker", "revoke", own)
        deleted = await terminal.run("worker", "delete", own)

    assert [done.code for done in (drained, shown, undrained, revoked, deleted)] == [0] * 5, drained.err
    assert (shown.json["status"], undrained.json["changed"]) == ("draining", True)
    assert (foreign.code != 0, "worker.not_found" in foreign.err) == (True, True)
    assert await pool.fetchval("SELECT deleted_at IS NOT NULL FROM workers WHERE id = $1", UUID(own))
    assert names.worker_subject(UUID(own)) in [
        row["subject"] for row in await pool.fetch("SELECT subject FROM outbox")
    ]
