"""The whole stack: real servers with data in them, killed in every way, and brought back."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
import redis.asyncio
import urllib3
from minio import Minio
from temporalio.client import Client, WorkflowExecutionStatus

from runlane import names
from runlane.stack.errors import StackBusy, StackError
from runlane.stack.keeper import ProcessState
from runlane.stack.processes import ProcessSpec
from runlane.stack.state import LOOPBACK, ProcessRecord, State
from runlane.stack.supervisor import SERVERS, Stack
from runlane.stack.takedown import down
from runlane.stack.urls import StackUrls, running_environment
from tests.waiting import WAIT_S

pytestmark = pytest.mark.integration

SLEEPER = ProcessSpec("sleeper", (sys.executable, "-c", "import signal; signal.pause()"))
PRINTER = """
import os, signal
print(os.environ["RUNLANE_REDIS_URL"], os.environ["MARK"], flush=True)
signal.pause()
"""
ENDLESS = "DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$"
SUPERVISOR = """
import asyncio, os, sys
from pathlib import Path
from runlane.stack.processes import ProcessSpec
from runlane.stack.supervisor import Stack, stop_requested

async def main():
    sleeper = ProcessSpec("sleeper", (sys.executable, "-c", "import signal; signal.pause()"))
    async with Stack.open(Path(sys.argv[1]), os.environ, guarded="guarded" in sys.argv) as stack:
        await stack.start_process(sleeper)
        asked = asyncio.create_task(stop_requested())
        await asyncio.sleep(0)  # now a signal asks instead of killing
        print("ready", flush=True)
        await asked

asyncio.run(main())
"""


@pytest.fixture
def clean_env() -> dict[str, str]:
    """The environment without addresses of other stacks."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RUNLANE_")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the module: each test opens it again and finds what the last one left."""
    return tmp_path_factory.mktemp("stack") / "a folder with spaces"


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A stack that runs for the whole module; tests leave it running."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RUNLANE_")}
    async with Stack.open(tmp_path_factory.mktemp("shared"), env, guarded=True) as running:
        yield running


async def test_each_killed_server_comes_back_with_its_data(stack: Stack) -> None:
    await _write_data(stack.urls, "each")

    for name in SERVERS:
        killed = stack.kill(name)
        assert await stack.recovered(name, killed) != killed

    await _check_data(stack.urls, "each")
    assert [(each.state, each.restarts) for each in stack.status()] == [(ProcessState.READY, 1)] * 4


async def test_half_of_an_object_is_no_object_after_its_server_was_killed(stack: Stack) -> None:
    half = stack.folder / "s3" / "data" / names.RESULTS_BUCKET / "batch" / f".tmp.{uuid4().hex}"
    half.parent.mkdir()
    half.write_bytes(b"half")

    killed = stack.kill("s3")
    await stack.recovered("s3", killed)

    found = _bucket(stack.urls).list_objects(names.RESULTS_BUCKET, prefix="batch/", recursive=True)
    assert [each.object_name for each in found] == []
    assert not half.exists()


async def test_an_orderly_stop_leaves_no_process_and_keeps_data_and_addresses(
    folder: Path, clean_env: dict[str, str]
) -> None:
    async with Stack.open(folder, clean_env, guarded=True) as stack:
        urls, pids = stack.urls, [stack.pid(name) for name in SERVERS]
        await _write_data(urls, "orderly")

    assert not any(_is_running(pid) for pid in pids)
    assert running_environment(folder) == {}
    async with Stack.open(folder, clean_env, guarded=True) as stack:
        assert stack.urls == urls
        await _check_data(urls, "orderly")


async def test_after_the_supervisor_was_killed_servers_are_adopted_and_processes_replaced(
    folder: Path, clean_env: dict[str, str]
) -> None:
    async with _supervisor(folder, clean_env) as supervisor:
        pids = _recorded_pids(folder)
        urls = StackUrls.from_environment(running_environment(folder))
        await _write_data(urls, "adopted")
        supervisor.kill()
        supervisor.wait()

    async with Stack.open(folder, clean_env, guarded=True) as stack:
        assert {name: stack.pid(name) for name in SERVERS} == {name: pids[name] for name in SERVERS}
        assert all(each.adopted for each in stack.status())
        assert not _is_running(pids["sleeper"])
        await _check_data(urls, "adopted")
        killed = stack.kill("postgres")
        await stack.recovered("postgres", killed)


async def test_after_everything_was_killed_at_once_nothing_is_lost(
    folder: Path, clean_env: dict[str, str]
) -> None:
    async with _supervisor(folder, clean_env) as supervisor:
        pids = _recorded_pids(folder)
        await _write_data(StackUrls.from_environment(running_environment(folder)), "everything")
        supervisor.kill()
        supervisor.wait()
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)

    async with Stack.open(folder, clean_env, guarded=True) as stack:
        assert not any(each.adopted for each in stack.status())
        await _check_data(stack.urls, "everything")


async def test_a_busy_backend_of_a_killed_postgres_does_not_block_its_successor(stack: Stack) -> None:
    connection = await asyncpg.connect(stack.urls.database_owner)
    busy = asyncio.create_task(connection.execute(ENDLESS))
    await _wait_for_query(stack.urls, "END LOOP")

    killed = stack.kill("postgres")
    await asyncio.wait_for(stack.recovered("postgres", killed), WAIT_S)

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await busy
    connection.terminate()


async def test_a_stale_postgres_lock_that_names_a_living_stranger_is_overcome(
    folder: Path, clean_env: dict[str, str]
) -> None:
    async with Stack.open(folder, clean_env, guarded=True):
        lock_text = (folder / "postgres" / "data" / "postmaster.pid").read_text()
    stale = folder / "postgres" / "data" / "postmaster.pid"
    stale.write_text("\n".join([str(os.getpid()), *lock_text.split("\n")[1:]]))
    owner = (folder / "postgres" / "data").stat()
    os.chown(stale, owner.st_uid, owner.st_gid)

    async with Stack.open(folder, clean_env, guarded=True) as stack:
        assert stack.pid("postgres")


async def test_roles_have_exactly_the_rights_the_schema_counts_on(stack: Stack) -> None:
    connection = await asyncpg.connect(stack.urls.database_owner)
    rows = await connection.fetch(
        "SELECT rolname, rolsuper, rolbypassrls, rolcanlogin FROM pg_roles WHERE rolname LIKE 'runlane%'"
    )
    await connection.close()

    assert {row["rolname"]: tuple(row)[1:] for row in rows} == {
        "runlane": (False, False, True),
        "runlane_api": (False, False, True),
        "runlane_system": (False, True, True),
    }
    assert stack.database_admin is not None
    wrong = stack.urls.database_api.replace(":", ":wrong", 2).replace("postgresql:wrong", "postgresql:")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(wrong)


async def test_temporal_has_the_abilities_the_design_counts_on(stack: Stack) -> None:
    client = await Client.connect(stack.urls.temporal_address)
    found = client.list_workflows(f"{names.SA_WORKSPACE} = 'none' AND {names.SA_TOOLS} = 'none'")

    assert [workflow.id async for workflow in found] == []
    answer = await asyncio.to_thread(urllib3.request, "GET", str(stack.urls.temporal_ui))
    assert answer.status == 200


async def test_a_port_that_a_stranger_took_meanwhile_is_replaced(
    folder: Path, clean_env: dict[str, str]
) -> None:
    port = State.load(folder).port("s3")
    with socket.create_server((LOOPBACK, port)):
        async with Stack.open(folder, clean_env, guarded=True) as stack:
            assert urlsplit(stack.urls.s3_endpoint).port != port
            await _check_data(stack.urls, "everything")


async def test_a_server_that_the_environment_names_is_not_started(
    stack: Stack, clean_env: dict[str, str], tmp_path: Path
) -> None:
    names_of_others = set(SERVERS) - {"valkey"}
    given = {
        name: value
        for name, value in stack.environment().items()
        if not name.startswith(("RUNLANE_REDIS", "RUNLANE_STATE"))
    }
    async with Stack.open(tmp_path / "second", clean_env | given, guarded=True) as second:
        assert second.urls.database_api == stack.urls.database_api
        assert second.urls.redis != stack.urls.redis
        external = {each.name for each in second.status() if each.state is ProcessState.EXTERNAL}
        assert external == names_of_others
        assert second.database_admin is None
        with pytest.raises(StackError, match="no postgres"):
            second.pid("postgres")
    assert all(each.state is ProcessState.READY for each in stack.status())


async def test_a_second_supervisor_of_the_same_folder_is_refused(
    stack: Stack, clean_env: dict[str, str]
) -> None:
    with pytest.raises(StackBusy):
        async with Stack.open(stack.folder, clean_env):
            pass

    assert all(each.state is ProcessState.READY for each in stack.status())


async def test_processes_get_the_addresses_and_are_restarted(stack: Stack) -> None:
    spec = ProcessSpec("printer", (sys.executable, "-c", PRINTER), {"MARK": "mine"})
    await stack.start_process(spec)
    await stack.recovered("printer", stack.kill("printer"))
    await stack.stop_process("printer")

    assert set(stack.log_path("printer").read_text().split()) <= {stack.urls.redis, "mine"}
    with pytest.raises(StackError, match="already part"):
        await stack.start_process(spec)
    assert await stack.resume_process("printer")


async def test_a_detached_stack_runs_on_until_down(folder: Path, clean_env: dict[str, str]) -> None:
    async with Stack.open(folder, clean_env) as stack:
        await stack.start_process(SLEEPER)
        urls = stack.urls
        stack.detach()

    assert StackUrls.from_environment(running_environment(folder)) == urls
    await _check_data(urls, "everything")

    assert set(await down(folder)) == {*SERVERS, "sleeper"}
    assert await down(folder) == []


async def test_down_ends_a_supervisor_in_another_process(folder: Path, clean_env: dict[str, str]) -> None:
    async with _supervisor(folder, clean_env) as supervisor:
        pids = _recorded_pids(folder)

        assert set(await down(folder)) == {*SERVERS, "sleeper"}

        assert await asyncio.to_thread(supervisor.wait, 10) == 0
        assert not any(_is_running(pid) for pid in pids.values())


async def test_a_guarded_stack_goes_down_with_its_killed_supervisor(
    folder: Path, clean_env: dict[str, str]
) -> None:
    async with _supervisor(folder, clean_env, "guarded") as supervisor:
        pids = _recorded_pids(folder)

        supervisor.kill()
        supervisor.wait()

        async with asyncio.timeout(WAIT_S):
            while any(_is_running(pid) for pid in pids.values()):  # noqa: ASYNC110  # others' processes
                await asyncio.sleep(0.05)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else for PostgreSQL")
async def test_root_runs_postgres_below_a_folder_nobody_else_may_enter(
    tmp_path: Path, clean_env: dict[str, str]
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)

    async with Stack.open(closed / "stack", clean_env, guarded=True) as stack:
        connection = await asyncpg.connect(stack.urls.database_owner)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


def _is_running(pid: int) -> bool:
    return ProcessRecord.of(pid) is not None


def _recorded_pids(folder: Path) -> dict[str, int]:
    return {name: record.pid for name, record in State.load(folder).processes.items()}


@asynccontextmanager
async def _supervisor(
    folder: Path, env: Mapping[str, str], *options: str
) -> AsyncIterator[subprocess.Popen[str]]:
    """A supervisor in a process of its own, which may be killed."""
    argv = (sys.executable, "-c", SUPERVISOR, str(folder), *options)
    process = await asyncio.to_thread(
        lambda: subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    )
    with process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            assert await asyncio.to_thread(lambda: any(line == "ready\n" for line in lines))
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


async def _write_data(urls: StackUrls, mark: str) -> None:
    connection = await asyncpg.connect(urls.database_owner)
    await connection.execute("CREATE TABLE IF NOT EXISTS marks (mark text PRIMARY KEY)")
    await connection.execute("INSERT INTO marks VALUES ($1)", mark)
    await connection.close()
    async with redis.asyncio.Redis.from_url(urls.redis) as client:
        await client.xadd("marks", {"mark": mark})
    await asyncio.to_thread(
        lambda: _bucket(urls).put_object(names.RESULTS_BUCKET, mark, BytesIO(mark.encode()), len(mark))
    )
    temporal = await Client.connect(urls.temporal_address)
    await temporal.start_workflow("Ghost", id=mark, task_queue="nobody")


async def _check_data(urls: StackUrls, mark: str) -> None:
    connection = await asyncpg.connect(urls.database_owner)
    assert await connection.fetchval("SELECT mark FROM marks WHERE mark = $1", mark) == mark
    await connection.close()
    async with redis.asyncio.Redis.from_url(urls.redis) as client:
        entries = await client.xrange("marks")
    assert mark in str(entries)
    stat = await asyncio.to_thread(lambda: _bucket(urls).stat_object(names.RESULTS_BUCKET, mark))
    assert stat.size == len(mark)
    temporal = await Client.connect(urls.temporal_address)
    description = await temporal.get_workflow_handle(mark).describe()
    assert description.status is WorkflowExecutionStatus.RUNNING


async def _wait_for_query(urls: StackUrls, text: str) -> None:
    connection = await asyncpg.connect(urls.database_owner)
    query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE $1 AND state = 'active'"
    async with asyncio.timeout(WAIT_S):
        while await connection.fetchval(query, f"%{text}%") == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # the server tells nobody when a query begins
    await connection.close()


def _bucket(urls: StackUrls) -> Minio:
    return Minio(
        urlsplit(urls.s3_endpoint).netloc,
        access_key=urls.s3_access_key,
        secret_key=urls.s3_secret_key,
        secure=False,
        http_client=urllib3.PoolManager(timeout=WAIT_S, retries=False),
    )
