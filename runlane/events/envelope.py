"""The envelope of an event before it is on the bus: what an outbox row holds."""

import re
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane import names
from runlane.errors import Defect
from runlane.events.catalog import Leaf, PayloadT, require_publishable
from runlane.events.payloads import Payload
from runlane.events.scrub import scrub

ATTRIBUTE_NAME: Final = re.compile(r"[a-z0-9]{1,20}")
"""Grammar of CloudEvents attribute names (full match). Source: CloudEvents 1.0.2, Naming Conventions."""

_SUBJECT: Final = re.compile(r"[\x21-\x7e]{1,256}")


@dataclass(frozen=True, slots=True)
class Envelope:
    """One event: `data` is already scrubbed, `attributes` are CloudEvents extensions (all text)."""

    id: UUID
    type: str
    workspace_id: UUID
    subject: str
    data: dict[str, object]
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who caused an event, for the audit trail. `type`: api_key, worker, system …"""

    id: str
    type: str


def envelope(
    leaf: Leaf[PayloadT],
    payload: PayloadT,
    *,
    workspace_id: UUID,
    subject: str,
    ordinal: int | str = 0,
    cause: str | None = None,
    actor: Actor | None = None,
) -> Envelope:
    """Makes the envelope of one event; its id is the same each time it is made for the same occurrence.

    `ordinal` tells occurrences on one subject apart (the attempt of a job). `cause` names what one person's
    act set off in many places (`run`), so that sinks do not notify one by one.

    Raises:
        UnknownEvent: the leaf is reserved, or its twin is not in the catalog.
        Defect: the payload is not of this leaf, or the subject is no plain ASCII text without blanks.
    """
    require_publishable(leaf.name)
    if type(payload) is not leaf.payload:
        raise Defect(f"{leaf.name} carries {leaf.payload.__name__}, not {type(payload).__name__}")
    if not _SUBJECT.fullmatch(subject):
        raise Defect(f"{leaf.name}: bad subject {subject!r}")
    attributes: dict[str, str] = {}
    if cause is not None:
        attributes["cause"] = cause
    if actor is not None:
        attributes |= {"actorid": actor.id, "actortype": actor.type}
    return Envelope(
        id=names.event_id(leaf.name, subject, ordinal),
        type=leaf.name,
        workspace_id=workspace_id,
        subject=subject,
        data=_data(payload),
        attributes=attributes,
    )


def _data(payload: Payload) -> dict[str, object]:
    return dict(scrub(payload.model_dump(mode="json")))
