"""JSON Lines as foreign programs write them. What a hostile host made one write costs that line only."""

import json

from runlane.tools.records import Fields, MalformedRecord


def read_object(line: bytes) -> Fields:
    """The object of one line, cleaned.

    Raises:
        MalformedRecord: the line is cut, is no JSON, or no object.
    """
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedRecord("a line of output is no JSON") from error
    return Fields.of(value)


def text_or_none(fields: Fields, name: str) -> str | None:
    """A non-empty text; None for anything else: what only describes may be missing."""
    value = fields.values.get(name)
    return value if isinstance(value, str) and value else None


def texts_of(fields: Fields, name: str) -> list[str]:
    """The texts of a list, or the one text; anything else is left out."""
    value = fields.values.get(name)
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str) and item]


def whole_or_none(fields: Fields, name: str) -> int | None:
    """A whole number, also as text; None for anything else."""
    value = fields.values.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
