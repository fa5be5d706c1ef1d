"""The page that says how an event is added is carried out on a copy of the repository."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/howto/add-an-event.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PLACE = re.compile(r'^# ([\w/]+\.py)(?:, (at the end|after|before)(?: "(.+)")?)?\n', re.MULTILINE)
COPIED = ("runlane", "lanes", "api", "activities", "workflows")
TOUCHED = ("runlane/events", "runlane/db/issues.py", "lanes/assignments.py", "lanes/runner.py")

CHECK = """
from uuid import uuid4

from lanes.assignments import AssignmentSink
from lanes.runner import SINKS
from runlane.events import EVENT_CATALOG, LEAVES, SUBSCRIPTIONS, Lane, envelope
from runlane.events.inventory_payloads import IssueAssigned

said = IssueAssigned(issue_id=uuid4(), vulnerability_id=None, title="t", assignee="somebody")
event = envelope(EVENT_CATALOG.issue.assigned, said, workspace_id=uuid4(), subject="issue/1")
assert event.data["assignee"] == "somebody"
assert {sink.lane for sink in SINKS} == set(Lane) == SUBSCRIPTIONS.keys()
assert [name for name in LEAVES if AssignmentSink().accepts(name)] == ["issue.assigned"]
"""


class Step(NamedTuple):
    """A part of the page: what is put where."""

    path: str
    how: str
    anchor: str
    text: str


def steps() -> list[Step]:
    """What the page says, in order."""
    found = []
    for block in BLOCK.findall(PAGE.read_text()):
        _, *parts = PLACE.split(block)
        for path, how, anchor, text in zip(*(iter(parts),) * 4, strict=True):
            found.append(Step(path, how or "", anchor or "", text))
    return found


def carry_out(step: Step, root: Path) -> None:
    """Does one step; an anchor stands exactly once in its file."""
    path = root / step.path
    if not step.how:
        assert not path.exists()
        path.write_text(step.text)
        return
    source = path.read_text()
    if step.how == "at the end":
        path.write_text(f"{source}\n\n{step.text}")
        return
    assert source.count(step.anchor) == 1, step
    if step.how == "before":
        path.write_text(source.replace(step.anchor, f"{step.text.strip()} {step.anchor}"))
    else:
        line_end = source.index("\n", source.index(step.anchor)) + 1
        path.write_text(source[:line_end] + step.text + source[line_end:])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The repository without its tests; what mypy knows of it comes along."""
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / ".mypy_cache")
    return tmp_path


def run(root: Path, *arguments: str) -> None:
    """Runs Python in the copy."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_event_with_a_sink_is_added_as_the_page_says_in_less_than_sixty_lines(copy: Path) -> None:
    lines = [line for step in steps() for line in step.text.splitlines() if line.strip()]

    for step in steps():
        carry_out(step, copy)

    assert len(lines) < 60
    run(copy, "-c", CHECK)
    run(copy, "-m", "mypy", *TOUCHED)
