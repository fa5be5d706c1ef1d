"""Documents name what exists: files, headings, functions, settings, commands. Decisions quote a sentence."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from runlane.cli import app
from runlane.settings import LAUNCH_VARIABLES, Settings

ROOT = Path(__file__).parents[2]
ADRS = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
WRITTEN = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/adr").glob("*.md")),
    *sorted((ROOT / "docs/howto").glob("*.md")),
    *sorted((ROOT / "docs/integrations").glob("*.md")),
]
"""Documents that people write; those that the program writes have tests of their own."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
QUOTE = re.compile(r'^> "(.+)"\n>\n> (.+), (.+)$', re.MULTILINE)
PLACE = re.compile(r"(?:[\w.-]+/)+[\w.-]*|\w+\.(?:py|md|yml|toml)")
VARIABLE = re.compile(r"RUNLANE_[A-Z0-9_]+")

RUNLANE = get_command(app)
TOPS = {path.name for path in ROOT.iterdir() if path.is_dir()} - {".runlane", ".venv", ".tools"}
SECTIONS = {
    "Job registry": {
        "the flow at the top",
        "What is recorded",
        "The states",
        "Claiming",
        "Results",
        "When something goes wrong",
        "Retention",
        "Events",
    },
    "Event bridge": {
        "introduction",
        "the flow at the top",
        "Publishing",
        "Redaction happens at the producer",
        "The contract",
        "Lanes",
        "Delivery guarantees",
        "What leaves the platform",
    },
}
"""Documents that Runlane implements, and their sections."""

by_document = pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
by_decision = pytest.mark.parametrize("path", ADRS, ids=lambda path: path.name[:4])


class Command(NamedTuple):
    """A command line of a document, split into words."""

    words: list[str]

    def __str__(self) -> str:
        return " ".join(self.words)


def prose(path: Path) -> str:
    """A document without its code blocks."""
    return FENCE.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """Headings of a document as links name them."""
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(prose(path)))
    return {title.replace(" ", "-") for title in titles}


def commands(path: Path, program: str) -> Iterator[Command]:
    """Every call of a program in a document, in blocks of shell and in text."""
    blocks = [body.replace("\\\n", " ") for kind, body in FENCE.findall(path.read_text()) if kind == "sh"]
    lines = [line for body in blocks for line in body.splitlines()]
    for text in (*lines, *SPAN.findall(prose(path))):
        for part in re.split(r"&&|\|", text):
            words = shlex.split(part, comments=True) if part.strip().startswith(f"{program} ") else []
            if words[:1] == [program]:
                yield Command(words)


def functions_of(module: str) -> set[str]:
    """Names that a module of `runlane/db` defines, without importing it; a package's are those it exports."""
    place = ROOT / "runlane/db" / module
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    names: set[str] = set()
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names}
    return names


@by_document
def test_every_relative_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    links = [link for link in LINK.findall(prose(path)) if "://" not in link]

    for link in links:
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@by_document
def test_every_named_file_exists(path: Path) -> None:
    spans = [span.rstrip("/") for span in SPAN.findall(prose(path)) if PLACE.fullmatch(span)]
    files = [span for span in spans if span.split("/")[0] in TOPS]

    missing = [name for name in files if not (ROOT / name).exists()]

    assert not missing


@by_document
def test_every_named_setting_exists(path: Path) -> None:
    known = {f"RUNLANE_{name.upper()}" for name in Settings.model_fields} | LAUNCH_VARIABLES

    assert {name for name in VARIABLE.findall(path.read_text()) if not name.endswith("_")} <= known


def test_every_function_on_the_way_of_a_job_exists() -> None:
    text = (
        prose(ROOT / "docs/architecture.md").partition("## The way of one job")[2].partition("## Fences")[0]
    )
    modules = {path.stem for path in (ROOT / "runlane/db").iterdir()}
    named = [pair for pair in re.findall(r"`(\w+)\.(\w+)`", text) if pair[0] in modules and pair[1] != "py"]

    missing = [f"{module}.{name}" for module, name in named if name not in functions_of(module)]

    assert len(named) > 20
    assert not missing


@by_document
def test_every_command_of_runlane_exists_with_its_options(path: Path) -> None:
    for command in commands(path, "runlane"):
        found = RUNLANE
        words = command.words[1:]
        while words and isinstance(found, TyperGroup) and words[0] in found.commands:
            found = found.commands[words.pop(0)]
        options = {option for parameter in found.params for option in parameter.opts}
        given = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--help"}
        assert not isinstance(found, TyperGroup), command
        assert given <= options, command


@by_document
def test_every_target_of_make_exists_and_is_a_command_of_dev(path: Path) -> None:
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    targets = set(phony[1].split())
    cases = re.findall(r"^([a-z| -]+)\)", (ROOT / "dev").read_text(), re.MULTILINE)

    asked = {command.words[1] for program in ("make", "./dev") for command in commands(path, program)}

    assert asked <= targets
    assert targets <= {name for case in cases for name in case.replace("|", " ").split()}


@by_decision
def test_decision_has_its_number_and_its_sections_in_order(path: Path) -> None:
    titles = HEADING.findall(path.read_text())

    assert titles[0].startswith(f"{path.name[:4]}: ")
    assert titles[1:] == ["Status", "Context", "Decision", "Consequences"]


@by_decision
def test_decision_quotes_a_sentence_of_a_document(path: Path) -> None:
    context = path.read_text().partition("## Context\n")[2].partition("## Decision\n")[0]

    quotes = QUOTE.findall(context)

    assert quotes
    assert all(section in SECTIONS[document] for _, document, section in quotes)
    assert context.count("\n> ") == 2 * len(quotes)


def test_decisions_are_numbered_without_a_gap_and_all_listed() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()

    assert [path.name[:4] for path in ADRS] == [f"{number:04}" for number in range(1, len(ADRS) + 1)]
    for path in ADRS:
        title = HEADING.findall(path.read_text())[0].partition(": ")[2]
        documents = {document for _, document, _ in QUOTE.findall(path.read_text())}
        assert any(
            f"[{path.name[:4]}]({path.name}) | {title} | {document} |" in index for document in documents
        )


def test_readme_leaves_no_picture_out() -> None:
    text = (ROOT / "README.md").read_text()
    pictures = [path.relative_to(ROOT) for path in (ROOT / "docs/images").iterdir()]

    assert all(f"({picture})" in text for picture in pictures)
    assert "```mermaid" in text
