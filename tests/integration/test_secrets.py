"""Secrets: written by people and read by nobody but the worker that runs the job, for its tool."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio
from temporalio.client import Client

from runlane import names
from runlane.db import secrets
from runlane.db.acts import Act
from runlane.db.claimed_secrets import with_secrets
from runlane.db.claims import ClaimRequest, claim
from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from runlane.errors import Invalid, Unavailable
from runlane.keyring import Keyring
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem, open_api, served
from tests.integration.scan_host import enrol
from tests.integration.test_cli_api import Terminal
from tests.integration.worker_world import World, core_of, world_of
from tests.unit.probe_servers import Reply, Request, page, serve_http

pytestmark = pytest.mark.integration

VALUE = "Bearer q7Zw-4tXc9LmP2"
WITH_SECRET = {"run": "noop", "config": {"headers": {"Authorization": {"secret_ref": "site"}}}}


async def set_secret(pool: Pool, settings: Settings, workspace_id: UUID, value: str = VALUE) -> None:
    wanted = secrets.NewSecret(workspace_id, "site", value)
    async with pool.acquire() as conn, conn.transaction():
        await secrets.set_secret(conn, wanted, Keyring.of(settings.secret_key_texts), Act())


async def everything_written(pool: Pool) -> str:
    """All rows of all tables, as text."""
    tables = await pool.fetch(
        """SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE c.relkind = 'r' AND n.nspname = 'public'"""
    )
    rows = [
        row["text"]
        for table in tables
        for row in await pool.fetch(f"SELECT t::text AS text FROM {table['name']} t")  # noqa: S608  # of ours
    ]
    bodies = await pool.fetch("SELECT body FROM job_results WHERE body IS NOT NULL")
    return "\n".join([*rows, *(row["body"].decode() for row in bodies)])


async def test_secret_is_set_replaced_listed_and_removed_but_never_shown(
    caller: Caller, pool: Pool, world: ApiWorld
) -> None:
    first = await caller.http.put("/v1/secrets/site", json={"value": VALUE, "reason": "for the shop"})
    again = await caller.http.put("/v1/secrets/site", json={"value": f"{VALUE}2"})
    listed = await caller.http.get("/v1/secrets")
    short = await caller.http.put("/v1/secrets/site", json={"value": "short"})
    odd = await caller.http.put("/v1/secrets/a%20b", json={"value": VALUE})
    written = await everything_written(pool)
    removed = await caller.http.post("/v1/secrets/site/remove")

    assert first.json()["id"] == again.json()["id"] == removed.json()["id"]
    assert (first.json()["rotated_at"], again.json()["rotated_at"] is None) == (None, False)
    assert [row["name"] for row in listed.json()["items"]] == ["site"]
    for answer in (first, again, listed, removed, short):
        assert "q7Zw" not in answer.text
        assert 'short"' not in answer.text
    assert_problem(short, 422, "request.invalid")
    assert_problem(odd, 422, "request.invalid")
    assert_problem(await caller.http.post("/v1/secrets/site/remove"), 404, "secret.not_found")
    assert "q7Zw" not in written
    acts = await pool.fetch("SELECT data FROM outbox WHERE data ? 'action' ORDER BY id")
    assert [row["data"]["action"] for row in acts] == ["secret.set", "secret.set", "secret.remove"]
    assert acts[0]["data"]["reason"] == "for the shop"


async def test_others_neither_see_a_secret_nor_set_one_without_the_scope(
    world: ApiWorld, caller: Caller, settings: Settings
) -> None:
    await caller.http.put("/v1/secrets/site", json={"value": VALUE})

    async with world.caller("theirs") as theirs, world.caller_of(caller.workspace_id, ["runs:write"]) as runs:
        seen = (await theirs.http.get("/v1/secrets")).json()["items"]
        refused = await runs.http.put("/v1/secrets/site", json={"value": VALUE})
        foreign = await theirs.http.post("/v1/secrets/site/remove")
    api = await asyncpg.connect(settings.database_api_url)
    try:
        await api.execute("SELECT set_config('runlane.workspace', $1, false)", str(caller.workspace_id))
        assert await api.fetchval("SELECT name FROM secrets") == "site"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await api.fetchval("SELECT ciphertext FROM secrets")
    finally:
        await api.close()

    assert seen == []
    assert_problem(refused, 403, "key.scope")
    assert_problem(foreign, 404, "secret.not_found")


async def test_without_a_key_secrets_are_refused_and_everything_else_works(
    settings: Settings, pool: Pool
) -> None:
    bare = settings.model_copy(
        update={"temporal_address": "127.0.0.1:1", "secret_keys": type(settings.secret_keys)("")}
    )
    async with open_api(bare, pool) as world, world.caller("ours") as caller:
        refused = await caller.http.put("/v1/secrets/site", json={"value": VALUE})
        target = await world.add_target(caller)

    assert_problem(refused, 503, "secret.no_key")
    assert target


async def test_start_that_refers_to_an_unknown_secret_is_refused(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    definition = parse_definition({"name": "t", "jobs": {"only": WITH_SECRET}})
    target_id = await pool.fetchval(
        "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'a.test') RETURNING id",
        workspace_id,
    )
    start = StartRun(workspace_id, definition, [target_id], "t")

    async with pool.acquire() as conn:
        with pytest.raises(Invalid) as refusal:
            async with conn.transaction():
                await start_run(conn, start)

    assert refusal.value.code == "secret.unknown"
    assert refusal.value.fields == {"jobs.only.config": "no such secret: site"}


async def dispatched(pool: Pool, workspace_id: UUID) -> UUID:
    """A run of one job with a secret, dispatched; its dispatch."""
    definition = parse_definition({"name": "t", "jobs": {"only": WITH_SECRET}})
    async with pool.acquire() as conn, conn.transaction():
        target_id = await conn.fetchval(
            "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'a.test') RETURNING id",
            workspace_id,
        )
        run_id = (await start_run(conn, StartRun(workspace_id, definition, [target_id], "t"))).run_id
        dispatch_id: UUID = await conn.fetchval(
            """INSERT INTO dispatches (workspace_id, run_id, step_id, workflow_id, workflow_run_id,
                                       call_number, task_queue, priority, size)
               VALUES ($1, $2, 'only', $3, 'x', 1, $4, 2, 1) RETURNING id""",
            workspace_id,
            run_id,
            f"run/{run_id}",
            names.scan_queue(workspace_id, "probe"),
        )
        await conn.execute("UPDATE jobs SET dispatch_id = $2 WHERE run_id = $1", run_id, dispatch_id)
    return dispatch_id


async def test_claim_gives_the_value_to_a_worker_of_the_workspace_and_rows_keep_the_name(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    await set_secret(pool, settings, workspace_id)
    await pool.execute("UPDATE workspaces SET allow_shared = true")
    own = await enrol(pool, workspace_id)
    shared = await enrol(pool, workspace_id, is_shared=True)
    dispatch_id = await dispatched(pool, workspace_id)
    keyring = Keyring.of(settings.secret_key_texts)

    answers = []
    for host in (shared, own, own):  # the same task asks twice
        request = ClaimRequest(dispatch_id, str(host.worker_id), host.worker_id, host.incarnation, 5)
        async with pool.acquire() as conn, conn.transaction():
            answers.append(await with_secrets(conn, keyring, request, await claim(conn, request)))
        await pool.execute(
            "UPDATE jobs SET dispatch_id = $1, due_at = clock_timestamp() WHERE status = 'pending'",
            dispatch_id,
        )

    assert [len(answer.jobs) for answer in answers] == [0, 1, 1]
    assert [dict(answer.secrets) for answer in answers] == [{}, {"site": VALUE}, {"site": VALUE}]
    assert answers[1].options["headers"] == {"Authorization": {"secret_ref": "site"}}
    assert "q7Zw" not in repr(answers)
    assert "q7Zw" not in await everything_written(pool)


async def test_job_whose_secret_was_removed_fails_at_its_claim_and_nothing_runs(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    await set_secret(pool, settings, workspace_id)
    host = await enrol(pool, workspace_id)
    dispatch_id = await dispatched(pool, workspace_id)
    async with pool.acquire() as conn, conn.transaction():
        await secrets.remove_secret(conn, workspace_id, "site", Act())
    request = ClaimRequest(dispatch_id, "key", host.worker_id, host.incarnation, 5)

    async with pool.acquire() as conn, conn.transaction():
        answer = await with_secrets(conn, Keyring(), request, await claim(conn, request))

    assert answer.jobs == ()
    row = await pool.fetchrow("SELECT staged_outcome, staged_error FROM job_attempts")
    assert row is not None
    assert tuple(row) == ("fatal", "secret.unknown: not there any more: site")


async def test_claim_without_the_key_is_undone_and_the_jobs_wait_uncharged(
    pool: Pool, settings: Settings, workspace_id: UUID
) -> None:
    await set_secret(pool, settings, workspace_id)
    host = await enrol(pool, workspace_id)
    dispatch_id = await dispatched(pool, workspace_id)
    request = ClaimRequest(dispatch_id, "key", host.worker_id, host.incarnation, 5)

    async with pool.acquire() as conn:
        with pytest.raises(Unavailable, match="RUNLANE_SECRET_KEYS"):
            async with conn.transaction():
                await with_secrets(conn, Keyring.of(["other " * 8]), request, await claim(conn, request))

    assert await pool.fetchval("SELECT status || '/' || attempt FROM jobs") == "pending/0"


async def test_rotation_encrypts_what_has_an_older_key_and_is_repeatable(
    pool: Pool, settings: Settings, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "ROTATED_AT_ONCE", 1)
    other = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('other') RETURNING id")
    for each in (workspace_id, other):
        await set_secret(pool, settings, each)
    before = await pool.fetchval("SELECT DISTINCT key_id FROM secrets")
    both = Keyring.of(["newer " * 8, *settings.secret_key_texts])

    async with pool.acquire() as conn, conn.transaction():
        rotated = [await secrets.rotate(conn, both) for _ in range(2)]
        only_new = await secrets.reveal(conn, Keyring.of(["newer " * 8]), workspace_id, ["site"])

    after = await pool.fetch("SELECT DISTINCT key_id FROM secrets")
    assert rotated == [2, 0]
    assert [row["key_id"] for row in after] == [both.newest] != [before]
    assert only_new.values == {"site": VALUE}


async def test_secrets_on_the_command_line_come_from_a_file_and_are_not_shown(
    world: ApiWorld, caller: Caller, tmp_path: Path
) -> None:
    (tmp_path / "value").write_text(f"{VALUE}\n")
    async with served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        done = await terminal.run("secret", "set", "site", "--file", str(tmp_path / "value"), "--json")
        listed = await terminal.run("secret", "list")
        refused = await terminal.run("secret", "rotate")
        removed = await terminal.run("secret", "remove", "site")

    assert (done.code, listed.code, removed.code) == (0, 0, 0), done.err
    assert refused.code != 0
    assert "site" in listed.out
    assert "q7Zw" not in "".join(each.out + each.err for each in (done, listed, refused, removed))


@pytest_asyncio.fixture
async def running(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as opened, core_of(opened.settings):
        yield opened


async def test_protected_page_is_probed_with_the_secret_which_is_found_nowhere_afterwards(
    running: World, settings: Settings
) -> None:
    await set_secret(running.pool, settings, running.workspace_id)

    def respond(request: Request) -> Reply:
        # a server that repeats what it was sent, as debug pages do
        given = request.headers.get("authorization", "nobody")
        if given != VALUE.lower():
            return page("<title>401</title>", status=401)
        return page(f"<title>inside for {VALUE}</title>", {"X-Debug": VALUE})

    async with serve_http(respond) as server:
        web = {"run": "webprobe", "needs": ["ports"], "config": WITH_SECRET["config"]}
        ports = {"run": "portprobe", "config": {"ports": str(server.port)}}
        definition = parse_definition({"name": "t", "jobs": {"ports": ports, "web": web}})
        async with running.scan_worker(), running.pool.acquire() as conn:
            async with conn.transaction():
                target_id = await conn.fetchval(
                    """INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'ip', '127.0.0.1')
                       RETURNING id""",
                    running.workspace_id,
                )
                start = StartRun(running.workspace_id, definition, [target_id], "t")
                run_id = (await start_run(conn, start)).run_id
                await conn.execute("UPDATE commands SET due_at = clock_timestamp()")
            assert await running.closed(run_id) == "completed"

    seen = await running.pool.fetchval("SELECT r::text FROM http_responses r")
    assert seen is not None
    assert "inside for ***" in seen
    argv = await running.pool.fetchval(
        "SELECT a.argv[2] FROM job_attempts a JOIN jobs j ON j.id = a.job_id WHERE j.step_id = 'web'"
    )
    assert "q7Zw" not in argv
    written = await everything_written(running.pool)
    client = await Client.connect(settings.temporal_address, namespace=settings.temporal_namespace)
    history = await client.get_workflow_handle(names.run_workflow_id(run_id)).fetch_history()
    spools = [path.read_bytes() for path in running.folder.rglob("*") if path.is_file()]
    for text in (written, history.to_json(), *(each.decode(errors="replace") for each in spools)):
        assert "q7Zw" not in text
