"""What a tool says, without the secrets that it was given. Pure.

A tool may repeat what it was given in a line, an error, a record; everything that leaves a batch passes here.
Masked is each value as it is, as JSON and URLs spell it and in base64; in short texts, which may have been
cut in the middle of one, any piece of it as well.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import quote

import orjson

from runlane.scan.wire import Member

MASK: Final = "***"
PIECE: Final = 8
"""Characters in a row that a short text may not share with a secret."""

_OF_GO: Final = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
"""JSON of programs in Go, which most tools are, spells these so that it may stand in HTML."""


class Masks:
    """The secrets of one batch; without any, everything passes as it is."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = {each for secret in secrets for each in (secret, *secret.split()) if len(each) >= PIECE}
        spelt = {spelling for value in values for spelling in _spellings(value)}
        # longest first: a value that holds another one is masked as a whole
        self._texts = sorted(spelt, key=len, reverse=True)
        self._bytes = [text.encode() for text in self._texts]
        self._pieces = frozenset(
            value[start : start + PIECE] for value in values for start in range(len(value) - PIECE + 1)
        )

    def line(self, line: bytes) -> bytes:
        """A line of output."""
        for secret in self._bytes:
            line = line.replace(secret, MASK.encode())
        return line

    def text(self, text: str) -> str:
        """An error or an argument, also where it holds a part of a secret."""
        text = self._whole(text)
        return self._without_pieces(text) if self._pieces else text

    def member(self, member: Member) -> Member:
        """What is said of a job: its error, its arguments, its records and what was looked at."""
        if not self._texts:
            return member
        return replace(
            member,
            error=None if member.error is None else self.text(member.error),
            argv=tuple(self.text(argument) for argument in member.argv),
            records=tuple(self._record(record) for record in member.records),
            coverage={self._whole(key): self._value(each) for key, each in member.coverage.items()},
        )

    def _record(self, record: bytes) -> bytes:
        """A JSON text, which stays one whatever is masked in it."""
        if self.line(record) == record:
            return record
        return orjson.dumps(self._value(orjson.loads(record)))

    def _value(self, value: object) -> object:
        match value:
            case str():
                return self._whole(value)
            case dict():
                return {self._whole(str(key)): self._value(each) for key, each in value.items()}
            case list():
                return [self._value(each) for each in value]
            case int() | float() if self._whole(json.dumps(value)) != json.dumps(value):
                return MASK
            case _:
                return value

    def _whole(self, text: str) -> str:
        for secret in self._texts:
            text = text.replace(secret, MASK)
        return text

    def _without_pieces(self, text: str) -> str:
        hidden = bytearray(len(text))
        for start in range(len(text) - PIECE + 1):
            if text[start : start + PIECE] in self._pieces:
                hidden[start : start + PIECE] = b"\1" * PIECE
        return "".join(_shown(text, hidden)) if any(hidden) else text


def _shown(text: str, hidden: bytearray) -> Iterator[str]:
    is_masked = False
    for character, is_hidden in zip(text, hidden, strict=True):
        if not is_hidden:
            yield character
        elif not is_masked:
            yield MASK
        is_masked = bool(is_hidden)


def _spellings(value: str) -> Iterator[str]:
    yield value
    for is_ascii in (True, False):
        inside = json.dumps(value, ensure_ascii=is_ascii)[1:-1]
        yield inside
        yield inside.translate(_OF_GO)
    yield quote(value, safe="")
    yield b64encode(value.encode()).decode()
