"""Watching a run: what is drawn, what is said, and when it ends."""

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from runlane.cli.client import ApiClient, Json, Query
from runlane.cli.errors import ExitCode
from runlane.cli.profile import Profile
from runlane.cli.watch import render, watch_run


def _state(status: str = "running", done: int = 1, name: str = "weekly") -> Json:
    step: Json = {
        "step_id": "ports", "status": status, "jobs": {"completed": done, "failed": 1, "in_progress": 2},
    }  # fmt: skip
    return {
        "id": "01a22b9e-c457-7bd8-b8fa-c14ea718b892",
        "name": name,
        "status": status,
        "created_at": "2026-11-30T08:00:00Z",
        "closed_at": "2026-11-30T08:00:30Z",
        "blocked_reason": None,
        "steps": [step],
    }


class ScriptedApi(ApiClient):
    """Answers with one state after the other; the last one again and again."""

    def __init__(self, *states: Json) -> None:
        super().__init__(Profile("http://127.0.0.1:1", "k"))
        self._states: Iterator[Json] = iter(states)
        self._last = states[-1]

    def get(self, path: str, query: Query | None = None) -> Json:
        return next(self._states, self._last)


def test_drawing_shows_steps_with_bars_and_no_foreign_markup() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)

    console.print(render(_state(name="a[red]b\x1b[2J")))

    assert isinstance(console.file, io.StringIO)
    drawn = console.file.getvalue()
    assert "a[red]b⟦ESC⟧[2J" in drawn
    assert "◐ running" in drawn
    assert "30 s" in drawn
    assert "2/4" in drawn
    assert "1 failed" in drawn


def test_lines_are_said_once_each(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedApi(_state(), _state(), _state(done=2), _state("completed", done=4)) as client:
        code = watch_run(client, "x", timeout_s=30, is_json=False)

    said = capsys.readouterr().err.splitlines()
    assert code is ExitCode.OK
    assert [line for line in said if line.startswith("ports")] == [
        "ports: running 2/4",
        "ports: running 3/5",
        "ports: completed 5/7",
    ]


@pytest.mark.parametrize(
    ("status", "code"),
    [("completed", ExitCode.OK), ("failed", ExitCode.RUN_FAILED), ("cancelled", ExitCode.RUN_CANCELLED)],
)
def test_exit_code_is_how_the_run_ended(
    capsys: pytest.CaptureFixture[str], status: str, code: ExitCode
) -> None:
    with ScriptedApi(_state(status)) as client:
        assert watch_run(client, "x", timeout_s=30, is_json=True) is code

    assert capsys.readouterr().out.count("\n") == 1
