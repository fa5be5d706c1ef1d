"""`runlane up`: everything in the foreground, with a live view of what runs."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from runlane.cli.errors import Cause, CommandError, ExitCode
from runlane.cli.interrupt import until_interrupted
from runlane.cli.output import note
from runlane.cli.platform import Platform, PlatformOptions, open_platform
from runlane.cli.profile import FILE
from runlane.errors import Conflict
from runlane.observability import configure

if TYPE_CHECKING:
    from runlane.stack.keeper import ProcessStatus

REFRESH_S: Final = 0.5
_STYLES: Final = {"ready": "green", "starting": "yellow", "restarting": "red", "external": "blue"}


async def run_up(state_dir: Path, networks: tuple[str, ...], *, is_detached: bool) -> None:
    """Runs the platform until SIGINT or SIGTERM, at any moment of its start too.

    Raises:
        CommandError: another supervisor runs this folder.
    """
    configure("console", "warning")
    try:
        await until_interrupted(_run(PlatformOptions(state_dir, networks), is_detached=is_detached))
    except Conflict as error:
        cause = Cause(error.code)
        raise CommandError(error.detail, ExitCode.REFUSED, cause=cause, hint="runlane down") from error
    if not is_detached:
        note("stopped")


async def _run(options: PlatformOptions, *, is_detached: bool) -> None:
    note(f"starting servers and processes in {options.state_dir} …")
    async with open_platform(options, os.environ) as platform:
        _say_where(platform)
        if is_detached:
            platform.stack.detach()
        else:
            await _show(platform)


def _say_where(platform: Platform) -> None:
    profile = platform.profile
    note(f"API           {profile.api_url}/v1")
    note(f"key           in {platform.settings.state_dir / FILE}, where commands look for it")
    note(f"Temporal UI   {profile.temporal_ui_url}")
    note("next:         runlane target add example.com && runlane run start --target example.com")


async def _show(platform: Platform) -> None:
    if sys.stderr.isatty():
        with Live(console=Console(stderr=True), auto_refresh=False) as live:
            while True:
                live.update(_table(platform.stack.status()), refresh=True)
                await asyncio.sleep(REFRESH_S)
    told: dict[str, str] = {}
    while True:
        for each in platform.stack.status():
            line = f"{each.name}: {each.state} pid={each.pid} restarts={each.restarts}"
            if told.get(each.name) != line:
                told[each.name] = line
                note(line)
        await asyncio.sleep(REFRESH_S)


def _table(status: Sequence["ProcessStatus"]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("PROCESS", "STATE", "PID", "RESTARTS"):
        table.add_column(heading)
    for each in status:
        state = Text(str(each.state), style=_STYLES.get(str(each.state), ""))
        table.add_row(Text(each.name), state, str(each.pid or "-"), str(each.restarts))
    return table
