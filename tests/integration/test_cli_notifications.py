"""What a person types about notifications and streams, against a real API."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from runlane.cli.errors import ExitCode
from runlane.db.pool import Pool
from tests.integration.api_world import ApiWorld, Caller, served
from tests.integration.inboxes import failed, number, tell
from tests.integration.test_cli_api import Terminal
from tests.waiting import until

pytestmark = pytest.mark.integration


async def test_person_reads_what_it_is_told_and_says_what_it_wants_to_hear(
    world: ApiWorld, caller: Caller, pool: Pool, tmp_path: Path
) -> None:
    async with served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        saved = await terminal.run("notification", "rule", "set", "mine", "--type", "job", "--to", "test")
        await tell(pool, [failed(caller.workspace_id), failed(caller.workspace_id)])
        listed = await terminal.run("notification", "list", "--unread", "--json")
        rows = listed.json["items"]
        assert isinstance(rows, list)
        read = await terminal.run("notification", "read", rows[0]["id"], "--json")
        neither = await terminal.run("notification", "read")
        muted = await terminal.run("notification", "mute", "--type", "job", "--minutes", "5", "--json")
        removed = await terminal.run("notification", "rule", "remove", "mine")

    assert (saved.code, saved.err) == (0, "rule mine\n")
    assert (len(rows), read.json) == (2, {"changed": 1})
    assert neither.code == ExitCode.USAGE
    assert (muted.json["type"], removed.code) == ("job", 0)


def _heed_interrupts() -> None:
    """A shell that starts the tests in the background has all that they start ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def test_tail_of_events_goes_on_behind_an_id_until_it_is_interrupted(
    world: ApiWorld, caller: Caller, pool: Pool, tmp_path: Path
) -> None:
    await number(pool)
    newest = await pool.fetchval("SELECT last_seq FROM bus_state")
    event = failed(caller.workspace_id)
    await number(pool, [event])
    lines: list[dict[str, object]] = []
    async with served(world.app) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "runlane.cli", "event", "tail", "--type", "job", "--json",
            "--after", str(newest),
            cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            preexec_fn=_heed_interrupts,
            env={
                "PATH": "", "PYTHONPATH": str(Path(__file__).parents[2]), "RUNLANE_API_URL": url,
                "RUNLANE_API_KEY": caller.key,
            },
        )  # fmt: skip
        assert process.stdout is not None
        lines.append(json.loads(await process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        await process.communicate()
        await until(lambda: not world.app.state.resources.events._followers)

    assert process.returncode == ExitCode.INTERRUPTED
    data = lines[0]["data"]
    assert isinstance(data, dict)
    assert (lines[0]["event"], data["id"]) == ("event", str(event.id))
