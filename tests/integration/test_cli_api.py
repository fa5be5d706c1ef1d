"""Commands against a real API: what they print, where, and with which exit code."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from runlane.cli.errors import ExitCode
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, served

pytestmark = pytest.mark.integration


@dataclass(frozen=True, slots=True)
class Done:
    """An ended command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        """Its answer for programs."""
        value: dict[str, object] = json.loads(self.out)
        return value


@dataclass(frozen=True, slots=True)
class Terminal:
    """Runs commands of one caller."""

    url: str
    key: str
    cwd: Path
    settings: Settings

    async def run(self, *arguments: str) -> Done:
        """Runs a command to its end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "runlane.cli",
            *arguments,
            cwd=self.cwd,
            env={
                "PATH": "",
                "PYTHONPATH": str(Path(__file__).parents[2]),
                "PYTHONIOENCODING": "utf-8",
                "RUNLANE_API_URL": self.url,
                "RUNLANE_API_KEY": self.key,
                "RUNLANE_DATABASE_SYSTEM_URL": self.settings.database_system_url,
                "RUNLANE_KEY_PEPPER": self.settings.key_pepper.get_secret_value(),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Done(process.returncode or 0, out.decode(), err.decode())


@pytest_asyncio.fixture
async def terminal(world: ApiWorld, caller: Caller, tmp_path: Path) -> AsyncIterator[Terminal]:
    async with served(world.app) as url:
        yield Terminal(url, caller.key, tmp_path, world.settings)


async def test_target_and_run_from_start_to_cancel(terminal: Terminal) -> None:
    added = await terminal.run("target", "add", "lab.test", "--json")
    started = await terminal.run("run", "start", "--target", "lab.test", "--set", "*.timeout_s=5", "--json")
    shown = await terminal.run("run", "show", "@last", "--json")
    cancelled = await terminal.run(
        "run", "cancel", str(started.json["run_id"])[-8:], "--reason", "enough", "--json"
    )
    watched = await terminal.run("run", "watch", "@last", "--json")

    assert [each.code for each in (added, started, shown, cancelled)] == [0, 0, 0, 0], cancelled.err
    assert shown.json["id"] == started.json["run_id"]
    assert shown.json["targets"] == [added.json["id"]]
    assert cancelled.json["status"] == "cancelled"
    assert (watched.code, watched.json["status"]) == (ExitCode.RUN_CANCELLED, "cancelled")


async def test_acts_on_runs_steps_and_jobs(terminal: Terminal, caller: Caller, pool: Pool) -> None:
    await terminal.run("target", "add", "lab.test")
    started = await terminal.run("run", "start", "--target", "lab.test", "--json")
    run = str(started.json["run_id"])
    job = str(await pool.fetchval("SELECT id FROM jobs"))

    unsure = await terminal.run("job", "cancel", "--run", run)
    both = await terminal.run("job", "cancel", job, "--run", run)
    higher = await terminal.run("job", "priority", job[-8:], "high", "--json")
    step = await terminal.run("step", "priority", run, "ports", "low", "--json")
    paused = await terminal.run("run", "pause", run, "--reason", "lunch", "--json")
    tools = await terminal.run("pause", "set", "--toolset", "probe", "--json")
    listed = await terminal.run("pause", "list")
    lifted = await terminal.run("pause", "lift", "--toolset", "probe", "--json")
    nothing = await terminal.run("pause", "lift")
    resumed = await terminal.run("run", "resume", run, "--json")
    many = await terminal.run("job", "cancel", "--run", run, "--yes", "--wait", "--json")
    operation = await terminal.run("operation", "show", "@last", "--json")
    again = await terminal.run("job", "rerun", job, "--json")
    early = await terminal.run("run", "rerun", run, "--from", "subdomains")

    assert (unsure.code, both.code) == (ExitCode.USAGE, ExitCode.USAGE)
    assert "say --yes" in unsure.err
    assert [each.code for each in (higher, step, paused, tools, lifted, resumed, many, again)] == [0] * 8
    assert (higher.json["moved"], paused.json["reason"]) == (1, "lunch")
    scopes = [line.split("\t")[1] for line in listed.out.splitlines()]
    assert scopes == ["SCOPE", "run", "toolset"]
    assert nothing.code == ExitCode.NOT_FOUND
    assert many.json["changed"] == 1
    assert operation.json == many.json
    assert again.json["run_id"] == run
    assert "code: step.open" in early.err


async def test_lists_are_tab_separated_in_a_pipe_with_controls_shown(
    terminal: Terminal, caller: Caller, pool: Pool
) -> None:
    await terminal.run("target", "add", "lab.test")
    await terminal.run("run", "start", "--target", "lab.test")
    await pool.execute("UPDATE jobs SET reason = $1", "\x1b[2J[bold]gone\u202e")

    done = await terminal.run("job", "list")

    head, row = done.out.splitlines()
    assert head.split("\t")[:4] == ["ID", "STEP", "TOOL", "STATUS"]
    assert row.split("\t")[1:4] == ["subdomains", "dnsprobe", "pending"]
    assert "⟦ESC⟧[2J[bold]gone⟦U+202E⟧" in row
    assert "\x1b" not in done.out + done.err


async def test_limit_is_said(terminal: Terminal) -> None:
    await terminal.run("target", "add", "a.example.com", "b.example.com", "c.example.com")

    done = await terminal.run("target", "list", "--limit", "2", "--sort", "value", "--json")

    items = done.json["items"]
    assert isinstance(items, list)
    assert [row["value"] for row in items] == ["a.example.com", "b.example.com"]
    assert "2 shown, there are more" in done.err


async def test_failures_say_what_why_and_end_with_their_code(terminal: Terminal) -> None:
    await terminal.run("target", "add", "lab.test")
    for arguments, code, said in [
        (["target", "add", "169.254.169.254"], ExitCode.REFUSED, "code: target.address_refused"),
        (["target", "add", "lab.test"], ExitCode.REFUSED, "code: target.duplicate"),
        (["run", "show", "@last"], ExitCode.NOT_FOUND, "nothing of that id"),
        (["run", "show", "01a22b9e-c457-7bd8-b8fa-c14ea718b892"], ExitCode.NOT_FOUND, "code: run.not_found"),
        (["run", "start", "--target", "lab.test", "-d", "nope"], ExitCode.REFUSED, "definition.unknown"),
        (["run", "start", "--target", "lab.test", "-d", "@none.yaml"], ExitCode.USAGE, "none.yaml"),
        (["run", "list", "--status", "sad"], ExitCode.REFUSED, "code: request.invalid"),
        (["run", "list", "--limit", "x"], ExitCode.USAGE, "--limit"),
    ]:
        done = await terminal.run(*arguments)

        assert (done.code, done.out) == (code, ""), done
        assert said in done.err, done.err


async def test_wrong_key_is_code_4(terminal: Terminal) -> None:
    stranger = Terminal(terminal.url, "rl_wrong", terminal.cwd, terminal.settings)

    assert (await stranger.run("run", "list")).code == ExitCode.UNAUTHENTICATED


async def test_watch_that_ends_before_the_run_is_code_124(terminal: Terminal) -> None:
    await terminal.run("target", "add", "lab.test")
    await terminal.run("run", "start", "--target", "lab.test")

    done = await terminal.run("run", "watch", "@last", "--timeout", "0")

    assert done.code == ExitCode.TIMED_OUT
    assert "subdomains: running 0/1" in done.err


async def test_definition_from_a_yaml_file(terminal: Terminal) -> None:
    (terminal.cwd / "names.yaml").write_text("name: names\njobs:\n  only:\n    run: dnsprobe\n")
    await terminal.run("target", "add", "lab.test")

    started = await terminal.run("run", "start", "--target", "lab.test", "-d", "@names.yaml", "--json")

    shown = await terminal.run("run", "show", str(started.json["run_id"]), "--json")
    steps = shown.json["steps"]
    assert isinstance(steps, list)
    assert [step["step_id"] for step in steps] == ["only"]


async def test_workspace_and_key_made_by_an_operator_work(terminal: Terminal) -> None:
    workspace = await terminal.run("workspace", "create", "acme", "--allow", "127.7.0.0/24", "--json")
    twin = await terminal.run("workspace", "create", "acme")
    arguments = ["key", "create", "reader", "-w", "acme", "--scope", "runs:read", "--days", "1"]
    key = await terminal.run(*arguments, "--json")
    strange = await terminal.run("key", "create", "x", "-w", "acme", "--scope", "all")

    reader = Terminal(terminal.url, str(key.json["key"]), terminal.cwd, terminal.settings)
    read, written = await reader.run("run", "list"), await reader.run("target", "add", "127.7.0.3")

    assert (workspace.code, twin.code, strange.code) == (0, ExitCode.REFUSED, ExitCode.REFUSED)
    assert (read.code, written.code) == (0, ExitCode.REFUSED)
    assert "key.scope" in written.err
