"""The page about tools names every tool, tool set, program and option, in the words of the program."""

import re
from pathlib import Path

from runlane.tools import TOOLS, Toolset
from runlane.tools.adapters import ADAPTERS, programs_of

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:1] == "|"
]


def words_of(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z0-9_-]+)`", cell))


def test_every_tool_set_is_told_with_its_tools_and_programs() -> None:
    told = {row[0].strip("`"): row for row in ROWS if len(row) == 3}

    for toolset in Toolset:
        tools = {tool.name for tool in TOOLS.values() if tool.toolset is toolset}
        programs = programs_of(toolset)

        assert words_of(told[toolset][1]) == tools
        names = {name for program in programs for name in (program.name, *program.others)}
        assert words_of(told[toolset][2]) == names


def test_every_option_of_a_foreign_program_is_told() -> None:
    told = {row[0].strip("`"): words_of(row[3]) for row in ROWS if len(row) == 4}

    assert {name: told[name] for name in ADAPTERS} == {
        name: set(adapter.schema) for name, adapter in ADAPTERS.items()
    }


def test_every_foreign_program_is_told_in_its_shape() -> None:
    told = {row[0].strip("`"): words_of(row[2]) for row in ROWS if len(row) == 3}

    for name in ADAPTERS:
        assert name in told[TOOLS[name].shape]
