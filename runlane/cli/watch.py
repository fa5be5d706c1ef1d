"""Watching a run: live on a terminal, one line per change in a pipe, one object per change as JSON."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from runlane.cli.answers import counts_in, objects_in
from runlane.cli.client import ApiClient, Json
from runlane.cli.errors import ExitCode
from runlane.cli.output import note, print_json
from runlane.cli.text import visible
from runlane.jobs import JOBS, JobStatus, RunStatus, StepStatus

POLL_S: Final = 0.4
_ENDS: Final = {
    str(RunStatus.COMPLETED): ExitCode.OK,
    str(RunStatus.FAILED): ExitCode.RUN_FAILED,
    str(RunStatus.CANCELLED): ExitCode.RUN_CANCELLED,
}
_SIGNS: Final = {
    str(StepStatus.COMPLETED): "✓",
    str(StepStatus.FAILED): "✗",
    str(StepStatus.CANCELLED): "✗",
    str(StepStatus.SKIPPED): "–",
    str(StepStatus.RUNNING): "◐",
    str(StepStatus.WAITING): "○",
}
_STYLES: Final = {
    str(StepStatus.COMPLETED): "green",
    str(StepStatus.FAILED): "red",
    str(StepStatus.CANCELLED): "red",
    str(StepStatus.RUNNING): "cyan",
}

Show = Callable[[Json], None]


def watch_run(client: ApiClient, run_id: str, *, timeout_s: float | None, is_json: bool) -> ExitCode:
    """Shows a run until it ends; returns how it ended. Ctrl-C leaves it going on and says so."""
    status = ""
    try:
        with open_view(is_json=is_json) as show:
            for state in changes(client, run_id, timeout_s):
                show(state)
                status = str(state["status"])
    except KeyboardInterrupt:
        note(f"the run goes on: runlane run watch {run_id}")
        return ExitCode.INTERRUPTED
    return _ENDS.get(status, ExitCode.TIMED_OUT)


def changes(client: ApiClient, run_id: str, timeout_s: float | None) -> Iterator[Json]:
    """Yields a run each time it is not what it was before, up to its end or the timeout."""
    deadline = time.monotonic() + timeout_s if timeout_s is not None else None
    before: Json | None = None
    while True:
        state = client.get(f"/v1/runs/{run_id}")
        if state != before:
            yield state
        before = state
        if state["status"] in _ENDS or (deadline is not None and time.monotonic() >= deadline):
            return
        time.sleep(POLL_S)


@contextmanager
def open_view(*, is_json: bool) -> Iterator[Show]:
    """Gives a function that shows a run as it is now."""
    if is_json:
        yield print_json
    elif sys.stderr.isatty():
        with Live(console=Console(stderr=True), auto_refresh=False, transient=False) as live:
            yield lambda state: live.update(render(state), refresh=True)
    else:
        yield _Lines().show


class _Lines:
    """One line for each step or run whose line has changed."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def show(self, state: Json) -> None:
        for step in objects_in(state, "steps"):
            done, total = _progress(step)
            self._tell(str(step["step_id"]), f"{step['step_id']}: {step['status']} {done}/{total}")
        self._tell("run", f"run {state['id']}: {state['status']}{_blocked(state)}")

    def _tell(self, key: str, line: str) -> None:
        if self._told.get(key) != line:
            self._told[key] = line
            note(line)


def render(state: Json) -> Group:
    """Draws a run with a bar for each step."""
    status = str(state["status"])
    head = Text(f"{visible(state['name'])}  {state['id']}  ")
    head.append(f"{_SIGNS.get(status, '◐')} {status}", style=_STYLES.get(status, ""))
    head.append(f"  {_age_s(state):.0f} s{_blocked(state)}")
    table = Table(box=None, show_header=False, pad_edge=False)
    for step in objects_in(state, "steps"):
        done, total = _progress(step)
        jobs = counts_in(step, "jobs")
        failed = jobs.get(JobStatus.FAILED, 0)
        step_status = str(step["status"])
        style = _STYLES.get(step_status, "dim")
        table.add_row(
            Text(f"  {visible(step['step_id'])}"),
            Text(_SIGNS.get(step_status, "?"), style=style),
            ProgressBar(total=max(total, 1), completed=done, width=24),
            Text(f"{done}/{total}"),
            Text(f"{failed} failed", style="red" if failed else "dim"),
            Text(f"{jobs.get(JobStatus.IN_PROGRESS, 0)} running", style="dim"),
        )
    return Group(head, table)


def _progress(step: Json) -> tuple[int, int]:
    jobs = counts_in(step, "jobs")
    return sum(jobs.get(status, 0) for status in JOBS.terminal), sum(jobs.values())


def _blocked(state: Json) -> str:
    return f"  waits for: {visible(state['blocked_reason'])}" if state["blocked_reason"] else ""


def _age_s(state: Json) -> float:
    began = datetime.fromisoformat(str(state["created_at"]))
    ended = datetime.fromisoformat(str(state["closed_at"])) if state["closed_at"] else datetime.now(UTC)
    return (ended - began).total_seconds()
