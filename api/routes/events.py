"""Events of the bus, and how its lanes are."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from api.deps import ForPlatform, ReadEvents, no_query
from api.event_schemas import BusStatus, Event, EventPage, EventsQuery, PlatformEventsQuery
from api.problems import problems
from runlane.db import event_lists, lane_status
from runlane.db.engine import driver
from runlane.errors import NotFound

router = APIRouter(tags=["events"])

Sequence = Annotated[int, Path(ge=1, lt=2**62, description="place of an event on the bus")]


@router.get("/events")
async def index(access: ReadEvents, query: Annotated[EventsQuery, Query()]) -> EventPage:
    """Lists events, the newest first: all of the last 7 days, before that what is audited."""
    found = await event_lists.list_events(driver(access.conn), access.workspace_id, query.events, query.page)
    return EventPage.model_validate(found, from_attributes=True)


@router.get("/events/{sequence}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadEvents, sequence: Sequence) -> Event:
    """Shows one event."""
    found = await event_lists.get_event(driver(access.conn), access.workspace_id, sequence)
    return Event.model_validate(found)


@router.get("/platform/events")
async def everywhere(access: ForPlatform, query: Annotated[PlatformEventsQuery, Query()]) -> EventPage:
    """Lists events of all workspaces, or of one; needs a platform key."""
    found = await event_lists.list_events(access.conn, query.workspace, query.events, query.page)
    return EventPage.model_validate(found, from_attributes=True)


@router.get("/platform/lanes", dependencies=[Depends(no_query)])
async def lanes(access: ForPlatform) -> BusStatus:
    """Shows how far each lane is behind the bus, and how it fares; needs a platform key."""
    return BusStatus.model_validate(await lane_status.read_bus(access.conn), from_attributes=True)
