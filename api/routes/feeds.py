"""Streams: events of the workspace, and notifications of the caller, as server-sent events."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from api.deps import Caller, Opened
from api.feeds import FeedHub
from api.problems import problems
from api.resources import Resources
from api.streams import FeedResponse, FeedStream
from runlane.db.feeds import Wanted
from runlane.db.keys import Principal, Scope
from runlane.errors import Conflict, Forbidden, Unavailable
from runlane.events import Severity

router = APIRouter()

_MAX_ID = 19
"""Digits of a number of 64 bits."""

LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=100, description="the last id that was received")
]


class FeedQuery(BaseModel):
    """What of a feed is followed, from where."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: list[str] = Field(
        default_factory=list,
        max_length=20,
        description="only events of these types, or whose types begin so (`job`, `workflow.run`)",
    )
    severity: Severity = Field(default=Severity.NONE, description="only events at least this severe")
    last_event_id: str | None = Field(
        default=None, max_length=100, description="as the header `Last-Event-ID`, which goes before it"
    )


FeedOf = Annotated[FeedQuery, Query()]


@router.get(
    "/events/stream",
    tags=["events"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}, **problems(Conflict, Unavailable)},
)
async def events(
    principal: Caller, opened: Opened, query: FeedOf, last_event_id: LastEventId = None
) -> StreamingResponse:
    """Streams the events of the workspace. Who comes back with the last id misses none and gets none twice.

    `resync` says that what was missed is not there any more, or is too much.
    """
    principal.require(Scope.EVENTS_READ)
    return _stream(principal, opened, opened.events, query, last_event_id)


@router.get(
    "/notifications/stream",
    tags=["notifications"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}, **problems(Conflict, Unavailable)},
)
async def notifications(
    principal: Caller, opened: Opened, query: FeedOf, last_event_id: LastEventId = None
) -> StreamingResponse:
    """Streams the caller's notifications as they are written; a digest that grew comes again.

    `resync` says that what was missed is not there any more, or is too much: the list has it.
    """
    principal.require(Scope.NOTIFICATIONS_READ)
    return _stream(principal, opened, opened.notifications, query, last_event_id, principal.name)


def _stream(
    principal: Principal,
    opened: Resources,
    hub: FeedHub,
    query: FeedQuery,
    last_event_id: str | None,
    recipient: str | None = None,
) -> StreamingResponse:
    if principal.workspace_id is None:
        raise Forbidden("a platform key has no workspace", code="key.scope")
    wanted = Wanted(principal.workspace_id, recipient, tuple(query.type), query.severity)
    hub.require_room(wanted)
    resume = _number(last_event_id if last_event_id is not None else query.last_event_id)
    return FeedResponse(FeedStream(opened, hub, principal, wanted, resume).events())


def _number(text: str | None) -> int | None:
    """The number that an id is; -1 for what is none, as the feed has no such number."""
    if not text:
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_ID else -1
