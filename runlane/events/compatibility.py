"""Which changes of payloads break a consumer. Pure.

Breaking: an event, or a field of one, is gone; a field has another type; a field is required that was not
there or not required. A new event and a new optional field are not. Source: Event bridge, The contract.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from pydantic import JsonValue

from runlane.errors import Defect
from runlane.events.leaf import Leaf
from runlane.events.payloads import Payload
from runlane.events.schemas import payload_schema

Field: TypeAlias = Mapping[str, JsonValue]
"""`schema` without what no consumer parses by, and whether it is `required`."""

Shapes: TypeAlias = Mapping[str, Mapping[str, Field]]
"""Fields by event and name."""

_WORDS = ("title", "description", "default")


def shapes_of(leaves: Iterable[Leaf[Payload]]) -> Shapes:
    """Shapes of what is published. A reserved event has no consumer that could break."""
    return {leaf.name: _fields(leaf.payload) for leaf in leaves if not leaf.is_reserved}


def breaking_changes(before: Shapes, after: Shapes) -> list[str]:
    """What a consumer of `before` would stumble over, in words; none: it goes on parsing."""
    found: list[str] = []
    for name, fields in before.items():
        if name not in after:
            found.append(f"{name} is gone")
        else:
            found += (f"{name}: {change}" for change in _changes(fields, after[name]))
    return found


def _changes(before: Mapping[str, Field], after: Mapping[str, Field]) -> Iterator[str]:
    for name, field in before.items():
        if name not in after:
            yield f"{name} is gone"
        elif after[name]["schema"] != field["schema"]:
            yield f"{name} has another type"
        elif after[name]["required"] and not field["required"]:
            yield f"{name} is required now"
    for name in after.keys() - before.keys():
        if after[name]["required"]:
            yield f"{name} is new and required"


def _fields(payload: type[Payload]) -> dict[str, Field]:
    schema = payload_schema(payload)
    required, fields = schema.get("required"), schema["properties"]
    if not isinstance(fields, dict):
        raise Defect(f"no fields in the schema of {payload.__name__}")
    names = required if isinstance(required, list) else []
    return {name: {"schema": _bare(each), "required": name in names} for name, each in fields.items()}


def _bare(schema: JsonValue) -> JsonValue:
    if isinstance(schema, dict):
        return {name: _bare(value) for name, value in schema.items() if name not in _WORDS}
    return [_bare(each) for each in schema] if isinstance(schema, list) else schema
