"""What a person reads of the pictures that runs have taken."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane.db.inventory_queries import InventoryFilter
from runlane.db.inventory_tables import asset_services, assets, screenshots
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.errors import NotFound

PICTURE_ORDERS: Final[Orders] = {
    "created_at": (screenshots.c.id,),
    "observed_at": (screenshots.c.observed_at, screenshots.c.id),
}
_HIDDEN: Final = frozenset({"workspace_id", "object_key", "sha256"})


@dataclass(frozen=True, slots=True)
class StoredPicture:
    """Where a picture is, and what it must be."""

    key: str
    size_bytes: int
    sha256: bytes


async def list_pictures(
    conn: AsyncConnection, workspace_id: UUID, wanted: InventoryFilter, page: PageRequest
) -> Page:
    """Pictures of a workspace with the asset's name as `host`; `wanted.run_id` is the run that took them."""
    columns = [column for column in screenshots.c if column.name not in _HIDDEN]
    of_service = (asset_services.c.workspace_id == screenshots.c.workspace_id) & (
        asset_services.c.id == screenshots.c.service_id
    )
    of_asset = (assets.c.workspace_id == asset_services.c.workspace_id) & (
        assets.c.id == asset_services.c.asset_id
    )
    statement = (
        select(*columns, assets.c.id.label("asset_id"), assets.c.value.label("host"), assets.c.target_id)
        .join(asset_services, of_service)
        .join(assets, of_asset)
        .where(screenshots.c.workspace_id == workspace_id)
    )
    for column, value in (
        (assets.c.target_id, wanted.target_id),
        (assets.c.id, wanted.asset_id),
        (screenshots.c.run_id, wanted.run_id),
    ):
        if value is not None:
            statement = statement.where(column == value)
    return await fetch_page(conn, statement, PICTURE_ORDERS, page)


async def find_picture(conn: AsyncConnection, workspace_id: UUID, picture_id: UUID) -> StoredPicture:
    """Where a picture is.

    Raises:
        NotFound: `screenshot.not_found`.
    """
    columns = (screenshots.c.object_key, screenshots.c.size_bytes, screenshots.c.sha256)
    statement = select(*columns).where(
        screenshots.c.workspace_id == workspace_id, screenshots.c.id == picture_id
    )
    row = (await conn.execute(statement)).one_or_none()
    if row is None:
        raise NotFound("no such screenshot", code="screenshot.not_found")
    return StoredPicture(row.object_key, row.size_bytes, row.sha256)
