"""`make chaos ARGS=--times`: how soon jobs of lost workers are released and cancels take effect."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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
class Machine:
    """What the machine itself cost meanwhile, once a second."""

    late_s: list[float] = field(default_factory=list)
    """How much too long a nap was."""
    written_s: list[float] = field(default_factory=list)
    """How long a small write took to reach the disk."""

    async def watch(self, file: Path) -> None:
        """Goes on until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(NAP_S)
            self.late_s.append(loop.time() - began - NAP_S)
            began = loop.time()
            await asyncio.to_thread(_write, file)
            self.written_s.append(loop.time() - began)
            await asyncio.sleep(1)


def _write(file: Path) -> None:
    with file.open("wb") as opened:
        opened.write(b"x")
        os.fsync(opened.fileno())


@dataclass(frozen=True, slots=True)
class Measured:
    """All times, and how late the machine was meanwhile."""

    times: list[Times]
    machine: Machine

    def lateness(self) -> str:
        """One line under the table."""
        late, written = _spread(self.machine.late_s), _spread(self.machine.written_s)
        return f"this machine woke up late by {late}; a write reached its disk after {written}"


def _spread(values: Sequence[float]) -> str:
    p50, p95, most = (1000 * percentile(values, share) for share in (0.5, 0.95, 1.0))
    return f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, most {most:.0f} ms"


async def measure_times(samples: int) -> Measured:
    """Measures all of them in an installation of its own."""
    machine = Machine()
    with tempfile.TemporaryDirectory(prefix="runlane-times-", ignore_cleanup_errors=True) as folder:
        async with open_installation(Path(folder) / "state", _SETTINGS) as installation:
            watching = asyncio.create_task(machine.watch(Path(folder) / "written"))
            try:
                return Measured(await _measure(installation, Path(folder), samples), machine)
            finally:
                watching.cancel()


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
