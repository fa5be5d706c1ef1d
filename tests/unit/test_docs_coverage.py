"""The coverage table names tests that are there, and leaves nothing open without a word."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "coverage-job-registry.md"
CELLS = 4


def _rows() -> list[list[str]]:
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_no_cell_is_empty() -> None:
    rows = _rows()

    assert len(rows) > 50
    assert [row for row in rows if len(row) != CELLS or not all(row)] == []


def test_every_test_that_is_named_exists() -> None:
    sources = list((ROOT / "tests").rglob("test_*.py"))
    known = {path.stem for path in sources}
    known |= {name for path in sources for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = {name for row in _rows() for name in re.findall(r"\btest_\w+", row[2])}

    assert {name for name in named if name not in known and not name.endswith("_")} == set()


def test_what_is_not_there_says_so() -> None:
    states = {
        row[3].split()[0].rstrip(";:,") for row in _rows() if row[0] not in {"sentence", "rule of the design"}
    }

    assert states <= {"built", "deviates", "bridge", "open"}
