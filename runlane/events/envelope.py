"""The envelope of an event before it is on the bus: what an outbox row holds."""

import re
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane import names
from runlane.errors import Defect
from runlane.events.catalog import Leaf, PayloadT, require_publishable
from runlane.events.payloads import Payload
from runlane.events.redacted import scrub_data
from runlane.events.scrub import scrub_text

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
    """Who caused an event, for the audit trail. `type`: api_key, worker, system …

    `traceparent`: the W3C trace context of the request by which it was caused.
    """

    id: str
    type: str
    traceparent: str | None = None


def envelope(
    leaf: Leaf[PayloadT],
    payload: PayloadT,
    *,
    workspace_id: UUID,
    subject: str,
    ordinal: int | str = 0,
    cause: str | None = None,
    hops: int = 0,
    actor: Actor | None = None,
) -> Envelope:
    """Makes the envelope of one event; its id is the same each time it is made for the same occurrence.

    `ordinal` tells occurrences on one subject apart (the attempt of a job). `cause` names what one person's
    act set off in many places (`run`), so that sinks do not notify one by one. `hops` counts the runs that
    started each other by events up to this one; of a run that nobody's event started there are none.

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
    if hops:
        attributes["hops"] = str(hops)
    if actor is not None:
        attributes |= {"actorid": scrub_text(actor.id), "actortype": actor.type}
    if actor is not None and actor.traceparent is not None:
        attributes["traceparent"] = actor.traceparent
    return Envelope(
        id=names.event_id(leaf.name, subject, ordinal),
        type=leaf.name,
        workspace_id=workspace_id,
        subject=subject,
        data=_data(payload),
        attributes=attributes,
    )


def _data(payload: Payload) -> dict[str, object]:
    return dict(scrub_data(payload.model_dump(mode="json")))
