"""A scan worker with foreign programs: it says what it carries, and what they find reaches the inventory.

The programs are small scripts under the names of those that cannot be installed here; they write what those
write. The real ones that are on this machine run in `test_lab_programs.py`.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from runlane.scan.join import JoinFailed
from runlane.scan.worker import run_scan_worker
from runlane.settings import Settings
from tests.integration.worker_world import World, core_of, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration

PROGRAM = """#!{python}
import json, sys
if "-version" in sys.argv:
    sys.stderr.write("[INF] Current Version: v9.8.7\\n")
    sys.exit(0)
for line in sys.stdin:
    print(json.dumps({{"ip": line.strip(), "port": 8080, "protocol": "tcp"}}))
print('{{"ip": "127.0.0.')
"""
NAMES = ("subfinder", "dnsx", "naabu", "httpx", "nuclei", "katana")


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(settings, pool, tmp_path) as world, core_of(world.settings):
        yield world


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of PATH with the programs of the tool set `projectdiscovery`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_text(PROGRAM.format(python=sys.executable))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@asynccontextmanager
async def worker_with(world: World, **toolsets: int) -> AsyncIterator[None]:
    stop = asyncio.Event()
    settings = replace(world.scan_settings(), toolsets=toolsets)
    worker = asyncio.create_task(run_scan_worker(settings, stop))
    try:
        await until(lambda: worker.done() or world.is_online("one"))
        yield
    finally:
        stop.set()
        await worker


async def scan_ports(world: World, *addresses: str) -> UUID:
    """Starts a run of naabu over so many targets."""
    definition = parse_definition(
        {"name": "t", "jobs": {"only": {"run": "naabu", "config": {"ports": "8080"}}}}
    )
    async with world.pool.acquire() as conn, conn.transaction():
        targets = [
            await conn.fetchval(
                "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'ip', $2) RETURNING id",
                world.workspace_id,
                address,
            )
            for address in addresses
        ]
        started = await start_run(conn, StartRun(world.workspace_id, definition, targets, "test"))
        await conn.execute("UPDATE commands SET due_at = clock_timestamp()")
    return started.run_id


async def test_what_a_foreign_program_finds_reaches_the_inventory(world: World, programs: Path) -> None:
    async with worker_with(world, probe=1, projectdiscovery=1):
        run_id = await scan_ports(world, "127.0.0.5", "127.0.0.6")

        assert await world.closed(run_id) == "completed"

    ports = await world.pool.fetch("SELECT host(address) AS at, port FROM ports ORDER BY address")
    assert [tuple(row) for row in ports] == [("127.0.0.5", 8080), ("127.0.0.6", 8080)]
    attempts = await world.pool.fetch(
        "SELECT argv[1] AS program, tool_version, is_complete, staged_error FROM job_attempts"
    )
    unreadable = "1 parts of the output could not be read: a line of output is no JSON"
    assert {tuple(row) for row in attempts} == {("naabu", "9.8.7", False, unreadable)}


async def test_worker_tells_which_tools_it_carries_in_which_version(world: World, programs: Path) -> None:
    (programs / "nmap").write_text("#!/bin/sh\nexit 1\n")
    (programs / "nmap").chmod(0o755)

    async with worker_with(world, probe=1, projectdiscovery=2, nmap=3):
        row = await world.pool.fetchrow("SELECT toolsets, slots, tools FROM workers")

    assert row is not None
    assert sorted(row["toolsets"]) == ["probe", "projectdiscovery"]
    assert row["slots"] == {"probe": 1, "projectdiscovery": 2}
    assert row["tools"] == dict.fromkeys(("subfinder", "naabu", "httpx", "nuclei", "katana"), "9.8.7")


async def test_worker_with_none_of_its_programs_ends_with_the_reason(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = replace(world.scan_settings(), toolsets={"projectdiscovery": 1})

    with pytest.raises(JoinFailed, match="none of its tool sets"):
        await run_scan_worker(settings, asyncio.Event())
