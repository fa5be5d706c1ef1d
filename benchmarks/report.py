"""The result as a table and as JSON, with every figure beside its bound."""

import json
import os
import platform as host
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.latency import Latency
from benchmarks.registry import Throughput


@dataclass(frozen=True, slots=True)
class Bound:
    """One figure that must hold."""

    name: str
    value: float
    limit: float
    is_floor: bool
    unit: str

    @property
    def holds(self) -> bool:
        """Whether the figure is on the right side of its limit."""
        return self.value >= self.limit if self.is_floor else self.value <= self.limit

    def line(self) -> str:
        """One line of the table."""
        sign = "≥" if self.is_floor else "≤"
        mark = "ok  " if self.holds else "MISS"
        return f"{mark} {self.name:<44} {self.value:10.2f} {self.unit:<3} {sign} {self.limit:g}"


FLOORS = {1: 0.3, 25: 4.0, 100: 7.0}
"""Least jobs per second in multiples of the bare activity rate of the same run, by batch size."""


def bounds(bare: float, loads: Sequence[Throughput], latency: Latency) -> list[Bound]:
    """Every bound with its figure."""
    ratios = [
        Bound(
            f"batch {t.load.batch}, drained ÷ bare", t.drained_per_s / bare, FLOORS[t.load.batch], True, "×"
        )
        for t in loads
    ]
    return [
        *ratios,
        Bound("row → claim p50, idle", latency.row_to_claim_p50, 100, False, "ms"),
        Bound("POST → claim p50, idle", latency.post_to_claim_p50, 150, False, "ms"),
        Bound("POST → claim p99, idle", latency.post_to_claim_p99, 400, False, "ms"),
    ]


def table(bare: Sequence[float], loads: Sequence[Throughput], latency: Latency) -> str:
    """The figures for people."""
    lines = [
        f"{os.cpu_count()} cores, {host.machine()}, Python {host.python_version()}",
        f"bare no-op activities: {', '.join(f'{rate:.1f}' for rate in bare)} per second",
        "",
        "batch   jobs  batches   jobs/s  drained/s  CPU s per 1,000 jobs",
    ]
    for t in loads:
        total = sum(t.cpu_per_thousand.values())
        parts = ", ".join(f"{name} {value:.2f}" for name, value in t.cpu_per_thousand.items())
        lines.append(
            f"{t.load.batch:>5} {t.load.jobs:>6} {t.batches:>8} {t.jobs_per_s:>8.1f} {t.drained_per_s:>10.1f}"
            f"  {total:.2f} ({parts})"
        )
    lines += [
        "",
        f"idle, {latency.runs} one-job runs: POST → claim p50 {latency.post_to_claim_p50:.0f} ms, "
        f"p99 {latency.post_to_claim_p99:.0f} ms; row → claim p50 {latency.row_to_claim_p50:.0f} ms, "
        f"p99 {latency.row_to_claim_p99:.0f} ms",
        "",
    ]
    return "\n".join(lines)


def as_json(
    bare: Sequence[float], loads: Sequence[Throughput], latency: Latency, checks: Sequence[Bound]
) -> str:
    """The figures for programs."""
    document = {
        "cores": os.cpu_count(),
        "machine": host.machine(),
        "python": host.python_version(),
        "bare_per_s": list(bare),
        "loads": [asdict(t) for t in loads],
        "latency_ms": asdict(latency),
        "bounds": [asdict(check) | {"holds": check.holds} for check in checks],
    }
    return json.dumps(document, indent=2)
