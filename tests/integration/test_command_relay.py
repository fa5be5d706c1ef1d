"""The command relay on real servers: what it does when one of them is away or a connection is lost."""

import asyncio

import pytest
import structlog.testing

from lanes.commands import run_command_relay
from lanes.runner import supervise
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.waiting import WAIT_S, until

pytestmark = pytest.mark.integration

LISTENING = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'runlane-commands' AND query LIKE 'LISTEN%'"
    " AND datname = current_database()"
)


async def test_relay_that_no_longer_hears_of_commands_ends_to_be_started_again(
    settings: Settings, pool: Pool
) -> None:
    async def is_listening() -> bool:
        return await pool.fetchval(LISTENING) is not None

    relay = asyncio.create_task(run_command_relay(settings, asyncio.Event()))
    await until(is_listening)

    await pool.execute("SELECT pg_terminate_backend($1)", await pool.fetchval(LISTENING))

    with pytest.raises(ConnectionResetError):
        async with asyncio.timeout(WAIT_S):
            await relay


async def test_relay_without_temporal_says_so_in_one_line_per_try(settings: Settings) -> None:
    away = settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    stop = asyncio.Event()

    with structlog.testing.capture_logs() as lines:
        relay = asyncio.create_task(supervise("commands", lambda event: run_command_relay(away, event), stop))
        await until(lambda: len(lines) >= 2)
        stop.set()
        await relay

    assert {(line["event"], line["log_level"]) for line in lines} == {("part_interrupted", "warning")}
    assert all("exc_info" not in line and "Temporal" in line["error"] for line in lines)
