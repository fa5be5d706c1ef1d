"""Lines and records of one job, picked from the staged result of a whole batch. Pure."""

import re
from collections.abc import Iterator
from typing import Final

PORTION: Final = 1_000
"""Records that are read at a time."""

_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_OPENING: Final = b"[{"
_CLOSING: Final = b"]}"
_BLANKS: Final = b" \t\r"


class TooManyBytes(ValueError):
    """The lines of one job are more than anybody wants."""


def own_lines(body: bytes, begins: bytes, most_bytes: int) -> bytes:
    """The lines of a body that begin so, each with its newline; they are copied, the others are not.

    Raises:
        TooManyBytes: they have more than `most_bytes`.
    """
    kept: list[bytes] = []
    size = 0
    for start, end in lines(body):
        if body.startswith(begins, start):
            size += end - start
            if size > most_bytes:
                raise TooManyBytes(f"more than {most_bytes} bytes of one job")
            kept.append(body[start:end])
    return b"".join(kept)


def lines(body: bytes) -> Iterator[tuple[int, int]]:
    """Where each line begins, and where it ends with its newline; nothing is copied."""
    start = 0
    while start < len(body):
        end = body.find(b"\n", start) + 1 or len(body)
        yield start, end
        start = end


def portions(body: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cuts a list of records, without its brackets, into lists of so many: where each begins and ends.

    Only finds where one may cut: what lies in between need not be JSON, and whoever reads it will see. Takes
    flat memory, whatever the list has.

    Raises:
        ValueError: two records have no comma between them.
    """
    depth = count = 0
    begin = start
    for token in _TOKEN.finditer(body, start, end):
        character = body[token.start()]
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
            count += depth == 0
            if count == PORTION:
                yield begin, token.end()
                begin, count = _behind_comma(body, token.end(), end), 0
    if begin < end:
        yield begin, end


def _behind_comma(body: bytes, position: int, end: int) -> int:
    while position < end and body[position] in _BLANKS:
        position += 1
    if position < end and body[position] != ord(","):
        raise ValueError("records without a comma between them")
    return min(position + 1, end)
