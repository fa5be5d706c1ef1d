"""`up`, `down`, `doctor` and `demo` as a person runs them: what they start, they stop."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from runlane.cli.errors import ExitCode

pytestmark = pytest.mark.e2e

BASE = "127.21.0.0/24"
ROOT = Path(__file__).parents[2]
DEMO_KEYS = [
    "run_id", "status", "seconds", "jobs", "assets", "services", "urls", "findings", "pictures", "missing",
    "unexpected", "events",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Done:
    """An ended command."""

    code: int
    out: str
    err: str


@asynccontextmanager
async def _command(folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "runlane.cli",
        *arguments,
        cwd=ROOT,
        env={**os.environ, "RUNLANE_STATE_DIR": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


async def _run(folder: Path, *arguments: str) -> Done:
    async with _command(folder, *arguments) as process:
        out, err = await process.communicate()
    return Done(process.returncode or 0, out.decode(), err.decode())


async def _wait_for(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stderr is not None
    async for line in process.stderr:
        if text in line.decode():
            return
    pytest.fail(f"ended without saying {text!r}")


def _processes_of(folder: Path) -> list[str]:
    """Processes that carry the folder in their command line or environment."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            places = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(folder) in place for place in places):
            found.append(f"{process.pid} {' '.join(process.cmdline())}")
    return found


async def test_up_serves_until_it_is_told_to_end_and_goes_on_from_its_state(tmp_path: Path) -> None:
    async with _command(tmp_path, "up", "--allow", BASE) as process:
        await _wait_for(process, "scan: ready")
        added = await _run(tmp_path, "target", "add", "127.21.0.3")
        twin = await _run(tmp_path, "up")
        doctor = await _run(tmp_path, "doctor", "--invariants", "--json")
        process.send_signal(signal.SIGTERM)
        _, err = await process.communicate()
    assert (process.returncode, err.decode().splitlines()[-1]) == (0, "stopped")
    assert added.code == 0, added.err
    assert (twin.code, "stack.busy" in twin.err) == (ExitCode.REFUSED, True)
    assert doctor.code == 0, doctor.out
    assert {check["level"] for check in json.loads(doctor.out)} <= {"ok", "warn"}
    assert _processes_of(tmp_path) == []

    detached = await _run(tmp_path, "up", "--detach")
    listed = await _run(tmp_path, "target", "list", "--json")
    workers = await _run(tmp_path, "worker", "list", "--json")
    stopped = await _run(tmp_path, "down")
    again = await _run(tmp_path, "down")

    assert detached.code == 0, detached.err
    assert [row["value"] for row in json.loads(listed.out)["items"]] == ["127.21.0.3"]
    assert [row["status"] for row in json.loads(workers.out)["items"]] == ["online"]
    assert "scan" in stopped.err
    assert again.err == "nothing was running\n"
    assert _processes_of(tmp_path) == []


async def test_demo_finds_the_truth_and_leaves_nothing_running(tmp_path: Path) -> None:
    folder = tmp_path / "demo"

    done = await _run(tmp_path, "demo", "--json", "--base", BASE)

    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert list(result) == DEMO_KEYS
    assert (result["status"], result["missing"], result["unexpected"]) == ("completed", [], [])
    assert result["jobs"].keys() == {"completed"}
    assert result["events"]["job.completed"] == sum(result["jobs"].values())
    assert "Temporal Web UI: http://127.0.0.1:" in done.err
    assert folder.is_dir()
    assert _processes_of(tmp_path) == []


@pytest.mark.parametrize("moment", ["starting the lab", "subdomains"])
async def test_interrupted_demo_stops_what_it_started(tmp_path: Path, moment: str) -> None:
    async with _command(tmp_path, "demo", "--base", BASE) as process:
        await _wait_for(process, moment)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        await process.communicate()

    assert process.returncode == ExitCode.INTERRUPTED
    assert _processes_of(tmp_path) == []


async def test_demo_refuses_to_empty_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    done = await _run(tmp_path, "demo", "--state-dir", str(tmp_path))

    assert done.code == ExitCode.USAGE
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
