"""The coverage tables name tests that are there, and leave nothing open without a word."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "docs").glob("coverage-*.md"))
CELLS = 4

each_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)


def _rows(table: Path) -> list[list[str]]:
    lines = [line for line in table.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@each_table
def test_no_cell_is_empty(table: Path) -> None:
    rows = _rows(table)

    assert len(rows) > 50
    assert [row for row in rows if len(row) != CELLS or not all(row)] == []


@each_table
def test_every_test_that_is_named_exists(table: Path) -> None:
    sources = list((ROOT / "tests").rglob("test_*.py"))
    known = {path.stem for path in sources}
    known |= {name for path in sources for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = {name for row in _rows(table) for name in re.findall(r"\btest_\w+", row[2])}

    assert {name for name in named if name not in known and not name.endswith("_")} == set()


@each_table
def test_what_is_not_there_says_so(table: Path) -> None:
    heads = {"sentence", "rule of the design"}
    states = {row[3].split()[0].rstrip(";:,") for row in _rows(table) if row[0] not in heads}

    assert states <= {"built", "deviates", "bridge", "open"}
