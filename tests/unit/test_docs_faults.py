"""The table of faults names tests that are there, and no fault is without a word."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
CELLS = 5
NONE_YET = "none yet"


def _rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| [A-Z]-\d+ ", line)]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def _tests() -> set[str]:
    """Every test as `file::name`."""
    return {
        f"{path.name}::{node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_row_is_whole_and_its_number_is_its_own() -> None:
    rows = _rows()
    ids = [row[0] for row in rows if row]

    assert len(rows) > 100
    assert [row for row in rows if len(row) != CELLS or not all(row)] == []
    assert len(ids) == len(set(ids))


def test_every_test_that_keeps_a_fault_out_exists() -> None:
    known = _tests()

    assert {name for row in _rows() for name in re.findall(r"`([^`]+)`", row[3])} - known == set()


def test_a_fault_without_a_test_says_what_it_waits_for() -> None:
    states = {(row[4].split(":")[0], row[3] == NONE_YET) for row in _rows()}

    tested = {("kept out", False), ("deliberate", False), ("partly", False)}
    assert states <= {*tested, ("bridge", True), ("queue", True)}
    assert [row[0] for row in _rows() if row[4] == "partly"] == []
