"""Processes that are started before their database is there, or before it has their schema."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import httpx2
import pytest
import pytest_asyncio
from alembic import command
from alembic.script import ScriptDirectory

from runlane.db.migrate import _config, upgrade
from runlane.db.schema import BEHIND, head, revisions, until_current
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from tests.conftest import Database
from tests.forwarding import forward
from tests.integration.worker_world import api_on, free_port

pytestmark = pytest.mark.integration

OLDER = "0007_events"


@pytest_asyncio.fixture
async def old_database(stack: Stack) -> AsyncIterator[Database]:
    """A database one migration behind."""
    assert stack.database_admin is not None
    name = f"t_{uuid4().hex[:12]}"
    await _administer(stack.database_admin, f"CREATE DATABASE {name} OWNER runlane")
    urls = (stack.urls.database_owner, stack.urls.database_api, stack.urls.database_system)
    made = Database(*(urlsplit(url)._replace(path=f"/{name}").geturl() for url in urls))
    await asyncio.to_thread(command.upgrade, _config(made.owner), OLDER)
    # the grants come with the last migration; a real older schema has them
    await _administer(made.owner, "GRANT SELECT ON alembic_version TO runlane_system")
    yield made
    await _administer(stack.database_admin, f"DROP DATABASE {name} WITH (FORCE)")


async def _administer(url: str, statement: str) -> None:
    admin = await asyncpg.connect(url)
    await admin.execute(statement)
    await admin.close()


def served(settings: Settings, **more: object) -> Settings:
    port = free_port()
    return settings.model_copy(update={"api_port": port, "api_url": f"http://127.0.0.1:{port}", **more})


def behind(port: int, url: str) -> str:
    """The same database, reached through another port."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()


@asynccontextmanager
async def forwarded(port: int, url: str) -> AsyncIterator[None]:
    """Somebody listens on the port and passes everything on to the database of the URL."""
    at = urlsplit(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await forward(reader, writer, str(at.hostname), at.port or 0)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


async def status(settings: Settings, path: str) -> tuple[int, object]:
    """Status and code of an answer."""
    async with httpx2.AsyncClient(base_url=settings.api_url, trust_env=False) as http:
        answer = await http.get(path, headers={"Authorization": "Bearer nobody"})
    return answer.status_code, answer.json().get("code")


async def test_api_that_starts_before_its_database_says_503_and_serves_once_it_is_there(
    settings: Settings,
) -> None:
    port = free_port()
    away = served(
        settings,
        database_api_url=behind(port, settings.database_api_url),
        database_system_url=behind(port, settings.database_system_url),
    )
    async with api_on(away):
        assert await status(away, "/healthz") == (200, None)
        assert await status(away, "/readyz") == (503, None)
        assert await status(away, "/v1/targets") == (503, "unavailable")

        async with forwarded(port, settings.database_system_url):
            assert await status(away, "/readyz") == (200, None)
            assert await status(away, "/v1/targets") == (401, "key.invalid")


async def test_api_on_an_older_schema_refuses_until_it_is_migrated(
    settings: Settings, old_database: Database
) -> None:
    old = served(
        settings,
        database_api_url=old_database.api,
        database_system_url=old_database.system,
    )
    async with api_on(old):
        assert await status(old, "/healthz") == (200, None)
        assert await status(old, "/readyz") == (503, None)
        assert await status(old, "/v1/targets") == (503, BEHIND)

        await upgrade(old_database.owner)

        assert await status(old, "/readyz") == (200, None)
        assert await status(old, "/v1/targets") == (401, "key.invalid")


async def test_process_on_an_older_schema_waits_until_it_is_migrated(old_database: Database) -> None:
    stop = asyncio.Event()
    waiting = asyncio.create_task(until_current(old_database.system, stop))
    assert await asyncio.wait([waiting], timeout=0.5) == (set(), {waiting})

    await upgrade(old_database.owner)

    assert await waiting is True


async def test_process_that_waits_for_its_schema_can_be_stopped(old_database: Database) -> None:
    stop = asyncio.Event()
    waiting = asyncio.create_task(until_current(old_database.system, stop))

    stop.set()

    assert await waiting is False


async def test_newer_schema_is_no_obstacle(database: Database) -> None:
    await _administer(database.owner, "UPDATE alembic_version SET version_num = '9999_of_a_later_version'")

    assert await until_current(database.system, asyncio.Event())


async def test_check_of_the_schema_changes_nothing_and_tells_by_its_exit_code(
    settings: Settings, old_database: Database
) -> None:
    before = await checked(old_database)
    await upgrade(old_database.owner)
    after = await checked(old_database)

    assert before == 10
    assert after == 0


def test_revisions_are_those_that_the_migrations_run_through() -> None:
    scripts = ScriptDirectory.from_config(_config("")).walk_revisions()

    assert [script.revision for script in scripts] == list(revisions())


async def checked(database: Database) -> int | None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runlane.cli", "migrate", "--check"),
        env={"PATH": os.environ["PATH"], "RUNLANE_DATABASE_SYSTEM_URL": database.system},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert (head() in said.decode()) or process.returncode == 0, said.decode()
    return process.returncode
