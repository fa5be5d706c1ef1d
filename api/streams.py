"""Streams of a feed as server-sent events: what was missed, then what comes, until either side has enough."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import structlog
from fastapi.responses import StreamingResponse
from starlette.types import Message, Send

from api.feeds import CHUNK, Farewell, FeedHub, Follower
from api.resources import Resources
from runlane.db import keys
from runlane.db.engine import DRIVER_ERRORS, driver, is_lost, workspace_transaction
from runlane.db.feeds import FeedItem, Wanted
from runlane.db.keys import Principal
from runlane.errors import Unavailable

log = structlog.get_logger(__name__)

PING_S: Final = 15.0
"""Time between signs of life."""

KEY_S: Final = 5.0
"""Time between looks at the key: a stream does not outlive it for longer."""

SEND_S: Final = 30.0
"""A client that takes nothing for so long is sent away."""

LONGEST_S: Final = 3_600.0
"""Whoever follows longer has to ask again."""

RETRY_MS: Final = 3_000
"""When a browser comes back."""

MOST_MISSED: Final = 50_000
"""Numbers of a feed that are looked through for what was missed; who missed more reads the list."""

_AT_ONCE: Final = 100

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}
_RESYNC: Final = b"event: resync\ndata: {}\n"


class FeedResponse(StreamingResponse):
    """A stream that a client which does not read ends: it holds no place of others."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=_HEADERS)
        self._events = events

    async def stream_response(self, send: Send) -> None:
        """Sends until the end; what a client has not taken in time, it learns when it reads again."""

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(SEND_S):
                await send(message)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            await self._events.aclose()
            log.info("stream_client_is_slow")
            await send({"type": "http.response.body", "body": _RESYNC + b"\n", "more_body": False})
        finally:
            await self._events.aclose()


@dataclass(slots=True)
class FeedStream:
    """One caller that follows a feed. `resume`: the number it has come to, None at first, -1: no number."""

    resources: Resources
    hub: FeedHub
    principal: Principal
    wanted: Wanted
    resume: int | None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """What was missed, then what comes. `ready` and `resync` carry the number to go on from.

        It ends when the database goes away: whoever follows comes back, and misses nothing.
        """
        try:
            async with aclosing(self._events()) as events:
                async for chunk in events:
                    yield chunk
        except Unavailable:
            log.info("stream_interrupted", feed=self.hub.feed.name)
        except DRIVER_ERRORS as error:
            if not is_lost(error):
                raise
            log.info("stream_interrupted", feed=self.hub.feed.name)

    async def _events(self) -> AsyncGenerator[bytes, None]:
        ends_at = self.loop.time() + LONGEST_S
        async with self.hub.following(self.wanted) as follower:
            yield b"retry: %d\n" % RETRY_MS + b"\n"
            if self.resume is None:
                yield b"event: ready\nid: %d\ndata: {}\n\n" % follower.start
            elif self._is_unknown(self.resume, follower):
                yield _resync(follower.start)
            else:
                async for chunk in self._missed(self.resume, follower.start):
                    yield chunk
            async for chunk in self._live(follower, ends_at):
                yield chunk

    def _is_unknown(self, resume: int, follower: Follower) -> bool:
        is_gone = resume < follower.first - 1
        return is_gone or resume > follower.start or follower.start - resume > MOST_MISSED

    async def _missed(self, resume: int, until: int) -> AsyncIterator[bytes]:
        for first in range(resume + 1, until + 1, CHUNK):
            last = min(until, first + CHUNK - 1)
            async with workspace_transaction(self.resources.engine, self.wanted.workspace_id) as conn:
                items = await self.hub.feed.read(driver(conn), first, last, self.wanted)
            wanted = [self._event(item) for item in items if self.wanted.takes(item)]
            if wanted:
                yield b"".join(wanted)
        yield b"id: %d\n\n" % until

    async def _live(self, follower: Follower, ends_at: float) -> AsyncIterator[bytes]:
        key_at = self.loop.time()
        said_at = key_at
        while (now := self.loop.time()) < ends_at:
            if now - key_at >= KEY_S:
                if not await self._is_welcome():
                    return
                key_at = now
            items, farewell = await self._next(follower, min(PING_S, KEY_S))
            if items:
                yield b"".join(self._event(item) for item in items)
                said_at = self.loop.time()
            if farewell is Farewell.BEHIND:
                yield _resync(self.hub.at)
            if farewell is not None:
                return
            if self.loop.time() - said_at >= PING_S and follower.items.empty():
                # a sign of life, and how far the feed has come: nothing up to there was for this caller
                yield b": \nid: %d\n\n" % self.hub.at
                said_at = self.loop.time()

    async def _next(self, follower: Follower, for_s: float) -> tuple[list[FeedItem], Farewell | None]:
        items: list[FeedItem] = []
        try:
            async with asyncio.timeout(for_s):
                found = await follower.items.get()
        except TimeoutError:
            return items, None
        while not isinstance(found, Farewell):
            items.append(found)
            if len(items) >= _AT_ONCE or follower.items.empty():
                return items, None
            found = follower.items.get_nowait()
        return items, found

    async def _is_welcome(self) -> bool:
        async with self.resources.system_pool.acquire() as conn:
            return await keys.is_valid(conn, self.principal.key_id)

    def _event(self, item: FeedItem) -> bytes:
        name = self.hub.feed.name.encode()
        return b"event: %b\nid: %d\ndata: %b\n\n" % (name, item.position, item.body)


def _resync(position: int) -> bytes:
    return _RESYNC + b"id: %d\n\n" % position
