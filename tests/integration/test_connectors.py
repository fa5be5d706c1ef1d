"""Connectors on the server: added, named by steps, dispatched to workers in container mode, switched off."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
import yaml
from asyncpg.connection import LoggedQuery

from runlane.cli.answers import objects_in
from runlane.connectors import Manifest, read_manifest
from runlane.db.acts import Act
from runlane.db.config_profiles import NewProfile, save_profile
from runlane.db.connectors import NewConnector, add_connector, named, switch_connector
from runlane.db.definitions import read_definition
from runlane.db.keys import NewKey, Scope, check_pepper, create_key
from runlane.db.pool import Connection, Pool
from runlane.db.views.why import why_job, why_run
from runlane.errors import Conflict, Invalid
from runlane.waiting import Reason
from tests.integration.api_world import ApiWorld, assert_problem, served
from tests.integration.dispatched_run import DispatchedRun, Shape, dispatched_run
from tests.integration.scan_host import ScanHost, enrol
from tests.integration.test_cli_api import Terminal

pytestmark = pytest.mark.integration

ECHO: dict[str, object] = {
    "slug": "echo",
    "name": "echo",
    "version": "2.1",
    "category": "bench",
    "fans_out": "targets",
    "image": "tools/echo",
    "digest": f"sha256:{'0a' * 32}",
    "entrypoint": ["/bin/echo-job"],
    "argv": ["{option:times}"],
    "input": "stdin",
    "output": "records",
    "network": "none",
    "options": {"times": {"type": "whole", "low": 1, "high": 9, "default": 1}},
    "limits": {"wall_s": 90, "parallelism": 2, "max_batch": 2},
}
RUNNING = "SELECT tool_id, toolset, category, own_only, status FROM jobs"


def manifest(**changes: object) -> Manifest:
    return read_manifest({**ECHO, **changes})


async def add(pool: Pool, workspace_id: UUID | None, **changes: object) -> str:
    """Adds a connector; returns the id of its tool."""
    async with pool.acquire() as conn, conn.transaction():
        row = await add_connector(conn, NewConnector(workspace_id, manifest(**changes)), Act(name="me"))
    return str(row["tool_id"])


async def switch(pool: Pool, workspace_id: UUID | None, *, is_on: bool) -> bool:
    async with pool.acquire() as conn, conn.transaction():
        row = await switch_connector(conn, workspace_id, "echo", Act(name="me", reason="broken"), is_on=is_on)
    return bool(row["is_changed"])


async def acts(pool: Pool) -> list[str]:
    rows = await pool.fetch("SELECT data ->> 'action' FROM outbox WHERE data ? 'action' ORDER BY id")
    return [row[0] for row in rows]


@asynccontextmanager
async def statements(conn: Connection) -> AsyncIterator[list[str]]:
    """What is sent to the database meanwhile."""
    seen: list[str] = []

    def note(query: LoggedQuery) -> None:
        seen.append(query.query)

    with conn.query_logger(note):
        yield seen


async def test_jobs_of_a_connector_go_to_workers_in_container_mode_with_its_manifest(
    pool: Pool, workspace_id: UUID
) -> None:
    await add(pool, None)
    probes, containers = await enrol(pool, workspace_id), await enrol(pool, workspace_id, toolset="container")

    run = await dispatched_run(pool, workspace_id, Shape("echo", {"times": 3}, batches=2, jobs_each=2))
    unfit = await probes.claim(run.dispatches[0], "probe", 10)
    answer = await containers.claim(run.dispatches[1], "container", 10)

    rows = await pool.fetch("SELECT DISTINCT task_queue, size FROM dispatches")
    assert [tuple(row) for row in rows] == [(f"scan.{workspace_id}.container", 2)]
    modes = {row["id"]: row["container_mode"] for row in await pool.fetch("SELECT * FROM workers")}
    assert modes == {probes.worker_id: False, containers.worker_id: True}
    assert (unfit.jobs, unfit.connector) == ((), None)
    assert len(answer.jobs) == 2
    assert answer.tool_id == "echo"
    assert (answer.options["times"], answer.options["timeout_s"]) == (3, 90)
    assert read_manifest(answer.connector) == manifest()
    again = await containers.claim(run.dispatches[1], "container", 10)
    assert again == answer


async def test_claims_of_tools_that_come_with_us_pay_nothing_for_connectors(
    pool: Pool, workspace_id: UUID
) -> None:
    run = await dispatched_run(pool, workspace_id)
    host = await enrol(pool, workspace_id)

    async with pool.acquire() as conn, statements(conn) as seen:
        held = ScanHost(_Held(conn), workspace_id, host.worker_id, host.incarnation)  # type: ignore[arg-type]  # gives this very connection
        answer = await held.claim(run.dispatches[0], "key", 1)

    assert len(answer.jobs) == 1
    assert answer.connector is None
    assert not [text for text in seen if "connectors" in text]


class _Held:
    """A pool of the one connection whose statements are noted."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        yield self._conn


async def test_two_workspaces_may_have_connectors_of_one_name(pool: Pool, workspace_id: UUID) -> None:
    other = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('other') RETURNING id")

    ours, theirs = await add(pool, workspace_id), await add(pool, other, version="9")

    assert ours != theirs
    async with pool.acquire() as conn:
        found = {each: (await named(conn, each, ["echo"]))["echo"] for each in (workspace_id, other)}
    assert [(each.tool_id, each.manifest.version) for each in found.values()] == [
        (ours, "2.1"),
        (theirs, "9"),
    ]


async def test_shared_worker_is_never_given_a_workspace_s_own_image(pool: Pool, workspace_id: UUID) -> None:
    await pool.execute("UPDATE workspaces SET allow_shared = true")
    tool_id = await add(pool, workspace_id)
    await add(pool, None, slug="common")
    shared = await enrol(pool, workspace_id, toolset="container", is_shared=True)

    run = await dispatched_run(pool, workspace_id, Shape("echo"))
    await pool.execute("UPDATE targets SET value = 'other.test'")
    common = await dispatched_run(pool, workspace_id, Shape("common"))

    assert [tuple(row) for row in await pool.fetch(f"{RUNNING} WHERE run_id = $1", run.run_id)] == [
        (tool_id, "container", "bench", True, "pending")
    ]
    assert run.dispatches == []
    why = await _why(pool, workspace_id, run)
    assert "no live worker of the workspace itself for the tool set container" in why
    assert "1 shared, which may not take it" in why
    assert len((await shared.claim(common.dispatches[0], "key", 1)).jobs) == 1


async def _why(pool: Pool, workspace_id: UUID, run: DispatchedRun) -> str:
    async with pool.acquire() as conn:
        job_id = await conn.fetchval("SELECT id FROM jobs WHERE run_id = $1", run.run_id)
        return (await why_job(conn, workspace_id, job_id)).text


async def test_new_manifest_is_what_later_claims_are_given(pool: Pool, workspace_id: UUID) -> None:
    await add(pool, workspace_id)
    host = await enrol(pool, workspace_id, toolset="container")
    run = await dispatched_run(pool, workspace_id, Shape("echo"))

    await add(pool, workspace_id, version="3", digest=f"sha256:{'ff' * 32}", limits={"wall_s": 30})
    answer = await host.claim(run.dispatches[0], "key", 1)

    told = read_manifest(answer.connector)
    assert (told.version, told.digest, answer.options["timeout_s"]) == ("3", f"sha256:{'ff' * 32}", 30)


async def test_adding_is_repeatable_and_keeps_what_steps_are_built_on(pool: Pool, workspace_id: UUID) -> None:
    await add(pool, workspace_id)
    await add(pool, workspace_id)
    await add(pool, None, slug="common")

    with pytest.raises(Conflict) as kind:
        await add(pool, workspace_id, fans_out="assets")
    with pytest.raises(Conflict) as taken:
        await add(pool, workspace_id, slug="common")

    assert (kind.value.code, taken.value.code) == ("connector.changed_kind", "connector.taken")
    assert await pool.fetchval("SELECT count(*) FROM connectors") == 2
    assert await acts(pool) == ["connector.add", "connector.add"]  # of ours, and of the platform's


async def test_connectors_are_bounded(
    pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runlane.db.connectors.MAX_CONNECTORS", 1)
    await add(pool, workspace_id)
    await add(pool, workspace_id, version="3")

    with pytest.raises(Conflict) as full:
        await add(pool, workspace_id, slug="other")

    assert full.value.code == "connector.too_many"


async def test_what_was_dispatched_before_a_connector_was_switched_off_is_given_back(
    pool: Pool, workspace_id: UUID
) -> None:
    await add(pool, workspace_id)
    host = await enrol(pool, workspace_id, toolset="container")
    run = await dispatched_run(pool, workspace_id, Shape("echo", batches=2))
    running = await host.claim(run.dispatches[0], "first", 1)

    changed, again = (
        await switch(pool, workspace_id, is_on=False),
        await switch(pool, workspace_id, is_on=False),
    )
    answer = await host.claim(run.dispatches[1], "second", 1)

    assert (changed, again) == (True, False)
    assert (len(running.jobs), len(answer.jobs)) == (1, 0)
    states = await pool.fetch("SELECT status, dispatch_id IS NULL, free_attempts FROM jobs ORDER BY 1")
    assert [tuple(row) for row in states] == [("in_progress", False, 0), ("pending", True, 0)]
    async with pool.acquire() as conn:
        why = await why_run(conn, workspace_id, run.run_id)
    assert [group.explanation.reason for step in why.steps for group in step.groups] == [Reason.TOOL_OFF]


async def test_options_of_a_step_are_checked_by_the_manifest_wherever_they_are_given(
    pool: Pool, workspace_id: UUID
) -> None:
    await add(pool, workspace_id)
    step = {"run": "echo", "config": {"times": 99, "evil": "--privileged"}}

    async with pool.acquire() as conn:
        with pytest.raises(Invalid) as of_step:
            await read_definition(conn, workspace_id, {"name": "t", "jobs": {"a": step}})
        with pytest.raises(Invalid) as unknown:
            await read_definition(conn, workspace_id, {"name": "t", "jobs": {"a": {"run": "other"}}})
        graph = await read_definition(
            conn, workspace_id, {"name": "t", "jobs": {"a": {"run": "echo"}, "b": {"run": "noop"}}}
        )
        with pytest.raises(Invalid) as of_profile:
            await save_profile(conn, NewProfile(workspace_id, "echo", "p", {"times": "x"}), Act())
        async with conn.transaction():
            saved = await save_profile(conn, NewProfile(workspace_id, "echo", "p", {"times": 2}), Act())
    with pytest.raises(Invalid) as of_run:
        graph.with_config({"a": {"times": 0}})

    assert set(of_step.value.fields) == {"jobs.a.config.times", "jobs.a.config.evil"}
    assert set(unknown.value.fields) == {"jobs.a.run"}
    assert set(of_profile.value.fields) == {"options.times"}
    assert set(of_run.value.fields) == {"config.a.times"}
    assert saved["tool_id"] == graph.steps[0].tool_id
    shared = graph.with_config({"*": {"times": 4}}).steps
    assert [step.config for step in shared] == [{"times": 4}, {"times": 4}]
    assert graph.as_json()["jobs"]["a"]["run"] == "echo"  # type: ignore[index]  # an object


async def test_connectors_over_http_and_on_the_command_line(
    world: ApiWorld, pool: Pool, tmp_path: Path
) -> None:
    (tmp_path / "manifest.yaml").write_text(yaml.safe_dump({**ECHO, "digest": "to be built"}))
    digest = str(ECHO["digest"])
    async with world.caller("ours") as ours, world.caller("theirs") as theirs, served(world.app) as url:
        terminal = Terminal(url, ours.key, tmp_path, world.settings)
        unfit = await terminal.run("connector", "check", ".")
        fits = await terminal.run("connector", "check", ".", "--digest", digest, "--json")
        added = await terminal.run("connector", "add", ".", "--digest", digest, "--reason", "new", "--json")
        listed = await terminal.run("connector", "list", "--json")
        shown = await terminal.run("connector", "show", "echo")
        off = await terminal.run("connector", "disable", "echo", "--json")
        plan = await ours.http.post(
            "/v1/runs?plan=true",
            json={
                "definition": {"name": "t", "jobs": {"a": {"run": "echo"}}},
                "targets": [await world.add_target(ours)],
            },
        )
        on = await terminal.run("connector", "enable", "echo")

        foreign = await theirs.http.post("/v1/connectors/echo/disable")
        hidden = await theirs.http.get("/v1/connectors")
        platform = await ours.http.post("/v1/platform/connectors", json={"manifest": ECHO})
        malformed = await ours.http.post("/v1/connectors", json={"manifest": "a: [b"})
        host_network = await ours.http.post("/v1/connectors", json={"manifest": {**ECHO, "network": "host"}})
        unknown = await theirs.http.post(
            "/v1/runs", json={"definition": {"name": "t", "jobs": {"a": {"run": "echo"}}}, "targets": []}
        )

    assert unfit.code != 0
    assert "digest" in unfit.err
    assert fits.json["limits"] == manifest().as_json()["limits"]
    assert (added.json["slug"], added.json["is_changed"], added.json["enabled"]) == ("echo", True, True)
    assert [each["digest"] for each in objects_in(listed.json, "items")] == [digest]
    assert digest in shown.out
    assert (off.json["enabled"], on.code) == (False, 0)
    assert f"the tool {added.json['tool_id']} is switched off" in plan.json()["missing"]
    assert_problem(foreign, 404, "connector.not_found")
    assert hidden.json()["items"] == []
    assert_problem(platform, 403, "key.scope")
    assert_problem(malformed, 422, "connector.invalid")
    problem = assert_problem(host_network, 422, "connector.invalid")
    assert "host networking" in str(problem["fields"])
    assert unknown.status_code == 422
    assert await acts(pool) == ["connector.add", "connector.disable", "connector.enable"]


async def test_connector_of_the_platform_is_everybody_s_and_only_the_platform_switches_it(
    world: ApiWorld, pool: Pool
) -> None:
    pepper = check_pepper(world.settings.key_pepper.get_secret_value())
    async with world.caller("ours") as ours:
        async with pool.acquire() as conn, conn.transaction():
            key = await create_key(conn, NewKey("ops", None, [Scope.PLATFORM_ADMIN]), pepper)
        async with world.anybody(key.plaintext) as ops:
            made = await ops.post("/v1/platform/connectors", json={"manifest": yaml.safe_dump(ECHO)})
            off = await ops.post("/v1/platform/connectors/echo/disable", json={"reason": "broken"})
        seen = await ours.http.get("/v1/connectors/echo")
        lifted = await ours.http.post("/v1/connectors/echo/enable")
        own = await ours.http.post("/v1/connectors", json={"manifest": ECHO})

    assert (made.json()["workspace_id"], made.json()["tool_id"]) == (None, "echo")
    assert (off.json()["enabled"], seen.json()["enabled"]) == (False, False)
    assert_problem(lifted, 404, "connector.not_found")
    assert_problem(own, 409, "connector.taken")
    assert await acts(pool) == ["connector.add", "connector.disable"]
