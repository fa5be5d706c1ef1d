"""The page of the state machines, generated from their tables. Pure."""

from enum import StrEnum
from typing import TypeVar

from runlane.jobs import (
    JOBS,
    MAX_FAILURES,
    MAX_FREE_ATTEMPTS,
    MAX_LOSSES,
    RUNS,
    STEPS,
    Machine,
    Outcome,
    judge,
)

StatusT = TypeVar("StatusT", bound=StrEnum)
VerbT = TypeVar("VerbT", bound=StrEnum)

_DECIDED_ELSEWHERE = frozenset({Outcome.CANCELLED, Outcome.STALE})
"""Outcomes that no settle decides: a cancel wrote the first, the second changes nothing."""


def render_states() -> str:
    """Markdown: each machine as a diagram and a table, then what an outcome leads to."""
    parts = [
        "<!-- Generated from runlane/jobs.py by `runlane docs`; edit there. -->",
        "# States",
        "Every state change is one conditional update whose guard comes from these tables. A terminal state\n"
        "is never left: a re-run is a new row.",
        _machine(JOBS),
        _machine(STEPS),
        _machine(RUNS),
        _outcomes(),
    ]
    return "\n\n".join(parts) + "\n"


def _machine(machine: Machine[StatusT, VerbT]) -> str:
    arrows = [f"    {source} --> {target} : {verb}" for (source, verb), target in machine.transitions.items()]
    ends = [f"    {status} --> [*]" for status in type(machine.initial) if status in machine.terminal]
    diagram = "\n".join(
        ["```mermaid", "stateDiagram-v2", f"    [*] --> {machine.initial}", *arrows, *ends, "```"]
    )
    rows = [f"| `{source}` | {verb} | `{target}` |" for (source, verb), target in machine.transitions.items()]
    table = "\n".join(["| from | verb | to |", "|-|-|-|", *rows])
    return f"## {machine.name.capitalize()}\n\n{diagram}\n\n{table}"


def _outcomes() -> str:
    rows = []
    for outcome in Outcome:
        if outcome in _DECIDED_ELSEWHERE:
            continue
        first = judge(outcome, failures=0, free_attempts=0)
        last = judge(outcome, failures=MAX_FAILURES - 1, free_attempts=MAX_FREE_ATTEMPTS - 1)
        charged = "yes" if first.charged else "no"
        rows.append(
            f"| `{outcome}` | {charged} | {first.verb} | {' '.join(filter(None, (last.verb, last.reason)))} |"
        )
    head = [
        "## What an attempt's outcome leads to",
        "",
        f"The budget is {MAX_FAILURES} charged attempts; {MAX_FREE_ATTEMPTS} attempts may end without blame.",
        f"A job that was lost in {MAX_LOSSES} lives of workers, outside of any outage, fails as quarantined.",
        "",
        "| outcome | charged | at first | at the limit |",
        "|-|-|-|-|",
    ]
    return "\n".join([*head, *rows])
