"""`make chaos ARGS=--times`: how soon jobs of lost workers are released and cancels take effect."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.bounds import Times, percentile
from tests.chaos.cancels import SHAPES, Cancels
from tests.chaos.endless import make_targets
from tests.chaos.fleet import Fleet
from tests.chaos.load import Load
from tests.chaos.programs import TOOLSETS, write_programs
from tests.chaos.releases import Releases, rules
from tests.e2e.installation import Installation, open_installation

HEARTBEAT_S: Final = 3.0
SAMPLES: Final = 20
"""Least samples of each time."""

NAP_S: Final = 0.01

_SETTINGS: Final = {
    "RUNLANE_WORKER_HEARTBEAT_S": str(HEARTBEAT_S),
    "RUNLANE_WORKER_TOOLSETS": "probe=16",
    "RUNLANE_DISPATCH_LEAST_BATCH": "4",
}
"""Room for every job at any two workers; batches of several, so that a cancelled job has siblings."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All times, and how late the machine was meanwhile."""

    times: list[Times]
    late_s: list[float]

    def lateness(self) -> str:
        """One line under the table."""
        p50, p95, most = (1000 * percentile(self.late_s, share) for share in (0.5, 0.95, 1.0))
        return f"this machine woke up late by p50 {p50:.0f} ms, p95 {p95:.0f} ms, most {most:.0f} ms"


async def measure_times(samples: int) -> Measured:
    """Measures all of them in an installation of its own."""
    late_s: list[float] = []
    with tempfile.TemporaryDirectory(prefix="runlane-times-", ignore_cleanup_errors=True) as folder:
        async with open_installation(Path(folder) / "state", _SETTINGS) as installation:
            looking = asyncio.create_task(_watch_clock(late_s))
            try:
                return Measured(await _measure(installation, Path(folder), samples), late_s)
            finally:
                looking.cancel()


async def _watch_clock(late_s: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        await asyncio.sleep(NAP_S)
        late_s.append(loop.time() - began - NAP_S)
        await asyncio.sleep(1)


async def _measure(installation: Installation, folder: Path, samples: int) -> list[Times]:
    path = await asyncio.to_thread(write_programs, folder / "bin")
    environment = {"PATH": path, "RUNLANE_WORKER_TOOLSETS": f"probe=16,{TOOLSETS}"}
    targets = await make_targets(installation)
    async with Fleet.open(installation, ("one", "two"), environment) as fleet, _loaded(installation):
        cancels = Cancels(installation, fleet, targets)
        releases = Releases(installation, fleet, targets)
        return [
            *[await cancels.measure(shape, samples) for shape in SHAPES],
            *[await releases.measure(rule, samples) for rule in rules(HEARTBEAT_S)],
        ]


@asynccontextmanager
async def _loaded(installation: Installation) -> AsyncIterator[None]:
    """Other runs go on, one after another, for the length of the block."""
    load = Load(installation)
    loading = asyncio.create_task(load.run_noops())
    try:
        yield
    finally:
        load.stop.set()
        await loading
