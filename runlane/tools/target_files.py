"""Files of targets: CSV (`value,tags`) or NDJSON (`{"value": …, "tags": […]}`), read with every fault."""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runlane.errors import Invalid
from runlane.tools.targets import Target, parse_target

MAX_LINES: Final = 10_000
MAX_TAGS: Final = 20

_TAG: Final = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,63}")


class FileFormat(StrEnum):
    """How a file of targets is written."""

    CSV = "csv"  # the first column is the target, the second its tags, apart by spaces
    NDJSON = "ndjson"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a line; the first line is 1."""

    line: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class TargetFile:
    """Targets of a file, each once, with the tags that any of its lines gives it; and what cannot be read."""

    targets: dict[Target, frozenset[str]]
    faults: Sequence[Fault]


def read_targets(
    text: str, file_format: FileFormat, allowed_networks: Sequence[str] = (), *, is_bound: bool = False
) -> TargetFile:
    """Reads a file. Empty lines, and a heading of a CSV, are passed over; else as `parse_target`.

    Raises:
        Invalid: `targets.too_many`, it has more lines than `MAX_LINES`.
    """
    if text.count("\n") > MAX_LINES:
        detail = f"a file has at most {MAX_LINES} lines"
        raise Invalid(detail, code="targets.too_many", fields={"text": detail})
    targets: dict[Target, frozenset[str]] = {}
    faults: list[Fault] = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if not line.strip() or (number == 1 and _is_heading(line, file_format)):
            continue
        try:
            value, tags = _CUTS[file_format](line)
            target = parse_target(value, allowed_networks, is_bound=is_bound)
            targets[target] = targets.get(target, frozenset()) | frozenset(check_tags(tags))
        except Invalid as error:
            faults.append(Fault(number, error.code, error.detail))
    return TargetFile(targets, faults)


def _is_heading(line: str, file_format: FileFormat) -> bool:
    return file_format is FileFormat.CSV and line.partition(",")[0].strip().lower() in ("value", "target")


def _cut_csv(line: str) -> tuple[str, list[str]]:
    try:
        cells = next(csv.reader([line], strict=True))
    except (csv.Error, StopIteration) as error:
        raise Invalid("no line of a CSV", code="targets.line") from error
    if len(cells) > 2:
        raise Invalid("a line has a target and, in a second column, its tags", code="targets.line")
    return cells[0].strip(), cells[1].split() if len(cells) > 1 else []


def _cut_ndjson(line: str) -> tuple[str, list[str]]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Invalid("no JSON", code="targets.line") from error
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("value"), str)
        or set(found) - {"value", "tags"}
    ):
        raise Invalid('an object with "value" and perhaps "tags" is expected', code="targets.line")
    tags = found.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise Invalid("tags are a list of texts", code="targets.line")
    return found["value"], tags


_CUTS: Final = {FileFormat.CSV: _cut_csv, FileFormat.NDJSON: _cut_ndjson}


def check_tags(tags: Sequence[str]) -> Iterator[str]:
    """Yields tags of one target or rule that are of their form.

    Raises:
        Invalid: `targets.tags`, one is not, or there are too many.
    """
    if len(tags) > MAX_TAGS:
        raise Invalid(f"a target has at most {MAX_TAGS} tags", code="targets.tags")
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise Invalid("a tag has up to 64 lower-case letters, digits and _.:-", code="targets.tags")
        yield tag
