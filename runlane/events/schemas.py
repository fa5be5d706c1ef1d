"""What is said of events to programs: JSON Schemas and an AsyncAPI document, both from the catalog.

The schemas leave room: the same `schemaversion` may get further fields. A consumer that checks events against
them goes on working.
"""

import json
from typing import Final, TypeAlias

from pydantic import JsonValue

from runlane import names
from runlane.events.catalog import LEAVES, Leaf
from runlane.events.payloads import EVENT_SCHEMA_VERSION, Payload
from runlane.events.policy import Lane, is_subscribed

Document: TypeAlias = dict[str, JsonValue]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_COMMENT: Final = "from `runlane/events/catalog.py` by `runlane docs`; edit there"

_TEXT: Final[Document] = {"type": "string"}
_ID: Final[Document] = {"type": "string", "format": "uuid"}

ATTRIBUTES: Final[dict[str, Document]] = {
    "id": _ID,
    "type": _TEXT,
    "source": {"const": names.EVENT_SOURCE},
    "specversion": {"const": "1.0"},
    "time": {"type": "string", "format": "date-time"},
    "subject": _TEXT,
    "workspaceid": _ID,
    "sequence": {"type": "string", "pattern": "^[0-9]{20}$"},
    "schemaversion": {"const": str(EVENT_SCHEMA_VERSION)},
    "datacontenttype": {"const": "application/json"},
    "cause": {**_TEXT, "description": "what one act set off in many places, as `run`"},
    "hops": {**_TEXT, "description": "how many events and runs in a row brought this about"},
    "actorid": _TEXT,
    "actortype": _TEXT,
    "traceparent": {**_TEXT, "description": "W3C trace context of the request that caused it"},
}
"""Context attributes of an event: each is a field of its stream entry, and all are text there."""

OPTIONAL: Final = frozenset(("cause", "hops", "actorid", "actortype", "traceparent"))
"""Attributes that not every event has."""


def event_schemas() -> str:
    """One JSON Schema for all events in CloudEvents' JSON format: which `data` goes with which `type`."""
    cases: list[JsonValue] = [
        {"properties": {"type": {"const": leaf.name}, "data": _ref("$defs", leaf.payload.__name__)}}
        for leaf in LEAVES.values()
    ]
    document: Document = {
        "$schema": DIALECT,
        "$comment": _COMMENT,
        "title": "Events of Runlane",
        "type": "object",
        "properties": {**ATTRIBUTES, "data": {"type": "object"}},
        "required": [*_required(), "data"],
        "oneOf": cases,
        "$defs": _payloads(),
    }
    return _written(document)


def asyncapi_document() -> str:
    """The bus as AsyncAPI 3 describes it: the stream, its messages, and what each lane receives."""
    operations: Document = {"publish": _operation("send", list(LEAVES))}
    for lane in Lane:
        subscribed = [name for name in LEAVES if is_subscribed(lane, name)]
        operations[f"lane.{lane}"] = _operation("receive", subscribed)
    document: Document = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Events of Runlane",
            "version": str(EVENT_SCHEMA_VERSION),
            "description": f"Generated {_COMMENT}. One Redis stream; each attribute is a field of an entry.",
        },
        "defaultContentType": "application/json",
        "channels": {"bus": _bus(), "deadLetters": _dead_letters()},
        "operations": operations,
        "components": {
            "messages": {name: _message(leaf) for name, leaf in LEAVES.items()},
            "schemas": {"Attributes": _attributes(), **_payloads()},
        },
    }
    return _written(document)


def payload_schema(payload: type[Payload]) -> Document:
    """The schema of one payload, open for further fields; what has a default need not be there."""
    schema: Document = payload.model_json_schema(mode="validation")
    schema.pop("additionalProperties", None)
    parts = schema.pop("$defs", {})
    return {name: _inlined(value, parts) for name, value in schema.items()}


def _inlined(node: JsonValue, parts: JsonValue) -> JsonValue:
    """With the parts of a schema in their places: it stands inside of other documents."""
    if isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str) and isinstance(parts, dict):
            return parts[reference.rpartition("/")[2]]
        return {name: _inlined(value, parts) for name, value in node.items()}
    return [_inlined(each, parts) for each in node] if isinstance(node, list) else node


def _payloads() -> Document:
    payloads = {leaf.payload.__name__: leaf.payload for leaf in LEAVES.values()}
    return {name: payload_schema(payloads[name]) for name in sorted(payloads)}


def _attributes() -> Document:
    return {"type": "object", "properties": {**ATTRIBUTES}, "required": _required()}


def _required() -> list[JsonValue]:
    return [name for name in ATTRIBUTES if name not in OPTIONAL]


def _bus() -> Document:
    return {
        "address": names.EVENT_STREAM,
        "description": "The stream of all events, in the order of `sequence`.",
        "messages": {name: _ref("components", "messages", name) for name in LEAVES},
    }


def _dead_letters() -> Document:
    return {
        "address": f"{names.DLQ_PREFIX}{{workspaceId}}",
        "description": "Copies of events that a lane could not handle.",
        "parameters": {"workspaceId": {"description": "id of the workspace"}},
        "messages": {name: _ref("components", "messages", name) for name in LEAVES},
    }


def _operation(action: str, events: list[str]) -> Document:
    messages: list[JsonValue] = [_ref("channels", "bus", "messages", name) for name in events]
    return {"action": action, "channel": _ref("channels", "bus"), "messages": messages}


def _message(leaf: Leaf[Payload]) -> Document:
    return {
        "name": leaf.name,
        "summary": (leaf.payload.__doc__ or "").strip().partition("\n")[0],
        "headers": _ref("components", "schemas", "Attributes"),
        "payload": _ref("components", "schemas", leaf.payload.__name__),
        "x-persist": leaf.policy.persist,
        "x-severity": leaf.policy.severity.value,
        "x-outbound": leaf.is_outbound,
        "x-reserved": leaf.is_reserved,
    }


def _ref(*path: str) -> Document:
    return {"$ref": "#/" + "/".join(path)}


def _written(document: Document) -> str:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
