"""What the containers run at their start, against the same servers without containers."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from runlane.stack import binaries
from runlane.stack.supervisor import Stack
from runlane.stack.temporal_settings import SEARCH_ATTRIBUTES

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """Servers to run the scripts against."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RUNLANE_")}
    async with Stack.open(tmp_path_factory.mktemp("compose"), env, guarded=True) as running:
        yield running


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """Drawn secrets."""
    folder = tmp_path / "secrets"
    _run(ROOT / "deploy" / "make-secrets.sh", {}, str(folder))
    return folder


async def test_postgres_is_initialised_twice_with_the_drawn_passwords(stack: Stack, secrets: Path) -> None:
    assert stack.database_admin is not None
    admin = urlsplit(stack.database_admin)
    env = {
        "PGHOST": str(admin.hostname),
        "PGPORT": str(admin.port),
        "PGPASSWORD": str(admin.password),
        "PATH": f"{binaries.postgres_bin({})}{os.pathsep}{os.environ['PATH']}",
        "RUNLANE_SECRETS_DIR": str(secrets),
        "RUNLANE_POSTGRES_INIT_SQL": str(ROOT / "runlane" / "stack" / "postgres-init.sql"),
    }
    for _ in range(2):
        _run(ROOT / "deploy" / "postgres-init.sh", env)

    for name in ("runlane_database_url", "runlane_database_api_url", "runlane_database_system_url"):
        drawn = urlsplit((secrets / name).read_text())
        connection = await asyncpg.connect(drawn._replace(netloc=_moved(drawn.netloc, admin.port)).geturl())
        assert await connection.fetchval("SELECT current_user") == drawn.username
        await connection.close()
    temporal = f"postgresql://temporal:{(secrets / 'temporal_password').read_text()}@127.0.0.1:{admin.port}"
    for database in ("temporal", "temporal_visibility"):
        connection = await asyncpg.connect(f"{temporal}/{database}")
        await connection.execute("CREATE TABLE may_create ()")
        await connection.close()


async def test_temporal_namespace_is_prepared_twice(stack: Stack) -> None:
    bin_folder = binaries.temporal_cli().parent
    env = {
        "TEMPORAL_ADDRESS": stack.urls.temporal_address,
        "TEMPORAL_NAMESPACE": "second",
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
    }
    for _ in range(2):
        _run(ROOT / "deploy" / "temporal-namespace.sh", env)

    client = await Client.connect(stack.urls.temporal_address, namespace="second")
    found = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace="second")
    )
    assert set(SEARCH_ATTRIBUTES) <= set(found.custom_attributes)


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="no docker-compose on this machine")
def test_compose_accepts_its_file() -> None:
    subprocess.run(["docker-compose", "config", "--quiet"], cwd=ROOT, check=True, capture_output=True)


def _run(script: Path, env: dict[str, str], *arguments: str) -> None:
    whole = os.environ | env
    done = subprocess.run(["sh", str(script), *arguments], env=whole, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _moved(netloc: str, port: int | None) -> str:
    return f"{netloc.rpartition('@')[0]}@127.0.0.1:{port}"
