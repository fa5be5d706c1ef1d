"""The page `docs/generated/events.md`: each event with its policy, lanes and payload, from the catalog."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from runlane.errors import Defect
from runlane.events.catalog import LEAVES, Leaf
from runlane.events.payloads import EVENT_SCHEMA_VERSION, Payload
from runlane.events.policy import Lane, Severity, is_subscribed

_HEAD: Final = """# Events

Generated from `runlane/events/catalog.py` by `runlane docs`; edit there.

Every event is a CloudEvents 1.0 entry of the stream `oasm:events`, with source `oasm://core-api` and schema
version {version}. Severity `none` never notifies. What is not outbound never leaves the platform. A reserved
event has its name and shape settled, and no producer yet.
"""


def render_events() -> str:
    """The page's text: one table of all events, one list of fields per payload."""
    lines = [
        _HEAD.format(version=EVENT_SCHEMA_VERSION),
        "| event | persist | severity | outbound | lanes | payload | producer |",
        "|-|-|-|-|-|-|-|",
        *(_row(leaf) for leaf in LEAVES.values()),
        "",
        "## Payloads",
    ]
    for payload in dict.fromkeys(leaf.payload for leaf in LEAVES.values()):
        lines += ["", *_payload(payload)]
    return "\n".join(lines) + "\n"


def _row(leaf: Leaf[Payload]) -> str:
    lanes = ", ".join(lane for lane in Lane if is_subscribed(lane, leaf.name) and _may_take(lane, leaf))
    persist = "yes" if leaf.policy.persist else "no"
    outbound = "yes" if leaf.is_outbound else "no"
    producer = "reserved" if leaf.is_reserved else f"`{leaf.producer}`"
    return (
        f"| {leaf.name} | {persist} | {leaf.policy.severity} | {outbound} "
        f"| {lanes or '-'} | {leaf.payload.__name__} | {producer} |"
    )


def _may_take(lane: Lane, leaf: Leaf[Payload]) -> bool:
    """Whether the sink takes any event of that leaf: the domain alone is not all."""
    if lane is Lane.AUDIT:
        return leaf.policy.persist
    if lane is Lane.NOTIFICATIONS:
        return leaf.policy.severity is not Severity.NONE
    return leaf.is_outbound or lane is not Lane.INTEGRATIONS


def _payload(payload: type[Payload]) -> list[str]:
    schema = payload.model_json_schema(mode="serialization")
    fields = [f"- `{name}`: {_type_of(field)}" for name, field in schema["properties"].items()]
    return [f"### {payload.__name__}", "", (payload.__doc__ or "").strip(), "", *fields]


def _type_of(schema: Mapping[str, JsonValue]) -> str:
    match schema:
        case {"anyOf": [*options]}:
            return " or ".join(_type_of(option) for option in options if isinstance(option, dict))
        case {"enum": [*values]}:
            return " \\| ".join(str(value) for value in values)
        case {"items": dict(items)}:
            return f"array of {_type_of(items)}"
        case {"type": kind, "format": form}:
            return f"{kind} ({form})"
        case {"type": kind}:
            return str(kind)
        case _:
            raise Defect(f"no words for the schema {schema}")
