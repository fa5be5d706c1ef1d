"""`make bench`: throughput and latency of the whole path, in multiples of bare Temporal on the same server.

With `--large` instead what a run of 100,000 jobs and merges of 300,000 records cost: that takes many minutes.

Everything is measured in one run on one machine: the ratios are what to compare, the rates move by machine.
Bare activities are measured before and after each load, so that a machine which others use too moves both.
Exits non-zero when a bound does not hold.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from temporalio.client import Client

from benchmarks import (
    bare,
    bus,
    cpu,
    delivering,
    growth,
    hop,
    large,
    large_report,
    latency,
    merging,
    redaction,
    registry,
    report,
)
from benchmarks.registry import Load
from benchmarks.report import Bare, Result
from runlane.cli.platform import Platform, PlatformOptions, open_platform
from runlane.db.pool import open_pool

LOADS = (Load(1, 500), Load(25, 5_000, steps=2), Load(100, 10_000))
WARM_UP = Load(25, 500)
BARE_ACTIVITIES = 1_000
LATENCY_RUNS = 60
RESULTS = Path("bench-results.json")
SCAN_BATCHES = 128
"""Batches that the scan worker runs at once: so many that 500 jobs go out one by one."""


@contextmanager
def _bare_workers(address: str) -> Iterator[list[int]]:
    """The two worker processes of the bare measurement, by pid."""
    processes = [
        subprocess.Popen([sys.executable, "-m", "benchmarks.bare", kind, address], start_new_session=True)
        for kind in ("workflow", "activity")
    ]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


async def _bare(platform: Platform, client: Client) -> Bare:
    """One bare measurement on workers that have warmed up."""
    with _bare_workers(platform.settings.temporal_address) as pids:
        await bare.measure(client, 100)
        before = cpu.spent(platform.stack)["temporal"] + cpu.spent_by(pids)
        rate = await bare.measure(client, BARE_ACTIVITIES)
        spent = cpu.spent(platform.stack)["temporal"] + cpu.spent_by(pids) - before
    return Bare(rate, 1000 * spent / BARE_ACTIVITIES)


async def _measure(platform: Platform) -> int:
    client = await Client.connect(platform.settings.temporal_address)
    pool = await open_pool(platform.settings.database_system_url, size=4, name="bench")
    targets = await registry.make_targets(pool, platform.workspace_id, 10_000)
    await registry.measure(platform, pool, client, WARM_UP, targets)
    idle = await latency.measure(platform, pool, targets[0], LATENCY_RUNS)
    gateway = await hop.measure(platform)
    results: list[Result] = []
    before = await _bare(platform, client)
    for load in LOADS:
        measured = await registry.measure(platform, pool, client, load, targets)
        after = await _bare(platform, client)
        results.append(Result(measured, before, after))
        before = after
    delivered = await delivering.measure(platform, pool)
    await pool.close()
    grown = await growth.measure(platform.stack)
    scrubbing = redaction.measure()
    bridge = await bus.measure(platform.settings)
    checks = [
        *report.bounds(results, idle),
        *growth.bounds(grown),
        *delivered.bounds(),
        scrubbing.bound(),
        *bridge.bounds(),
    ]
    print(report.table(results, idle, gateway))
    print(growth.table(grown))
    print(delivered.line())
    print(scrubbing.line())
    print("\n".join(check.line() for check in checks))
    RESULTS.write_text(report.as_json(results, idle, gateway, checks))  # noqa: ASYNC240  # nothing else runs now
    return 0 if all(check.holds for check in checks) else 1


async def _measure_large(platform: Platform, sizes: large.Sizes) -> int:
    client = await Client.connect(platform.settings.temporal_address)
    pool = await open_pool(platform.settings.database_system_url, size=4, name="bench")
    measured = await large.measure(platform, pool, client, sizes)
    await pool.close()
    checks = large_report.bounds(measured)
    print(large_report.table(measured))
    print("\n".join(check.line() for check in checks))
    return 0 if all(check.holds for check in checks) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measures a platform of its own.")
    parser.add_argument(
        "--large", action="store_true", help="a run of 100,000 jobs and merges of 300,000 records"
    )
    parser.add_argument("--jobs", type=int, default=large.JOBS, help="jobs of the large run")
    parser.add_argument("--records", type=int, default=merging.RECORDS, help="records of each merge")
    return parser.parse_args()


async def main() -> int:
    """Runs the bench on a platform of its own."""
    options = _options()
    environment = {**os.environ, "RUNLANE_LOG_LEVEL": "warning"}
    environment["RUNLANE_OUTBOUND_NETWORKS"] = "127.0.0.0/8"  # where the receivers of the bench are
    if not options.large:  # the large run has the settings that everybody has
        environment["RUNLANE_WORKER_TOOLSETS"] = f"probe={SCAN_BATCHES}"
    with tempfile.TemporaryDirectory(prefix="runlane-bench-", ignore_cleanup_errors=True) as folder:
        where = PlatformOptions(Path(folder) / "state", ("127.0.0.0/8",), guarded=True)
        async with open_platform(where, environment) as platform:
            if options.large:
                return await _measure_large(platform, large.Sizes(options.jobs, options.records))
            return await _measure(platform)


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
