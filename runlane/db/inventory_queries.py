"""What a person reads of the inventory: assets, services, URLs, findings; what is gone only if asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, FromClause, case, func, select
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by, array
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import Text

from runlane.db.inventory_tables import asset_services, assets, technologies, urls, vulnerabilities
from runlane.db.paging import Orders, Page, PageRequest, Statement, fetch_page
from runlane.tools.vulnerabilities import Severity

_SEVERITY_RANK: Final = case(
    *((vulnerabilities.c.severity == name, rank) for rank, name in enumerate(Severity)), else_=0
)

ASSET_ORDERS: Final[Orders] = {
    "created_at": (assets.c.id,),
    "last_seen": (assets.c.last_seen, assets.c.id),
    "value": (assets.c.value, assets.c.id),
}
SERVICE_ORDERS: Final[Orders] = {
    "created_at": (asset_services.c.id,),
    "last_seen": (asset_services.c.last_seen, asset_services.c.id),
    "port": (asset_services.c.port, asset_services.c.id),
}
URL_ORDERS: Final[Orders] = {"created_at": (urls.c.id,), "last_seen": (urls.c.last_seen, urls.c.id)}
FINDING_ORDERS: Final[Orders] = {
    "created_at": (vulnerabilities.c.id,),
    "last_seen": (vulnerabilities.c.last_seen, vulnerabilities.c.id),
    "severity": (_SEVERITY_RANK, vulnerabilities.c.id),
}


@dataclass(frozen=True, slots=True)
class InventoryFilter:
    """Which part of the inventory a reader asks for; an empty field is no condition."""

    target_id: UUID | None = None
    asset_id: UUID | None = None
    run_id: UUID | None = None
    """The run that saw it first."""
    with_gone: bool = False
    severity: Sequence[str] = ()
    status: Sequence[str] = ()


async def list_assets(
    conn: AsyncConnection, workspace_id: UUID, wanted: InventoryFilter, page: PageRequest
) -> Page:
    """Names and addresses of a workspace."""
    columns = [c for c in assets.c if c.name not in {"workspace_id", "missed"}]
    statement = select(*columns).where(assets.c.workspace_id == workspace_id)
    statement = _narrow(statement, assets, wanted)
    if wanted.asset_id is not None:
        statement = statement.where(assets.c.id == wanted.asset_id)
    if not wanted.with_gone:
        statement = statement.where(assets.c.gone_at.is_(None))
    return await fetch_page(conn, statement, ASSET_ORDERS, page)


async def list_services(
    conn: AsyncConnection, workspace_id: UUID, wanted: InventoryFilter, page: PageRequest
) -> Page:
    """Open ports of a workspace with what answers there, the asset's name as `host`, and `technologies`."""
    columns = [c for c in asset_services.c if c.name not in {"workspace_id", "missed"}]
    statement = _with_asset(select(*columns, _technologies().label("technologies")), asset_services)
    statement = _narrow(
        statement.where(asset_services.c.workspace_id == workspace_id), asset_services, wanted
    )
    if not wanted.with_gone:
        statement = statement.where(asset_services.c.closed_at.is_(None))
    return await fetch_page(conn, statement, SERVICE_ORDERS, page)


async def list_urls(
    conn: AsyncConnection, workspace_id: UUID, wanted: InventoryFilter, page: PageRequest
) -> Page:
    """URLs of a workspace, with the asset's name as `host`."""
    columns = [c for c in urls.c if c.name not in {"workspace_id", "missed", "url_sha256"}]
    statement = _with_asset(select(*columns), urls).where(urls.c.workspace_id == workspace_id)
    statement = _narrow(statement, urls, wanted)
    if not wanted.with_gone:
        statement = statement.where(urls.c.gone_at.is_(None))
    return await fetch_page(conn, statement, URL_ORDERS, page)


async def list_findings(
    conn: AsyncConnection, workspace_id: UUID, wanted: InventoryFilter, page: PageRequest
) -> Page:
    """Findings of a workspace in every status unless narrowed, with the asset's name as `host`."""
    columns = [c for c in vulnerabilities.c if c.name not in {"workspace_id", "missed", "fingerprint"}]
    statement = _with_asset(select(*columns), vulnerabilities)
    statement = statement.where(vulnerabilities.c.workspace_id == workspace_id)
    statement = _narrow(statement, vulnerabilities, wanted)
    if wanted.severity:
        statement = statement.where(vulnerabilities.c.severity.in_(wanted.severity))
    if wanted.status:
        statement = statement.where(vulnerabilities.c.status.in_(wanted.status))
    return await fetch_page(conn, statement, FINDING_ORDERS, page)


def _with_asset(statement: Statement, table: FromClause) -> Statement:
    same_asset = (assets.c.workspace_id == table.c.workspace_id) & (assets.c.id == table.c.asset_id)
    return statement.add_columns(assets.c.value.label("host"), assets.c.target_id).join(assets, same_asset)


def _narrow(statement: Statement, table: FromClause, wanted: InventoryFilter) -> Statement:
    if wanted.target_id is not None:
        statement = statement.where(assets.c.target_id == wanted.target_id)
    if wanted.asset_id is not None and "asset_id" in table.c:
        statement = statement.where(table.c.asset_id == wanted.asset_id)
    if wanted.run_id is not None:
        statement = statement.where(table.c.run_id == wanted.run_id)
    return statement


def _technologies() -> ColumnElement[list[str]]:
    shown = technologies.c.name + func.coalesce(" " + technologies.c.version, "")
    listed = func.array_agg(aggregate_order_by(shown, technologies.c.name), type_=ARRAY(Text))
    return (
        select(func.coalesce(listed, array([], type_=Text)))
        .where(
            technologies.c.workspace_id == asset_services.c.workspace_id,
            technologies.c.service_id == asset_services.c.id,
        )
        .scalar_subquery()
    )
