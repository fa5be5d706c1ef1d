"""The figures of the bus, for a scraper with a platform key."""

from fastapi import APIRouter, Depends, Response

from api.deps import ForPlatform, no_query
from runlane.db import lane_status
from runlane.db.bus_figures import figures_of
from runlane.db.publish_figures import publish_figures
from runlane.exposition import CONTENT_TYPE, render

router = APIRouter(tags=["health"])


@router.get("/platform/metrics", dependencies=[Depends(no_query)], response_class=Response)
async def metrics(access: ForPlatform) -> Response:
    """Answers figures in the text format of Prometheus; needs a platform key."""
    bus = await lane_status.read_bus(access.conn)
    text = render([*figures_of(bus), *publish_figures()])
    return Response(text, media_type=CONTENT_TYPE)
