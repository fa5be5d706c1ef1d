"""Answers of the API, read by name and kind. One that has another form ends the command."""

from collections.abc import Mapping
from typing import TypeAlias

from runlane.cli.errors import CommandError, ExitCode

Json: TypeAlias = dict[str, object]


def as_object(value: object) -> Json:
    """A whole answer, which is an object."""
    if not isinstance(value, dict):
        raise _unexpected("it", "object")
    return value


def objects_in(answer: Mapping[str, object], name: str) -> list[Json]:
    """A list of objects."""
    value = answer.get(name)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise _unexpected(name, "list of objects")
    return value


def texts_in(answer: Mapping[str, object], name: str) -> list[str]:
    """A list of texts."""
    value = answer.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _unexpected(name, "list of texts")
    return value


def counts_in(answer: Mapping[str, object], name: str) -> dict[str, int]:
    """An object of whole numbers, such as jobs by status."""
    value = answer.get(name)
    if not isinstance(value, dict) or not all(isinstance(each, int) for each in value.values()):
        raise _unexpected(name, "object of numbers")
    return value


def integer_in(answer: Mapping[str, object], name: str) -> int:
    """A whole number."""
    value = answer.get(name)
    if not isinstance(value, int):
        raise _unexpected(name, "whole number")
    return value


def _unexpected(name: str, kind: str) -> CommandError:
    message = f"the API answered something else than expected: {name} is no {kind}"
    return CommandError(message, ExitCode.UNEXPECTED)
