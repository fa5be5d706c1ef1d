"""The result as a table and as JSON, with every figure beside its bound."""

import json
import os
import platform as host
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.hop import Hop
from benchmarks.latency import Latency
from benchmarks.registry import Throughput


@dataclass(frozen=True, slots=True)
class Bare:
    """Bare no-op activities on the same server: how many a second, and CPU seconds per 1,000."""

    per_s: float
    cpu_per_thousand: float


@dataclass(frozen=True, slots=True)
class Result:
    """One load between two bare measurements."""

    load: Throughput
    before: Bare
    after: Bare

    @property
    def bare_per_s(self) -> float:
        """Mean of the two neighbours."""
        return (self.before.per_s + self.after.per_s) / 2

    @property
    def ratio(self) -> float:
        """Jobs per second, until the outbox is drained, in multiples of bare activities per second."""
        return self.load.drained_per_s / self.bare_per_s

    @property
    def cpu_ratio(self) -> float:
        """CPU of a job in multiples of the CPU of a bare activity."""
        own = sum(self.load.cpu_per_thousand.values())
        return own / ((self.before.cpu_per_thousand + self.after.cpu_per_thousand) / 2)


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


def bounds(results: Sequence[Result], latency: Latency) -> list[Bound]:
    """Every bound with its figure."""
    ratios = [
        Bound(f"batch {r.load.load.batch}, drained ÷ bare", r.ratio, FLOORS[r.load.load.batch], True, "×")
        for r in results
    ]
    return [
        *ratios,
        Bound("row → claim p50, idle", latency.row_to_claim_p50, 100, False, "ms"),
        Bound("POST → claim p50, idle", latency.post_to_claim_p50, 150, False, "ms"),
        Bound("POST → claim p99, idle", latency.post_to_claim_p99, 400, False, "ms"),
        Bound("cancel of a job → process dead p99, idle", latency.cancel_to_dead_p99, 1000, False, "ms"),
    ]


def table(results: Sequence[Result], latency: Latency, hop: Hop) -> str:
    """The figures for people."""
    lines = [
        f"{os.cpu_count()} cores, {host.machine()}, Python {host.python_version()}",
        "",
        "batch   jobs  batches   jobs/s  drained/s   bare/s  ÷ bare  CPU s per 1,000 jobs (÷ bare)",
    ]
    for r in results:
        t = r.load
        total = sum(t.cpu_per_thousand.values())
        parts = ", ".join(f"{name} {value:.2f}" for name, value in t.cpu_per_thousand.items())
        lines.append(
            f"{t.load.batch:>5} {t.load.jobs:>6} {t.batches:>8} {t.jobs_per_s:>8.1f} {t.drained_per_s:>10.1f}"
            f" {r.bare_per_s:>8.1f} {r.ratio:>7.2f}  {total:.2f} ({r.cpu_ratio:.2f}): {parts}"
        )
    lines += [
        "",
        f"idle, {latency.runs} one-job runs: POST → claim p50 {latency.post_to_claim_p50:.0f} ms, "
        f"p99 {latency.post_to_claim_p99:.0f} ms; row → claim p50 {latency.row_to_claim_p50:.0f} ms, "
        f"p99 {latency.row_to_claim_p99:.0f} ms; cancel of a job → its process dead "
        f"p50 {latency.cancel_to_dead_p50:.0f} ms, p99 {latency.cancel_to_dead_p99:.0f} ms",
        f"gateway, {hop.calls} calls: straight p50 {hop.straight_p50:.2f} ms, p99 {hop.straight_p99:.1f} ms; "
        f"through it p50 {hop.through_p50:.2f} ms, p99 {hop.through_p99:.1f} ms",
        "",
    ]
    return "\n".join(lines)


def as_json(results: Sequence[Result], latency: Latency, hop: Hop, checks: Sequence[Bound]) -> str:
    """The figures for programs."""
    document = {
        "cores": os.cpu_count(),
        "machine": host.machine(),
        "python": host.python_version(),
        "loads": [asdict(r) | {"ratio": r.ratio, "cpu_ratio": r.cpu_ratio} for r in results],
        "latency_ms": asdict(latency),
        "gateway_ms": asdict(hop),
        "bounds": [asdict(check) | {"holds": check.holds} for check in checks],
    }
    return json.dumps(document, indent=2)
