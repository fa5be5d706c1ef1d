"""The doctor, against servers that are well and servers that are not."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import redis.asyncio
from temporalio.client import Client
from temporalio.service import RPCError

from runlane.db import migrate
from runlane.errors import Unavailable
from runlane.settings import Settings
from runlane.stack import binaries
from runlane.stack.doctor import run_checks
from runlane.stack.doctor_servers import check_postgres, check_redis, check_s3
from runlane.stack.doctor_temporal import check_temporal
from runlane.stack.findings import Check, Level, worst
from runlane.stack.processes import ProcessSpec
from runlane.stack.services import check_listening
from runlane.stack.supervisor import Stack

pytestmark = pytest.mark.integration

BLOCKER = """
import sys
sys.modules["psutil"] = None
import runlane.stack.doctor
"""
Configure = Callable[..., Settings]


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A stack with the newest schema."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RUNLANE_")}
    async with Stack.open(tmp_path_factory.mktemp("doctor"), env, guarded=True) as running:
        await migrate.upgrade(running.urls.database_owner)
        yield running


@pytest.fixture
def configure(stack: Stack) -> Iterator[Configure]:
    """Makes settings that lead to the stack, with changes."""
    with pytest.MonkeyPatch.context() as patch:

        def make(**changes: str) -> Settings:
            for name, value in (stack.environment() | changes).items():
                patch.setenv(name, value)
            return Settings.load()

        yield make


async def test_a_fresh_stack_is_in_perfect_health(configure: Configure) -> None:
    checks = await run_checks(configure())

    # the schedules of the sweeps come with the first core worker
    assert [check.name for check in checks if check.level is not Level.OK] == ["sweeps"]
    assert {"packages", "schema", "redis", "s3", "temporal fairness"} <= {check.name for check in checks}


async def test_doctor_leaves_no_workflow_and_no_object_behind(stack: Stack, configure: Configure) -> None:
    settings = configure()
    await run_checks(settings)

    repeated = await asyncio.gather(check_s3(settings), check_temporal(settings))

    assert worst([check for answer in repeated for check in answer]) is Level.OK
    assert not list((stack.folder / "s3" / "data").rglob("doctor/*"))


async def test_further_examinations_come_last(configure: Configure) -> None:
    async def invariants(settings: Settings) -> list[Check]:
        return [Check("invariants", Level.WARN, settings.temporal_namespace)]

    checks = await run_checks(configure(), [invariants])

    assert checks[-1] == Check("invariants", Level.WARN, "default")
    assert worst(checks) is Level.WARN


async def test_a_database_behind_the_program_is_told_to_migrate(stack: Stack, configure: Configure) -> None:
    assert stack.database_admin is not None
    empty = stack.database_admin

    checks = await check_postgres(configure(RUNLANE_DATABASE_URL=empty))

    assert _by_name(checks)["schema"].level is Level.FAIL
    assert "runlane migrate" in _by_name(checks)["schema"].detail


async def test_swapped_database_roles_are_found(stack: Stack, configure: Configure) -> None:
    urls = stack.urls
    swapped = configure(
        RUNLANE_DATABASE_API_URL=urls.database_system, RUNLANE_DATABASE_SYSTEM_URL=urls.database_api
    )

    checks = _by_name(await check_postgres(swapped))

    assert "row-level security does not bind it" in checks["postgres as runlane_api"].detail
    assert "does not see every workspace" in checks["postgres as runlane_system"].detail


async def test_a_redis_that_may_evict_events_fails(stack: Stack, configure: Configure) -> None:
    async with redis.asyncio.Redis.from_url(stack.urls.redis) as client:
        await client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            checks = await check_redis(configure())
        finally:
            await client.config_set("maxmemory-policy", "noeviction")

    assert [(check.name, check.level) for check in checks] == [("redis memory", Level.FAIL)]


async def test_wrong_s3_keys_are_reported(configure: Configure) -> None:
    checks = await check_s3(configure(RUNLANE_S3_SECRET_KEY="x" * 40))

    assert checks[0].level is Level.FAIL


async def test_absent_and_unreachable_servers_are_findings_not_errors(configure: Configure) -> None:
    nowhere = "127.0.0.1:1"
    away = configure(
        RUNLANE_DATABASE_URL="",
        RUNLANE_DATABASE_API_URL=f"postgresql://x:y@{nowhere}/z",
        RUNLANE_REDIS_URL=f"redis://{nowhere}",
        RUNLANE_S3_ENDPOINT=f"http://{nowhere}",
        RUNLANE_TEMPORAL_ADDRESS=nowhere,
        RUNLANE_KEY_PEPPER="short",
    )

    failed = {check.name for check in await run_checks(away) if check.level is Level.FAIL}

    assert failed == {"key pepper", "postgres as owner", "postgres as runlane_api", "redis", "s3", "temporal"}


async def test_a_misspelt_setting_is_reported(configure: Configure) -> None:
    checks = await run_checks(configure(RUNLANE_REDIS_ULR="redis://x"))

    assert "RUNLANE_REDIS_ULR" in _by_name(checks)["settings"].detail


@pytest.mark.parametrize("partitions", [1, 4])
async def test_a_temporal_server_with_default_settings_shows_what_they_cost(
    stack: Stack, configure: Configure, partitions: int
) -> None:
    async with _plain_temporal(stack, partitions) as address:
        checks = _by_name(await check_temporal(configure(RUNLANE_TEMPORAL_ADDRESS=address)))

    levels = {name: check.level for name, check in checks.items()}
    assert levels["temporal worker_commands"] is Level.WARN
    assert levels["temporal fairness"] is Level.WARN
    assert levels["temporal partitions"] is (Level.WARN if partitions > 1 else Level.OK)
    assert levels["temporal search attributes"] is Level.FAIL


async def test_the_doctor_needs_nothing_of_the_embedded_servers() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", BLOCKER)

    assert await process.wait() == 0


@asynccontextmanager
async def _plain_temporal(stack: Stack, partitions: int) -> AsyncIterator[str]:
    name = f"plain-temporal-{partitions}"
    address = f"127.0.0.1:{stack.port(name)}"
    argv = [str(binaries.temporal_cli()), "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
    for kind in ("Read", "Write"):
        argv += ["--dynamic-config-value", f"matching.numTaskqueue{kind}Partitions={partitions}"]
    argv += ["--port", str(stack.port(name))]

    async def ready() -> None:
        await check_listening(stack.port(name))
        client = await Client.connect(address)
        try:
            await client.count_workflows()
        except RPCError as err:
            raise Unavailable(str(err)) from err

    await stack.start_process(ProcessSpec(name, tuple(argv), ready=ready))
    try:
        yield address
    finally:
        await stack.stop_process(name)


def _by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}
