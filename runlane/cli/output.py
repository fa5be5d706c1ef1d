"""What commands print: data on stdout, everything else on stderr."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from runlane.cli.errors import CommandError
from runlane.cli.text import age, visible

_TIMES: Final = ("_at", "_seen")
"""Endings of the keys that hold a time."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a list: its heading, and the key of the row (dots go into objects)."""

    heading: str
    key: str


def print_json(value: object) -> None:
    """Prints one line of JSON. Only ASCII: nothing in it can steer a terminal."""
    print(json.dumps(value, separators=(",", ":"), ensure_ascii=True), flush=True)


def print_rows(rows: Sequence[Mapping[str, object]], columns: Sequence[Column]) -> None:
    """Prints a table: fitted to a terminal, tab-separated with its heading for a pipe."""
    headings = [column.heading for column in columns]
    if not sys.stdout.isatty():
        cells = [[visible(_pick(row, column.key)) for column in columns] for row in rows]
        for line in (headings, *cells):
            print("\t".join(line))
        return
    now = datetime.now(UTC)
    cells = [[_for_people(_pick(row, column.key), column.key, now) for column in columns] for row in rows]
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold" if heading == "ID" else "ellipsis", no_wrap=heading == "ID")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))  # Text: brackets in foreign text are no markup
    Console().print(table)


def print_fields(pairs: Sequence[tuple[str, object]]) -> None:
    """Prints one thing as `name: value` lines."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"{name:<{width}}  {visible(value)}")


def print_done(done: object, said: str, *, as_json: bool) -> None:
    """Prints what was done: as JSON, or as a word to the person."""
    if as_json:
        print_json(done)
    else:
        note(said)


def print_made(made: object, value: object, said: str, *, as_json: bool) -> None:
    """Prints what was made: as JSON, or the value that a script goes on with and a word to the person."""
    if as_json:
        print_json(made)
    else:
        print(value)
        note(said)


def note(text: str) -> None:
    """Says something to the person: progress, hints, warnings."""
    print(visible(text), file=sys.stderr, flush=True)


def print_error(error: CommandError) -> None:
    """Prints what went wrong, why, and what to try; no credential that a server's message quotes."""
    from runlane.events.scrub import scrub_text

    first, *rest = scrub_text(error.message).splitlines() or [""]
    note(f"error: {first}")
    for line in rest:  # the end of a log, say
        note(line)
    cause = error.cause
    for path, fault in cause.fields.items():
        if fault != error.message:
            note(f"       {path}: {scrub_text(fault)}")
    details = [f"code: {cause.code}"] if cause.code else []
    details += [f"request: {cause.request_id}"] if cause.request_id else []
    if details:
        note(f" {'   '.join(details)}")
    if error.hint:
        note(f"  try: {error.hint}")


def _for_people(value: object, key: str, now: datetime) -> str:
    is_time = isinstance(value, str) and key.endswith(_TIMES)
    return age(str(value), now) if is_time else visible(value)


def _pick(row: Mapping[str, object], key: str) -> object:
    value: object = row
    for part in key.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    if isinstance(value, list):
        return ", ".join(str(each) for each in value)
    return value
