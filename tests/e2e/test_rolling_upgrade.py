"""An upgrade under load: every process is replaced, one after another, and nobody has to stop for it.

The new processes are of the same version as the old ones; what changes between versions is tested by replays,
payloads, protocol and migrations.
"""

import asyncio
import sys
from pathlib import Path
from uuid import UUID

import pytest

from runlane.db.invariants import check
from runlane.stack.processes import ProcessSpec
from tests.chaos.load import Load
from tests.e2e.installation import Installation, open_installation, until
from tests.e2e.rolling import UP_S, Callers, Upgrade, balanced
from tests.integration.worker_world import free_port

pytestmark = pytest.mark.e2e

HOST = "host"
"""The scan worker, which reaches the API and the gateway by the addresses that stay."""

_TAKEN = "SELECT count(*) FROM job_attempts"
_MORE = "SELECT count(*) >= $1 + 12 FROM job_attempts WHERE ended_at IS NOT NULL"
"""Jobs end that were taken after the replacement: twice as many as are worked on at once."""


async def start_host(installation: Installation, api_url: str) -> None:
    """Starts a scan worker in place of the one that knows the API by its own port."""
    platform = installation.platform
    env = {
        "RUNLANE_API_URL": api_url,
        "RUNLANE_WORKER_NAME": HOST,
        "RUNLANE_WORKER_ENROLMENT_KEY": platform.profile.enrolment_key,
        "RUNLANE_STATE_DIR": str(platform.settings.state_dir / HOST),
        "RUNLANE_DATABASE_SYSTEM_URL": "",
    }
    await platform.stack.stop_process("scan")
    argv = (sys.executable, "-m", "runlane.cli", "worker", "scan")
    await platform.stack.start_process(ProcessSpec(HOST, argv, env))

    async def is_online() -> bool:
        found = "SELECT stream_seen_at IS NOT NULL FROM workers WHERE name = $1"
        return bool(await installation.pool.fetchval(found, HOST))

    await until(is_online, UP_S)


async def replace_everything(installation: Installation, api_port: int, gateway_port: int) -> None:
    upgrade = Upgrade(installation)
    for name, more in (
        ("core", {}),
        ("results", {}),
        ("api", {"RUNLANE_API_PORT": str(api_port)}),
        ("lanes", {}),
        ("gateway", {"RUNLANE_GATEWAY_PORT": str(gateway_port)}),
    ):
        await upgrade.beside(name, **more)
        await work_goes_on(installation)
    await installation.platform.stack.restart(HOST)


async def work_goes_on(installation: Installation) -> None:
    """Returns when jobs have ended that were taken after the call: the next replacement meets all states."""
    taken = await installation.pool.fetchval(_TAKEN)

    async def is_done() -> bool:
        return bool(await installation.pool.fetchval(_MORE, taken))

    await until(is_done, UP_S)


async def test_every_process_is_replaced_under_load_and_nothing_is_lost_or_charged(tmp_path: Path) -> None:
    gateways, apis, next_gateway, next_api = (free_port() for _ in range(4))
    settings = {
        "RUNLANE_SCAN_TEMPORAL_ADDRESS": f"127.0.0.1:{gateways}",
        "RUNLANE_WORKER_TOOLSETS": "probe=6",
    }
    async with open_installation(tmp_path / "state", settings) as installation:
        stack = installation.platform.stack
        async with (
            balanced(gateways, [stack.port("gateway"), next_gateway]),
            balanced(apis, [stack.port("api"), next_api]),
        ):
            await start_host(installation, f"http://127.0.0.1:{apis}")
            key = installation.platform.profile.api_key
            target = await installation.pool.fetchval(
                """INSERT INTO targets (workspace_id, kind, value)
                   VALUES ($1, 'domain', 'upgrade.test') RETURNING id""",
                installation.platform.workspace_id,
            )
            callers = Callers(f"http://127.0.0.1:{apis}", key, str(target))
            load = Load(installation)
            async with asyncio.TaskGroup() as working:  # a load that fails ends the upgrade at once
                working.create_task(load.run_noops())
                working.create_task(callers.run())
                await replace_everything(installation, next_api, next_gateway)
                callers.stop.set()
                load.stop.set()
            await judge(installation, load, callers)


async def judge(installation: Installation, load: Load, callers: Callers) -> None:
    """What the callers were told is true, and all that was begun is done."""
    assert callers.refused == []
    assert callers.answers[200] > 10
    assert len(callers.runs) == callers.started > 10
    for run_id in load.runs + [UUID(run_id) for run_id in sorted(callers.runs)]:
        assert await installation.wait_closed(run_id) == "completed"
    rows = await installation.pool.fetch(
        """SELECT coalesce(a.outcome, 'open') AS outcome, a.charged, count(*) FROM job_attempts a
           JOIN jobs j ON j.id = a.job_id GROUP BY 1, 2"""
    )
    outcomes = {(row["outcome"], row["charged"]): row["count"] for row in rows}
    # an attempt may be lost where a machine is so busy that a stream is silent for seconds; it costs nothing
    assert set(outcomes) <= {("completed", False), ("released", False), ("lost", False)}, outcomes
    started = await installation.pool.fetchval("SELECT count(*) FROM job_histories WHERE name = 'upgrade'")
    assert started == callers.started

    async def is_at_rest() -> bool:
        async with installation.pool.acquire() as conn:
            return await check(conn, None, at_rest=True) == []

    await until(is_at_rest, UP_S)
