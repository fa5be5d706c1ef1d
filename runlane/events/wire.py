"""An event on the stream: CloudEvents 1.0, each attribute a field, `data` a field of compact JSON.

Built and validated by the CloudEvents SDK when it is published; read by a decoder of our own, which costs a
tenth. A property test holds the two together. Source: Event bridge, The contract.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import orjson
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.v1.event import CloudEvent

from runlane import names
from runlane.errors import Defect, Invalid
from runlane.events.envelope import ATTRIBUTE_NAME, Envelope
from runlane.events.payloads import EVENT_SCHEMA_VERSION

CONTENT_TYPE: Final = "application/json"
SPEC_VERSION: Final = "1.0"
SEQUENCE_DIGITS: Final = 20
"""The sequence is padded so that the order of the text is the order of the numbers."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_OWN: Final = frozenset(
    {b"id", b"type", b"source", b"specversion", b"time", b"subject", b"workspaceid"}
    | {b"sequence", b"schemaversion", b"datacontenttype", b"data"}
)


@dataclass(frozen=True, slots=True)
class BusEvent:
    """An event with its place on the bus: steps of exactly one, from 1. `time`: when its cause happened."""

    envelope: Envelope
    sequence: int
    time: datetime


def to_fields(event: BusEvent) -> dict[str, str]:
    """The fields of a stream entry, context attributes and data, all text. Not validated: see `validate`."""
    sent = event.envelope
    return {
        **sent.attributes,
        "id": str(sent.id),
        "type": sent.type,
        "source": names.EVENT_SOURCE,
        "specversion": SPEC_VERSION,
        "time": format_time(event.time),
        "subject": sent.subject,
        "workspaceid": str(sent.workspace_id),
        "sequence": f"{event.sequence:0{SEQUENCE_DIGITS}d}",
        "schemaversion": str(EVENT_SCHEMA_VERSION),
        "datacontenttype": CONTENT_TYPE,
        "data": orjson.dumps(sent.data).decode(),
    }


def validate(event: BusEvent, fields: Mapping[str, str]) -> None:
    """Builds the CloudEvent of an event's fields by the SDK and checks what the SDK lets pass.

    Raises:
        Defect: it is no CloudEvent of this bus.
    """
    attributes: dict[str, object] = {**fields, "time": event.time}
    del attributes["data"]
    try:
        CloudEvent(attributes, event.envelope.data)
    except CloudEventValidationError as error:
        raise Defect(f"{event.envelope.type}: {', '.join(sorted(error.errors))} not valid") from error
    for name, value in event.envelope.attributes.items():
        # the SDK's pattern ends in `$`, which lets a line end pass
        if not ATTRIBUTE_NAME.fullmatch(name) or name.encode() in _OWN or _CONTROL.search(value):
            raise Defect(f"{event.envelope.type}: attribute {name!r} not valid")
    if _CONTROL.search(event.envelope.subject):
        raise Defect(f"{event.envelope.type}: control character in the subject")


def sequence_of(fields: Mapping[bytes, bytes]) -> int | None:
    """Place on the bus of a stream entry, None if it has none: then it is not from our relay."""
    digits = fields.get(b"sequence", b"")
    return int(digits) if digits.isdigit() and len(digits) <= SEQUENCE_DIGITS else None


def decode(fields: Mapping[bytes, bytes]) -> BusEvent:
    """The event of a stream entry, whoever wrote it.

    Raises:
        Invalid: an attribute is missing or malformed, or the data is no JSON object.
    """
    sequence = sequence_of(fields)
    if sequence is None:
        raise Invalid("no sequence", code="event.malformed")
    try:
        data = orjson.loads(fields[b"data"])
        sent = Envelope(
            id=UUID(fields[b"id"].decode()),
            type=fields[b"type"].decode(),
            workspace_id=UUID(fields[b"workspaceid"].decode()),
            subject=fields[b"subject"].decode(),
            data=data,
            attributes={k.decode(): v.decode() for k, v in fields.items() if k not in _OWN},
        )
        event = BusEvent(sent, sequence, datetime.fromisoformat(fields[b"time"].decode()))
    except KeyError as error:
        raise Invalid(f"no {error.args[0].decode()}", code="event.malformed") from error
    except ValueError as error:  # of UUID, JSON, time and UTF-8 alike
        raise Invalid(f"malformed: {type(error).__name__}", code="event.malformed") from error
    if not isinstance(data, dict) or event.time.tzinfo is None or fields.get(b"specversion") != b"1.0":
        raise Invalid("not a CloudEvent of this bus", code="event.malformed")
    return event


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with microseconds and `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
