"""Targets: what a workspace asks to have scanned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.db import gathering, outbox
from runlane.db.engine import driver
from runlane.db.networks import keep_network, reach_of
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.tables import targets
from runlane.errors import Conflict, Invalid, NotFound
from runlane.events import EVENT_CATALOG, Actor, envelope
from runlane.events.payloads import TargetCreated
from runlane.tools.targets import parse_target

ORDERS: Final[Orders] = {"created_at": (targets.c.id,), "value": (targets.c.value, targets.c.id)}

_COLUMNS: Final = (
    targets.c.id,
    targets.c.kind,
    targets.c.value,
    targets.c.network_id,
    targets.c.tags,
    targets.c.created_at,
)

_INSERT: Final = """
INSERT INTO targets (workspace_id, kind, value, network_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace_id, value, network_id) WHERE deleted_at IS NULL DO NOTHING
RETURNING id, kind, value, network_id, tags, created_at
"""


@dataclass(frozen=True, slots=True)
class NewTarget:
    """What is to be a target. `network`: name or id of the internal network that it is in; None: in none."""

    text: str
    network: str | None = None


@dataclass(frozen=True, slots=True)
class TargetFilter:
    """Which targets a reader asks for; an empty field is no condition."""

    value: str | None = None
    tags: Sequence[str] = ()
    network: str | None = None


async def add_target(
    conn: AsyncConnection, workspace_id: UUID, new: NewTarget, actor: Actor | None = None
) -> dict[str, object]:
    """Adds a target in its one spelling and says so on the bus, in the transaction of the caller.

    The same address in another network is another target.

    Raises:
        Invalid: `target.*`, it is not a target, or not one that may be scanned there.
        NotFound: `network.not_found`.
        Conflict: `target.duplicate`.
    """
    raw = driver(conn)
    reach = await reach_of(raw, workspace_id, new.network)
    try:
        target = parse_target(new.text, reach.cidrs, is_bound=reach.is_bound)
    except Invalid as error:
        raise Invalid(error.detail, code=error.code, fields={"value": error.detail}) from error
    row = await raw.fetchrow(_INSERT, workspace_id, target.kind, target.value, reach.network_id)
    if row is None:
        detail = f"{target.value} is a target already"
        raise Conflict(detail, code="target.duplicate", fields={"value": detail})
    payload = TargetCreated(
        target_id=row["id"], kind=target.kind, value=target.value, network_id=reach.network_id
    )
    created = envelope(
        EVENT_CATALOG.target.created,
        payload,
        workspace_id=workspace_id,
        subject=names.target_subject(row["id"]),
        actor=actor,
    )
    await outbox.insert(raw, [created])
    await gathering.gather(raw, workspace_id, EVENT_CATALOG.target.created.name, [row["id"]])
    return dict(row)


async def list_targets(
    conn: AsyncConnection, workspace_id: UUID, wanted: TargetFilter, page: PageRequest
) -> Page:
    """Targets of a workspace that were not deleted, with all these tags, in that network, of that spelling.

    Raises:
        NotFound: `network.not_found`.
    """
    statement = select(*_COLUMNS).where(
        targets.c.workspace_id == workspace_id, targets.c.deleted_at.is_(None)
    )
    if wanted.value is not None:
        statement = statement.where(targets.c.value == wanted.value)
    if wanted.tags:
        statement = statement.where(targets.c.tags.contains(list(wanted.tags)))
    if wanted.network is not None:
        network_id = await keep_network(driver(conn), workspace_id, wanted.network)
        statement = statement.where(targets.c.network_id == network_id)
    return await fetch_page(conn, statement, ORDERS, page)


async def get_target(conn: AsyncConnection, workspace_id: UUID, target_id: UUID) -> dict[str, object]:
    """One target.

    Raises:
        NotFound: `target.not_found`.
    """
    statement = select(*_COLUMNS).where(
        targets.c.workspace_id == workspace_id, targets.c.id == target_id, targets.c.deleted_at.is_(None)
    )
    row = (await conn.execute(statement)).mappings().one_or_none()
    if row is None:
        raise NotFound("no such target", code="target.not_found")
    return dict(row)
