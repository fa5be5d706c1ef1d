"""CPU seconds by part of the platform, children that have ended included."""

from collections.abc import Iterable, Mapping

import psutil

from runlane.stack.supervisor import Stack


def spent(stack: Stack) -> dict[str, float]:
    """CPU seconds so far of every server and process of the stack, by name."""
    return {status.name: _tree(status.pid) for status in stack.status() if status.pid is not None}


def spent_by(pids: Iterable[int]) -> float:
    """CPU seconds so far of these processes and their children."""
    return sum(_tree(pid) for pid in pids)


def _tree(pid: int) -> float:
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    return sum(_own(process) for process in family)


def _own(process: psutil.Process) -> float:
    """A live process and those of its children that were waited for: nothing is counted twice."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def per_thousand(before: Mapping[str, float], after: Mapping[str, float], jobs: int) -> dict[str, float]:
    """CPU seconds per 1,000 jobs between two readings."""
    return {name: 1000 * (after[name] - before.get(name, 0.0)) / jobs for name in sorted(after)}
