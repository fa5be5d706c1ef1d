"""Pictures of web services: which there are, and each as a PNG."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import Field

from api.deps import Opened, PageQuery, ReadInventory, no_query
from api.problems import problems
from api.schemas import Answer, PageOf
from runlane.db.inventory_queries import InventoryFilter
from runlane.db.picture_queries import find_picture, list_pictures
from runlane.errors import Conflict, NotFound
from runlane.storage import CorruptObject

router = APIRouter(prefix="/screenshots", tags=["inventory"])


class Screenshot(Answer):
    """A picture that a run has taken of a web service."""

    id: UUID
    run_id: UUID
    service_id: UUID
    job_id: UUID
    asset_id: UUID
    target_id: UUID
    host: str
    url: str
    width: int
    height: int
    size_bytes: int
    observed_at: datetime


class ScreenshotQuery(PageQuery):
    """Which pictures."""

    target: UUID | None = Field(None, description="id of a target")
    asset: UUID | None = Field(None, description="id of an asset")
    run: UUID | None = Field(None, description="id of the run that took it")

    @property
    def wanted(self) -> InventoryFilter:
        """The filter as the queries know it."""
        return InventoryFilter(self.target, self.asset, self.run)


@router.get("")
async def screenshots(
    access: ReadInventory, query: Annotated[ScreenshotQuery, Query()]
) -> PageOf[Screenshot]:
    """Lists pictures of web services; sorts by `created_at` or `observed_at`."""
    page = await list_pictures(access.conn, access.workspace_id, query.wanted, query.page)
    return PageOf[Screenshot].model_validate(page, from_attributes=True)


@router.get(
    "/{screenshot_id}/image",
    dependencies=[Depends(no_query)],
    response_class=Response,
    responses={200: {"content": {"image/png": {}}}, **problems(NotFound, Conflict)},
)
async def image(
    access: ReadInventory,
    opened: Opened,
    screenshot_id: Annotated[UUID, Path(description="id of a screenshot")],
) -> Response:
    """Downloads a picture."""
    stored = await find_picture(access.conn, access.workspace_id, screenshot_id)
    try:
        png = await opened.pictures.load(stored.key, size_bytes=stored.size_bytes, sha256=stored.sha256)
    except CorruptObject as error:
        raise Conflict("the picture cannot be read", code="screenshot.unreadable") from error
    # a hostile host has drawn it: it is an image and nothing else
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    return Response(png, media_type="image/png", headers=headers)
