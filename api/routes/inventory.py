"""The inventory: what scans have found."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from api.deps import PageQuery, ReadInventory
from api.inventory_schemas import Asset, Finding, FindingStatus, Service, Severity, Url
from api.schemas import PageOf
from runlane.db.inventory_queries import (
    InventoryFilter,
    list_assets,
    list_findings,
    list_services,
    list_urls,
)

router = APIRouter(tags=["inventory"])


class InventoryQuery(PageQuery):
    """Which part of the inventory."""

    target: UUID | None = Field(None, description="id of a target")
    asset: UUID | None = Field(None, description="id of an asset")
    run: UUID | None = Field(None, description="id of the run that saw it first")
    gone: bool = Field(False, description="also what later scans no longer saw")

    @property
    def wanted(self) -> InventoryFilter:
        """The filter as the queries know it."""
        return InventoryFilter(self.target, self.asset, self.run, self.gone)


class FindingQuery(PageQuery):
    """Which findings."""

    target: UUID | None = Field(None, description="id of a target")
    asset: UUID | None = Field(None, description="id of an asset")
    run: UUID | None = Field(None, description="id of the run that saw it first")
    severity: list[Severity] = Field(default_factory=list, max_length=5, description="may be repeated")
    status: list[FindingStatus] = Field(default_factory=list, max_length=4, description="may be repeated")

    @property
    def wanted(self) -> InventoryFilter:
        """The filter as the queries know it."""
        return InventoryFilter(self.target, self.asset, self.run, severity=self.severity, status=self.status)


Wanted = Annotated[InventoryQuery, Query()]


@router.get("/assets")
async def assets(access: ReadInventory, query: Wanted) -> PageOf[Asset]:
    """Lists names and addresses; sorts by `created_at`, `last_seen` or `value`."""
    page = await list_assets(access.conn, access.workspace_id, query.wanted, query.page)
    return PageOf[Asset].model_validate(page, from_attributes=True)


@router.get("/services")
async def services(access: ReadInventory, query: Wanted) -> PageOf[Service]:
    """Lists open ports and what answers there; sorts by `created_at`, `last_seen` or `port`."""
    page = await list_services(access.conn, access.workspace_id, query.wanted, query.page)
    return PageOf[Service].model_validate(page, from_attributes=True)


@router.get("/urls")
async def urls(access: ReadInventory, query: Wanted) -> PageOf[Url]:
    """Lists URLs; sorts by `created_at` or `last_seen`."""
    page = await list_urls(access.conn, access.workspace_id, query.wanted, query.page)
    return PageOf[Url].model_validate(page, from_attributes=True)


@router.get("/findings")
async def findings(access: ReadInventory, query: Annotated[FindingQuery, Query()]) -> PageOf[Finding]:
    """Lists findings; sorts by `created_at`, `last_seen` or `severity`."""
    page = await list_findings(access.conn, access.workspace_id, query.wanted, query.page)
    return PageOf[Finding].model_validate(page, from_attributes=True)
