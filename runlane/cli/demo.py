"""`runlane demo`: a scan of a small real network on this machine, compared with the truth about it."""

import asyncio
import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from runlane.cli.answers import counts_in
from runlane.cli.client import ApiClient, Json
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.interrupt import until_interrupted
from runlane.cli.lab_scan import has_browser, read_inventory, start_scan
from runlane.cli.output import note, print_json
from runlane.cli.platform import Platform, PlatformOptions, open_platform
from runlane.cli.watch import Show, open_view
from runlane.db.event_counts import count_events, count_unpublished
from runlane.db.pool import Connection, open_pool
from runlane.jobs import RUNS, RunStatus
from runlane.lab.manifest import Inventory, Manifest, compare
from runlane.lab.network import parse_base
from runlane.lab.server import Lab
from runlane.observability import configure
from runlane.stack.supervisor import stop_requested
from runlane.stack.takedown import down

POLL_S: Final = 0.25
RUN_LIMIT_S: Final = 600.0
DRAIN_LIMIT_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Where the demo lives, and how it tells of itself."""

    state_dir: Path
    """Emptied at the start: a demo that found what an earlier one had found would prove nothing."""
    base: str
    is_kept: bool = False
    is_json: bool = False


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo prints as JSON."""

    run_id: str
    status: str
    seconds: float
    """From the request to the end of the run."""
    jobs: dict[str, int]
    assets: int
    services: int
    urls: int
    findings: int
    pictures: int
    """None where there is no browser."""
    missing: list[str]
    unexpected: list[str]
    events: dict[str, int]

    @property
    def is_good(self) -> bool:
        """Whether the run completed and found exactly the truth."""
        return self.status == RunStatus.COMPLETED and not self.missing and not self.unexpected


async def run_demo(options: DemoOptions) -> bool:
    """Runs the demo and stops everything it started; returns whether all was as it should be.

    Raises:
        CommandError: interrupted, or the folder is not a demo's.
    """
    configure("console", "warning")
    is_good = await until_interrupted(_run(options))
    if is_good is None:
        raise CommandError("stopped before its end", ExitCode.INTERRUPTED)
    return is_good


async def _run(options: DemoOptions) -> bool:
    began = time.monotonic()
    await _empty(options.state_dir)
    platform_options = PlatformOptions(options.state_dir, parse_base(options.base).networks)
    note("starting the lab, the servers and the processes …")
    async with Lab.open(options.base) as lab, open_platform(platform_options, os.environ) as platform:
        note(f"all is up after {time.monotonic() - began:.1f} s")
        with ApiClient(platform.profile) as client:
            demo = _Demo(client, lab, platform)
            result = await demo.run(is_json=options.is_json)
        _tell(result, demo.found, demo.manifest)
        note(f"Temporal Web UI: {platform.profile.temporal_ui_url}")
        if options.is_json:
            print_json(asdict(result))
        if options.is_kept:
            note(f"everything keeps running until Ctrl-C; commands: RUNLANE_STATE_DIR={options.state_dir}")
            await stop_requested()
    return result.is_good


async def _empty(folder: Path) -> None:
    """Stops what an earlier demo left running and removes its folder.

    Raises:
        CommandError: there is something in the folder that no demo has put there.
    """
    if await asyncio.to_thread(_is_used, folder):
        await down(folder)
        await asyncio.to_thread(shutil.rmtree, folder)


def _is_used(folder: Path) -> bool:
    if not folder.exists() or not any(folder.iterdir()):
        return False
    if not (folder / "state.json").exists():
        raise CommandError(f"{folder} holds something else; a demo empties its folder", ExitCode.USAGE)
    return True


class _Demo:
    def __init__(self, client: ApiClient, lab: Lab, platform: Platform) -> None:
        self._client = client
        self._lab = lab
        self._platform = platform
        self.manifest = lab.manifest.with_pictures() if has_browser(client) else lab.manifest
        self.found = Inventory()

    async def run(self, *, is_json: bool) -> DemoResult:
        began = time.monotonic()
        run_id = await asyncio.to_thread(start_scan, self._client, self.manifest, self._lab.resolver)
        # The answer of a demo for programs is one line: its progress goes to the person.
        with open_view(is_json=False) as show:
            state = await self._watch(run_id, show)
        seconds = time.monotonic() - began
        self.found = await asyncio.to_thread(read_inventory, self._client, self.manifest)
        difference = compare(self.manifest, self.found)
        return DemoResult(
            run_id=run_id,
            status=str(state["status"]),
            seconds=round(seconds, 2),
            jobs={status: count for status, count in counts_in(state, "jobs").items() if count},
            assets=len(self.found.assets),
            services=len(self.found.services),
            urls=len(self.found.urls),
            findings=len(self.found.findings),
            pictures=len(self.found.pictures),
            missing=difference.missing,
            unexpected=difference.unexpected,
            events=await self._events(),
        )

    async def _watch(self, run_id: str, show: Show) -> Json:
        deadline = time.monotonic() + RUN_LIMIT_S
        while True:
            # In a thread: the lab answers on this loop.
            state = await asyncio.to_thread(self._client.get, f"/v1/runs/{run_id}")
            show(state)
            if state["status"] in RUNS.terminal or time.monotonic() > deadline:
                return state
            await asyncio.sleep(POLL_S)

    async def _events(self) -> dict[str, int]:
        pool = await open_pool(self._platform.settings.database_system_url, size=1, name="runlane-demo")
        try:
            async with pool.acquire() as conn:
                await _drained(conn)
                return await count_events(conn, self._platform.workspace_id)
        finally:
            await pool.close()


async def _drained(conn: Connection) -> None:
    """Waits until every event is on the bus, for a while."""
    deadline = time.monotonic() + DRAIN_LIMIT_S
    while waiting := await count_unpublished(conn):
        if time.monotonic() > deadline:
            note(f"warning: {waiting} events are not on the bus yet")
            return
        await asyncio.sleep(POLL_S)


def _tell(result: DemoResult, found: Inventory, manifest: Manifest) -> None:
    truth = manifest.inventory()
    note(f"run {result.run_id} {result.status} after {result.seconds} s")
    note(f"  {'':<10} {'found':>6} {'truth':>6}")
    for name in ("assets", "services", "web", "urls", "findings", "pictures"):
        note(f"  {name:<10} {len(getattr(found, name)):>6} {len(getattr(truth, name)):>6}")
    note(f"  {'jobs':<10} {', '.join(f'{number} {status}' for status, number in result.jobs.items())}")
    note(f"  {'events':<10} {sum(result.events.values())} of {len(result.events)} types")
    for each in result.missing:
        note(f"  missing     {each}")
    for each in result.unexpected:
        note(f"  unexpected  {each}")
    note("the inventory equals the truth" if result.is_good else "the inventory differs from the truth")
