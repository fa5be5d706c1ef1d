"""The command relay on real servers: what it does when a connection of its own is lost."""

import asyncio

import pytest

from lanes.commands import run_command_relay
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.waiting import until

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
        async with asyncio.timeout(20):
            await relay
