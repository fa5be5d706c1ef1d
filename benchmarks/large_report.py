"""What `--large` has measured: every figure beside its bound, and a table for people."""

from collections.abc import Sequence
from typing import Final

from benchmarks.histories import History
from benchmarks.large import EDGE, Large
from benchmarks.merging import Merging
from benchmarks.report import Bound

MOST_EVENTS: Final = 4_096
MOST_PARENT_EVENTS: Final = 2_000
MOST_CORE_MIB: Final = 600.0
MOST_MERGE_MIB: Final = 300.0
"""Memory that a merge may take besides what the idle process has."""

MOST_FIRST_CLAIM_S: Final = 5.0
"""The first claim of a run waits for no job but the first: with admission before it, 100,000 took 12 s."""
MOST_CANCEL_S: Final = 2.0
"""The answer to a cancel waits for one portion: with all of 48,000 jobs it took 6 s."""

SLOWER: Final = 1.3
"""A job at the end of a run, in CPU and in buffers of its claim, in multiples of one at its beginning."""


def bounds(large: Large) -> list[Bound]:
    """Every bound with its figure."""
    run, cancelled = large.run, large.cancelled
    longest = max(history.events for history in [*run.histories, *cancelled.histories])
    wrong = len(run.violations) + len(cancelled.violations)
    untold = abs(cancelled.jobs - cancelled.events)
    return [
        Bound("events of the longest history", longest, MOST_EVENTS, False, ""),
        Bound("events of the run's own workflow", run.histories[0].events, MOST_PARENT_EVENTS, False, ""),
        Bound("peak memory of the core worker", run.peaks["core"], MOST_CORE_MIB, False, "MiB"),
        Bound("first claim after the start", run.first_claim_s, MOST_FIRST_CLAIM_S, False, "s"),
        Bound("cancel half-way answered after", cancelled.answer_s, MOST_CANCEL_S, False, "s"),
        Bound("others done while one job lasts", float(run.held == "in_progress"), 1, True, ""),
        Bound("attempts of any job", run.attempts, 1, False, ""),
        Bound("CPU of a job, last fifth ÷ first", run.cpu_last / run.cpu_first, SLOWER, False, "×"),
        Bound("buffers of a claim, end ÷ start", run.claim_last / run.claim_first, SLOWER, False, "×"),
        Bound("cancelled jobs without one event", untold, 0, False, ""),
        Bound("broken invariants at rest", wrong, 0, False, ""),
        *(
            Bound(f"memory of {m.records:,} {m.category}", m.growth_mib, MOST_MERGE_MIB, False, "MiB")
            for m in large.merges
        ),
    ]


def table(large: Large) -> str:
    """The figures for people."""
    run, cancelled = large.run, large.cancelled
    fifth = run.jobs / EDGE
    lines = [
        f"{run.jobs:,} jobs, one of them endless: the others in {run.seconds:.0f} s, the first claim after "
        f"{run.first_claim_s:.1f} s; the last event on the bus {run.drain_s:.1f} s later",
        f"  first fifth {fifth / run.first_s:.0f} jobs/s, last {fifth / run.last_s:.0f}; CPU s per 1,000 "
        f"jobs {run.cpu_first:.2f}, {run.cpu_last:.2f}; buffers of a claim of 100 {run.claim_first:,}, "
        f"{run.claim_last:,}",
        f"  peak MiB: {', '.join(f'{name} {value:.0f}' for name, value in run.peaks.items())}",
        *_histories(run.histories),
        f"cancel half-way: {cancelled.jobs:,} jobs, answered after {cancelled.answer_s:.1f} s, at rest after "
        f"{cancelled.rest_s:.1f} s",
        *_histories(cancelled.histories),
        *(_merge(merging) for merging in large.merges),
        *run.violations,
        *cancelled.violations,
    ]
    return "\n".join([*lines, ""])


def _histories(histories: Sequence[History]) -> list[str]:
    return [
        f"  {each.events:>6} events {each.size_bytes:>9,} bytes  {each.workflow_id}" for each in histories
    ]


def _merge(merging: Merging) -> str:
    what = f"merge of {merging.records:,} {merging.category}, {merging.body_mib:.0f} MiB"
    return f"{what}: {merging.growth_mib:.0f} MiB more memory, {merging.seconds:.0f} s"
