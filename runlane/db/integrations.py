"""Endpoints outside of the platform: connected, changed, switched off and on, and disconnected by people.

A disconnected endpoint keeps its row, so that the log of its deliveries can be read; its secrets are removed
at once, and what was still to be delivered is skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.db import integration_secrets, outbox
from runlane.db.acts import Act
from runlane.db.calling import call
from runlane.db.integration_secrets import Place
from runlane.db.integration_tables import integrations
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection, Record
from runlane.errors import Conflict, Invalid, NotFound, Stale
from runlane.events import EVENT_CATALOG, Severity, envelope
from runlane.events.delivery_payloads import IntegrationPayload, IntegrationSettingsUpdated
from runlane.integrations import Kind, filter_faults
from runlane.keyring import Keyring

MAX_INTEGRATIONS: Final = 100
"""Of a workspace."""

ORDERS: Final[Orders] = {"created_at": (integrations.c.id,), "name": (integrations.c.name, integrations.c.id)}

_SHOWN: Final = (
    "id", "workspace_id", "kind", "name", "config", "events", "least_severity", "is_ordered", "status",
    "disabled_reason", "version", "created_by", "created_at", "failures", "failing_since", "delivered_at",
    "is_probing", "paused_until",
)  # fmt: skip
_COLUMNS: Final = ", ".join(_SHOWN)


@dataclass(frozen=True, slots=True)
class NewIntegration:
    """An endpoint to connect. `events`: types, or domains with `.*`; none: all that is delivered at all."""

    workspace_id: UUID
    kind: Kind
    name: str
    config: Mapping[str, object]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    events: Sequence[str] = ()
    least_severity: Severity = Severity.INFO
    is_ordered: bool = False
    signing_key: str | None = field(default=None, repr=False)
    """Of a kind whose deliveries are signed."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What a caller wants changed, and the version that this was made from. None: it stays."""

    version: int
    name: str | None = None
    config: Mapping[str, object] | None = None
    secrets: Mapping[str, str] | None = field(default=None, repr=False)
    events: Sequence[str] | None = None
    least_severity: Severity | None = None
    is_ordered: bool | None = None


_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('integrations/' || $1::uuid::text, 0))"

_COUNT: Final = "SELECT count(*)::int FROM integrations WHERE workspace_id = $1 AND deleted_at IS NULL"

_IS_TAKEN: Final = """
SELECT EXISTS (SELECT FROM integrations
               WHERE workspace_id = $1 AND name = $2 AND deleted_at IS NULL AND id IS DISTINCT FROM $3)
"""

_INSERT: Final = f"""
INSERT INTO integrations (workspace_id, kind, name, config, events, least_severity, is_ordered, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING {_COLUMNS}
"""

_FIND: Final = f"""
SELECT {_COLUMNS} FROM integrations WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL
"""

_HOLD: Final = f"{_FIND} FOR NO KEY UPDATE"

_EDIT: Final = f"""
UPDATE integrations
SET name = $3, config = $4, events = $5, least_severity = $6, is_ordered = $7, version = version + 1
WHERE workspace_id = $1 AND id = $2
RETURNING {_COLUMNS}
"""

_DISABLE: Final = f"""
UPDATE integrations SET status = 'disabled', disabled_reason = 'person', version = version + 1
WHERE workspace_id = $1 AND id = $2 AND status = 'active'
RETURNING {_COLUMNS}
"""

# It begins anew: one delivery at a time until one is accepted, and five days until it is given up again.
_ENABLE: Final = f"""
UPDATE integrations
SET status = 'active', disabled_reason = NULL, is_probing = true, failures = 0, failing_since = NULL,
    paused_until = NULL, version = version + 1
WHERE workspace_id = $1 AND id = $2 AND status = 'disabled'
RETURNING {_COLUMNS}
"""

_TOUCH: Final = f"""
UPDATE integrations SET version = version + 1 WHERE workspace_id = $1 AND id = $2 RETURNING {_COLUMNS}
"""

_DELETE: Final = f"""
UPDATE integrations SET deleted_at = clock_timestamp(), version = version + 1
WHERE workspace_id = $1 AND id = $2
RETURNING {_COLUMNS}
"""

SKIP: Final = """
UPDATE deliveries SET state = 'skipped', ended_at = clock_timestamp(), error = $2
WHERE integration_id = $1 AND state = 'pending'
"""
"""What is not delivered because its endpoint is not there, or switched off. Index: `deliveries_pending`."""


async def connect(conn: Connection, wanted: NewIntegration, keyring: Keyring, act: Act) -> dict[str, object]:
    """Connects an endpoint whose configuration its transport has passed.

    Raises:
        Invalid: `integration.events`, with every entry that means nothing.
        Conflict: `integration.duplicate`, the name is taken; `integration.too_many`.
        Unavailable: `secret.no_key`.
    """
    _check_events(wanted.kind, wanted.events)
    await conn.execute(_LOCK, wanted.workspace_id)
    if await conn.fetchval(_COUNT, wanted.workspace_id) >= MAX_INTEGRATIONS:
        detail = f"a workspace has at most {MAX_INTEGRATIONS} integrations"
        raise Conflict(detail, code="integration.too_many")
    await _check_name(conn, wanted.workspace_id, wanted.name, None)
    (row,) = await conn.fetch(
        _INSERT,
        wanted.workspace_id,
        wanted.kind,
        wanted.name,
        dict(wanted.config),
        list(wanted.events),
        wanted.least_severity,
        wanted.is_ordered,
        act.name,
    )
    place = Place(wanted.workspace_id, row["id"])
    await integration_secrets.put_secrets(conn, place, wanted.secrets, keyring)
    if wanted.signing_key is not None:
        await integration_secrets.put_signing_key(conn, place, wanted.signing_key, keyring)
    await _say(conn, row, act, "connected")
    return dict(row)


async def edit(conn: Connection, of: Place, wanted: Edit, keyring: Keyring, act: Act) -> dict[str, object]:
    """Changes an endpoint, for what is delivered from then on.

    Raises:
        NotFound: `integration.not_found`.
        Stale: `etag.stale`, it was changed since that version.
        Invalid: `integration.secrets`, another configuration without the secrets: whoever may not read them
            must not have them sent elsewhere.
        Invalid, Conflict, Unavailable: as `connect`.
    """
    row = await _hold(conn, of)
    if row["version"] != wanted.version:
        raise Stale(f"the integration was changed: it is version {row['version']} now")
    name, events = wanted.name or row["name"], row["events"] if wanted.events is None else wanted.events
    now = {
        "name": name,
        "config": row["config"] if wanted.config is None else dict(wanted.config),
        "events": list(events),
        "least_severity": wanted.least_severity or row["least_severity"],
        "is_ordered": row["is_ordered"] if wanted.is_ordered is None else wanted.is_ordered,
    }
    _check_events(Kind(row["kind"]), events)
    if now["config"] != row["config"] and wanted.secrets is None:
        await _check_no_secrets(conn, of)
    await conn.execute(_LOCK, of.workspace_id)
    await _check_name(conn, of.workspace_id, name, of.integration_id)
    (edited,) = await conn.fetch(_EDIT, of.workspace_id, of.integration_id, *now.values())
    if wanted.secrets is not None:
        await integration_secrets.put_secrets(conn, of, wanted.secrets, keyring)
    changed = [name for name, value in now.items() if value != row[name]]
    changed += ["secrets"] if wanted.secrets is not None else []
    await _say_updated(conn, edited, act, changed)
    return dict(edited)


async def disconnect(conn: Connection, of: Place, act: Act) -> dict[str, object]:
    """Disconnects an endpoint: its secrets are removed, and what was still to be delivered is skipped.

    Raises:
        NotFound: `integration.not_found`.
    """
    await _hold(conn, of)
    (row,) = await conn.fetch(_DELETE, of.workspace_id, of.integration_id)
    await integration_secrets.forget(conn, of)
    await conn.execute(SKIP, of.integration_id, "the integration was disconnected")
    await _say(conn, row, act, "disconnected")
    return dict(row)


async def disable(conn: Connection, of: Place, act: Act) -> dict[str, object]:
    """Switches an endpoint off: what it would get is noted as skipped. Harmless to repeat.

    Raises:
        NotFound: `integration.not_found`.
    """
    found = await _hold(conn, of)
    row = await conn.fetchrow(_DISABLE, of.workspace_id, of.integration_id)
    if row is None:
        return dict(found)
    await conn.execute(SKIP, of.integration_id, "the integration was disabled")
    await _say_updated(conn, row, act, ["status"])
    return dict(row)


async def enable(conn: Connection, of: Place, act: Act) -> dict[str, object]:
    """Switches an endpoint on: it gets one delivery at a time until it accepts one. Harmless to repeat.

    Raises:
        NotFound: `integration.not_found`.
    """
    found = await _hold(conn, of)
    row = await conn.fetchrow(_ENABLE, of.workspace_id, of.integration_id)
    if row is None:
        return dict(found)
    await call(conn, [of.integration_id])
    await _say_updated(conn, row, act, ["status"])
    return dict(row)


async def rotate_signing(
    conn: Connection, of: Place, key: str, keyring: Keyring, act: Act
) -> dict[str, object]:
    """Gives an endpoint another key to sign with; the one before signs along for a day.

    Raises:
        NotFound: `integration.not_found`.
        Conflict: `integration.unsigned`, deliveries of its kind are not signed.
        Unavailable: `secret.no_key`.
    """
    found = await _hold(conn, of)
    if found["kind"] != Kind.WEBHOOK:
        raise Conflict("only deliveries of webhooks are signed", code="integration.unsigned")
    await integration_secrets.put_signing_key(conn, of, key, keyring)
    (row,) = await conn.fetch(_TOUCH, of.workspace_id, of.integration_id)
    await _say_updated(conn, row, act, ["signing"])
    return dict(row)


async def get_integration(conn: Connection, of: Place) -> dict[str, object]:
    """One endpoint.

    Raises:
        NotFound: `integration.not_found`.
    """
    row = await conn.fetchrow(_FIND, of.workspace_id, of.integration_id)
    if row is None:
        raise _not_found()
    return dict(row)


async def list_integrations(conn: AsyncConnection, workspace_id: UUID, page: PageRequest) -> Page:
    """Endpoints of a workspace that are connected."""
    shown = [integrations.c[name] for name in _SHOWN]
    statement = select(*shown).where(
        integrations.c.workspace_id == workspace_id, integrations.c.deleted_at.is_(None)
    )
    return await fetch_page(conn, statement, ORDERS, page)


def _check_events(kind: Kind, events: Sequence[str]) -> None:
    if faults := filter_faults(kind, events):
        raise Invalid("some of the events mean nothing here", code="integration.events", fields=faults)


async def _check_name(conn: Connection, workspace_id: UUID, name: str, own: UUID | None) -> None:
    if await conn.fetchval(_IS_TAKEN, workspace_id, name, own):
        detail = "there is an integration of that name"
        raise Conflict(detail, code="integration.duplicate", fields={"name": detail})


async def _check_no_secrets(conn: Connection, of: Place) -> None:
    if await integration_secrets.has_any(conn, of):
        detail = "say its secrets again when its configuration changes"
        raise Invalid(detail, code="integration.secrets", fields={"secrets": detail})


async def _hold(conn: Connection, of: Place) -> Record:
    row = await conn.fetchrow(_HOLD, of.workspace_id, of.integration_id)
    if row is None:
        raise _not_found()
    return row


async def _say(conn: Connection, row: Record, act: Act, what: str) -> None:
    tree = EVENT_CATALOG.integration
    leaf = tree.connected if what == "connected" else tree.disconnected
    payload = IntegrationPayload(integration_id=row["id"], kind=row["kind"], name=row["name"])
    subject = names.integration_subject(row["id"])
    told = envelope(leaf, payload, workspace_id=row["workspace_id"], subject=subject, actor=act.actor)
    await outbox.insert(conn, [told])


async def _say_updated(conn: Connection, row: Record, act: Act, changes: Sequence[str]) -> None:
    payload = IntegrationSettingsUpdated(
        integration_id=row["id"], kind=row["kind"], name=row["name"], changes=tuple(changes)
    )
    told = envelope(
        EVENT_CATALOG.integration.settings.updated,
        payload,
        workspace_id=row["workspace_id"],
        subject=names.integration_subject(row["id"]),
        ordinal=row["version"],
        actor=act.actor,
    )
    await outbox.insert(conn, [told])


def _not_found() -> NotFound:
    return NotFound("no such integration", code="integration.not_found")
