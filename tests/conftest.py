"""Fixtures of all tests: one embedded stack per session, a database of its own per test."""

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from redis.asyncio import Redis
from redis.exceptions import RedisError

from runlane.db import invariants
from runlane.db.migrate import seed_tools, upgrade
from runlane.db.pool import Pool, open_pool
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from tests.redis_servers import EMBEDDED, INSTALLED, installed_server, run_installed
from tests.waiting import until

# How fast an example is says nothing: the machine may have other things to do.
hypothesis_settings.register_profile("runlane", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("runlane")

TEMPLATE = "runlane_template"
TEST_REDIS_DB = 9


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    """A developer's own RUNLANE_* settings must not leak into tests."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("RUNLANE_")}
    for name in kept:
        del os.environ[name]
    yield
    os.environ.update(kept)


@pytest_asyncio.fixture(scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """Real PostgreSQL, Valkey, S3 and Temporal for the whole session."""
    folder = tmp_path_factory.mktemp("stack")
    async with Stack.open(folder, os.environ, guarded=True) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Database:
    """A migrated database of one test, by role."""

    owner: str
    api: str
    system: str


def _named(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@pytest_asyncio.fixture(scope="session")
async def template(stack: Stack) -> str:
    """A migrated and seeded database that tests are copied from."""
    assert stack.database_admin is not None
    admin = await asyncpg.connect(stack.database_admin)
    await admin.execute(f"CREATE DATABASE {TEMPLATE} OWNER runlane")
    await admin.close()
    await upgrade(_named(stack.urls.database_owner, TEMPLATE))
    pool = await open_pool(_named(stack.urls.database_system, TEMPLATE), size=1)
    await seed_tools(pool)
    await pool.close()
    return TEMPLATE


@pytest_asyncio.fixture
async def database(stack: Stack, template: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """An empty, migrated database; what must always hold is checked in it when the test has ended.

    A test that breaks an invariant on purpose says so by the mark `breaks_invariants`.
    """
    assert stack.database_admin is not None
    name = f"t_{uuid4().hex[:12]}"
    admin = await asyncpg.connect(stack.database_admin)
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} OWNER runlane")
    urls = stack.urls
    made = Database(
        owner=_named(urls.database_owner, name),
        api=_named(urls.database_api, name),
        system=_named(urls.database_system, name),
    )
    yield made
    conn = await asyncpg.connect(made.system)
    violations = await invariants.check(conn, None, at_rest=False)
    await conn.close()
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()
    assert not violations or request.node.get_closest_marker("breaks_invariants")


@pytest_asyncio.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    """A pool as runlane_system on the test's database."""
    opened = await open_pool(database.system, size=8, name="test")
    yield opened
    await opened.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests with the mark `each_redis` run on the embedded server, and again on that of the system."""
    if "redis_server" in metafunc.fixturenames:
        is_marked = metafunc.definition.get_closest_marker("each_redis") is not None
        servers = [EMBEDDED, INSTALLED] if is_marked else [EMBEDDED]
        metafunc.parametrize("redis_server", servers, indirect=True, scope="session")


@pytest_asyncio.fixture(scope="session")
async def redis_server(
    request: pytest.FixtureRequest, stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    """URL of a server that speaks the protocol of Redis, without database."""
    if request.param == EMBEDDED:
        yield stack.urls.redis
        return
    if installed_server() is None:
        pytest.skip("no redis-server on this machine")
    with run_installed(tmp_path_factory.mktemp("redis")) as url:
        client: Redis = Redis.from_url(url)

        async def answers() -> bool:
            try:
                return bool(await client.ping())
            except (OSError, RedisError):
                return False

        await until(answers)
        await client.aclose()
        yield url


@pytest_asyncio.fixture
async def redis(redis_server: str) -> AsyncIterator[Redis]:
    """An empty Redis database."""
    client: Redis = Redis.from_url(f"{redis_server}/{TEST_REDIS_DB}", protocol=2)
    await client.flushdb()
    yield client
    await client.flushdb()
    await client.aclose()


@pytest.fixture
def settings(stack: Stack, database: Database, redis: Redis, redis_server: str, tmp_path: Path) -> Settings:
    """Settings of a process on the test's database and Redis database."""
    values = {k.removeprefix("RUNLANE_").lower(): v for k, v in stack.environment().items()}
    values |= {
        "database_url": database.owner,
        "database_api_url": database.api,
        "database_system_url": database.system,
        "redis_url": f"{redis_server}/{TEST_REDIS_DB}",
        "state_dir": str(tmp_path / "state"),
        "stream_cap": "100000",
    }
    return Settings.model_validate(values)


@pytest_asyncio.fixture
async def workspace_id(pool: Pool) -> UUID:
    """A workspace that may scan 127/8."""
    created: UUID = await pool.fetchval(
        "INSERT INTO workspaces (name, allowed_networks) VALUES ('test', '{127.0.0.0/8}') RETURNING id"
    )
    return created
