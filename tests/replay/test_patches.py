"""Patches of workflows are known, used, and replayed on both sides."""

import ast
from pathlib import Path
from typing import Final

from tests.replay.description import describe
from tests.replay.test_histories import STORED, history_of
from workflows import patches
from workflows.patches import PATCHES

CALLS: Final = {"patched", "deprecate_patch"}


def calls_in(source: str) -> list[tuple[str, object]]:
    """Calls of the patch functions in a workflow file: which, and the id if it is a literal."""
    found: list[tuple[str, object]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in CALLS:
                (argument,) = node.args
                found.append((name, argument.value if isinstance(argument, ast.Constant) else None))
    return found


def calls() -> list[tuple[str, object]]:
    folder = Path(str(patches.__file__)).parent
    return [call for path in sorted(folder.glob("*.py")) for call in calls_in(path.read_text())]


def sides(patch: str) -> set[bool]:
    """Whether stored histories have the patch: True for one with it, False for one without."""
    return {f"patch {patch}" in describe(history_of(text)) for text in STORED.values()}


def test_every_patch_in_a_workflow_is_listed_and_none_is_listed_in_vain() -> None:
    assert {patch for _, patch in calls()} == set(PATCHES)


def test_every_patch_with_two_paths_has_a_stored_history_of_each() -> None:
    both = {patch for name, patch in calls() if name == "patched"}

    assert {patch: sides(str(patch)) for patch in both} == {patch: {True, False} for patch in both}


def test_calls_are_found_however_they_are_written() -> None:
    source = 'if workflow.patched("a") or not patched("b"):\n    workflow.deprecate_patch(NAME)\n'

    assert set(calls_in(source)) == {("patched", "a"), ("patched", "b"), ("deprecate_patch", None)}
