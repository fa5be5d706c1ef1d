"""The form of archived audit events: JSON Lines, gzip, with a manifest beside it. Pure.

The same events give the same bytes, so an archive that is written again after a crash changes nothing.
"""

import gzip
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from runlane.errors import Defect

ARCHIVE_EVENTS: Final = 10_000
"""Events of one object."""

FORMAT: Final = "runlane.audit/1"

_FIELDS: Final = (
    "audit_id", "workspace_id", "event_id", "bus_seq", "type", "subject", "actor_id", "actor_type", "outcome",
    "severity", "data", "occurred_at", "recorded_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Archive:
    """An object and its manifest. `sha256` is that of `body`."""

    first_id: int
    last_id: int
    key: str
    body: bytes
    sha256: bytes
    manifest_key: str
    manifest: bytes


def archive_of(rows: Sequence[Mapping[str, object]]) -> Archive:
    """Makes the archive of audit events, which are rows in the order of their ids.

    Raises:
        Defect: there are none.
    """
    if not rows:
        raise Defect("an archive has at least one event")
    first, last = rows[0], rows[-1]
    first_id, last_id, began = first["audit_id"], last["audit_id"], first["recorded_at"]
    if not (isinstance(first_id, int) and isinstance(last_id, int) and isinstance(began, datetime)):
        raise Defect("not rows of audit_events")
    lines = b"".join(orjson.dumps({n: row[n] for n in _FIELDS}, default=str) + b"\n" for row in rows)
    body = gzip.compress(lines, mtime=0)
    digest = hashlib.sha256(body).digest()
    name = f"{began:%Y/%m/%d}/{first_id:020d}-{last_id:020d}"
    manifest = {
        "format": FORMAT,
        "object": f"{name}.ndjson.gz",
        "events": len(rows),
        "first_id": first_id,
        "last_id": last_id,
        "first_recorded_at": first["recorded_at"],
        "last_recorded_at": last["recorded_at"],
        "size_bytes": len(body),
        "sha256": digest.hex(),
    }
    return Archive(
        first_id=first_id,
        last_id=last_id,
        key=f"{name}.ndjson.gz",
        body=body,
        sha256=digest,
        manifest_key=f"{name}.manifest.json",
        manifest=orjson.dumps(manifest, option=orjson.OPT_INDENT_2),
    )
