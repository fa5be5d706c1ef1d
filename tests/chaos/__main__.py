"""`make chaos`: storms of random kills under load, each from a printed seed; figures, bound and ledger.

Exits non-zero when anything did not hold. A ledger line is written for every storm that ran to its end.
`--times` measures instead how soon the jobs of lost workers are released and cancels take effect.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import orjson

from tests.chaos.containers import engine_at_hand
from tests.chaos.storm import Outcome, Plan, Storm
from tests.chaos.times import SAMPLES, measure_times
from tests.e2e.installation import open_installation

LEDGER: Final = Path("docs/chaos-ledger.ndjson")
LIMIT_S: Final = 900.0
"""Bound of a storm of 100 blows."""


async def _storm(seed: int, count: int) -> Outcome:
    planned = Plan(seed, count)
    with (
        tempfile.TemporaryDirectory(prefix="runlane-chaos-", ignore_cleanup_errors=True) as folder,
        engine_at_hand() as engine,
    ):
        async with open_installation(Path(folder) / "state", planned.settings(engine)) as installation:
            return await Storm(installation, planned, engine).run()


def _note(seed: int, outcome: Outcome) -> None:
    line = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": seed,
        "blows": sum(outcome.blows.values()),
        "by": dict(sorted(outcome.blows.items())),
        "engine": outcome.engine,
        "containers": outcome.containers,
        "deeds": dict(sorted(outcome.deeds.items())),
        "runs": outcome.runs,
        "jobs": outcome.jobs,
        "checks": outcome.checks,
        "seconds": round(outcome.seconds),
        "faults": len(outcome.faults),
    }
    with LEDGER.open("ab") as ledger:
        ledger.write(orjson.dumps(line) + b"\n")


def _survived() -> str:
    lines = LEDGER.read_bytes().splitlines() if LEDGER.exists() else []
    entries = [entry for line in lines if not (entry := orjson.loads(line))["faults"]]
    blows = sum(entry["blows"] for entry in entries)
    contained = sum(entry["blows"] for entry in entries if entry.get("containers"))
    return f"{blows} blows survived, {contained} of them with containers in the load"


def _report(seed: int, outcome: Outcome, bound_s: float) -> bool:
    print(f"seed {seed}: {sum(outcome.blows.values())} blows, {outcome.runs} runs, {outcome.jobs} jobs")
    for name, times in sorted(outcome.blows.items()):
        print(f"  {times:4d} × {name}")
    print(f"  container engine: {outcome.engine}; {outcome.containers} containers")
    print(
        f"  {outcome.deeds.total()} deeds: "
        + ", ".join(f"{n} × {d}" for d, n in sorted(outcome.deeds.items()))
    )
    for fault in outcome.faults:
        print(f"  FAULT {fault}")
    is_in_time = outcome.seconds <= bound_s
    print(f"{'ok  ' if is_in_time else 'MISS'} seconds {outcome.seconds:.0f} ≤ {bound_s:.0f}")
    print(
        f"{'MISS' if outcome.faults else 'ok  '} faults {len(outcome.faults)} = 0 in {outcome.checks} checks"
    )
    return is_in_time and not outcome.faults


def _print_times(samples: int) -> int:
    measured = asyncio.run(measure_times(samples))
    for times in measured.times:
        print(times.line())
        for fault in sorted(set(times.faults)):
            print(f"     {fault}")
    print(measured.lateness())
    return 0 if all(times.holds for times in measured.times) else 1


def main() -> int:
    """Runs the storms that the arguments ask for."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)), help="default: a new one")
    parser.add_argument("--kills", type=int, default=100, help="blows of a storm")
    parser.add_argument("--storms", type=int, default=1, help="storms, with consecutive seeds")
    parser.add_argument("--times", action="store_true", help="measure times of release and cancel instead")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of each of these times")
    arguments = parser.parse_args()
    if arguments.times:
        return _print_times(arguments.samples)
    is_good = True
    for seed in range(arguments.seed, arguments.seed + arguments.storms):
        outcome = asyncio.run(_storm(seed, arguments.kills))
        _note(seed, outcome)
        is_good &= _report(seed, outcome, LIMIT_S * max(1.0, arguments.kills / 100))
    print(f"{LEDGER}: {_survived()}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
