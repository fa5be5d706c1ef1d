"""What leaves the platform about an event: ten fields, each built by name from what the event says.

Nothing of the envelope is passed on whole, so an attribute that is added to it does not leak.
Source: Event bridge, What leaves the platform.
"""

from typing import Final

import orjson

from runlane.events.envelope import Envelope
from runlane.events.scrub import Scrubbed, scrub
from runlane.events.wire import BusEvent, format_time

MAX_OUTBOUND_BYTES: Final = 64 * 1024
"""Bytes of a body as JSON; the largest fields of a larger one are left out, and named in its metadata."""

_FIXED_BYTES: Final = 8 * 1024
"""What the other fields and the names of what is left out may take of it."""

_MAX_NAMED: Final = 20
_MAX_NAME: Final = 100
_FAILURES: Final = ("failed", "timed_out", "rejected")
"""Last words of types that tell of a failure, where the event itself does not say."""


def outbound_body(event: BusEvent) -> dict[str, Scrubbed]:
    """The body that every integration gets of an event, scrubbed once more. Pure: the same each time."""
    sent = event.envelope
    data = scrub(sent.data)
    kind, _, resource_id = sent.subject.partition("/")
    changes, metadata = _taken(data, "changes"), _taken(data, "metadata")
    body: dict[str, Scrubbed] = {
        "type": sent.type,
        "workspaceId": str(sent.workspace_id),
        "occurredAt": format_time(event.time),
        "outcome": _outcome(sent),
        "actor": _actor(sent),
        "resourceType": kind,
        "resourceId": resource_id or None,
        "changes": changes,
        "metadata": metadata,
        "payload": data,
    }
    if len(orjson.dumps(body)) > MAX_OUTBOUND_BYTES:
        left_out = _cut({"payload": data, "changes": changes, "metadata": metadata})
        metadata["leftOut"] = list(left_out)
    return body


def _taken(data: dict[str, Scrubbed], name: str) -> dict[str, Scrubbed]:
    """Moves an object out of the data; a list of names becomes one without values."""
    value = data.pop(name, None)
    if isinstance(value, dict):
        return value
    return {str(each): None for each in value} if isinstance(value, list) else {}


def _outcome(sent: Envelope) -> str:
    said = sent.attributes.get("outcome")
    if said is not None:
        return said
    return "failure" if sent.type.endswith(_FAILURES) else "success"


def _actor(sent: Envelope) -> Scrubbed:
    actor_id, actor_type = sent.attributes.get("actorid"), sent.attributes.get("actortype")
    if actor_id is None and actor_type is None:
        return None
    return {"id": actor_id, "type": actor_type}


def _cut(places: dict[str, dict[str, Scrubbed]]) -> list[str]:
    """Removes the largest fields until the rest fits; returns their paths, as many as may be named."""
    sizes = sorted(
        (len(orjson.dumps({name: value})), place, name)
        for place, fields in places.items()
        for name, value in fields.items()
    )
    left_out = []
    room = MAX_OUTBOUND_BYTES - _FIXED_BYTES
    for size, place, name in sizes:
        room -= size
        if room < 0:
            del places[place][name]
            left_out.append(f"{place}.{name[:_MAX_NAME]}")
    return left_out[:_MAX_NAMED]
