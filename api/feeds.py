"""Whoever follows a feed: one task per process reads what is new and hands it to all who follow.

Rows are the truth: who comes back says up to where it came, and reads what it missed from them. The task runs
only while somebody follows. One that reads too slowly is sent away, and holds up nobody.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import structlog

from runlane.db.feeds import Feed, FeedItem, Wanted
from runlane.db.pool import Pool
from runlane.errors import Conflict, Unavailable

log = structlog.get_logger(__name__)

MOST_FOLLOWERS: Final = 200
"""Of one feed in one process; each holds a connection of a caller."""

MOST_OF_WORKSPACE: Final = 25
"""Of these, so that others find room as well."""

BACKLOG: Final = 1_000
"""Items that wait for one follower; one that reads slower is sent away."""

LOOK_S: Final = 0.5
"""Time between looks for what is new."""

CHUNK: Final = 1_000
"""Numbers that are read at once."""


class Farewell(Enum):
    """Why a follower gets nothing any more."""

    ENDS = auto()
    """The process does, or there is no room; whoever follows comes back to another one."""
    BEHIND = auto()
    """It was too slow, or what it follows begins anew: it has to read the list."""


@dataclass(eq=False, slots=True)
class Follower:
    """Whoever follows. `first`: the oldest number of the feed then; what is queued comes after `start`."""

    wanted: Wanted
    first: int
    start: int
    items: asyncio.Queue[FeedItem | Farewell] = field(default_factory=lambda: asyncio.Queue(BACKLOG + 1))
    is_gone: bool = False

    def push(self, item: FeedItem) -> None:
        """Queues an item that is wanted; one too many sends the follower away."""
        if self.is_gone or not self.wanted.takes(item):
            return
        if self.items.qsize() >= BACKLOG:
            self.dismiss(Farewell.BEHIND)
        else:
            self.items.put_nowait(item)

    def dismiss(self, why: Farewell) -> None:
        """Sends it away; what it has not read is dropped. Idempotent."""
        if not self.is_gone:
            self.is_gone = True
            while not self.items.empty():
                self.items.get_nowait()
            self.items.put_nowait(why)


class FeedHub:
    """Followers of one feed in this process."""

    def __init__(self, pool: Pool, feed: Feed) -> None:
        self.feed = feed
        self._pool = pool
        self._followers: set[Follower] = set()
        self._at = 0
        self._begin = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def at(self) -> int:
        """Up to here everything was handed out."""
        return self._at

    def require_room(self, wanted: Wanted) -> None:
        """Refuses one follower too many.

        Raises:
            Conflict: `stream.too_many`, the workspace has its share.
            Unavailable: `stream.busy`, all have theirs, or the process ends.
        """
        theirs = sum(each.wanted.workspace_id == wanted.workspace_id for each in self._followers)
        if theirs >= MOST_OF_WORKSPACE:
            raise Conflict(f"the workspace has {theirs} such streams already", code="stream.too_many")
        if self._is_closing or len(self._followers) >= MOST_FOLLOWERS:
            raise Unavailable("too many streams are open already", code="stream.busy")

    @asynccontextmanager
    async def following(self, wanted: Wanted) -> AsyncIterator[Follower]:
        """Queues what is new from now on; who finds no room any more is sent away.

        Raises:
            OSError, asyncpg.PostgresError: the database does not answer.
        """
        follower = await self._join(wanted)
        try:
            self.require_room(wanted)
        except (Conflict, Unavailable):  # others came since the answer began
            follower.dismiss(Farewell.ENDS)
        else:
            self._followers.add(follower)
            if self._following is None:
                self._following = asyncio.create_task(self._follow())
        try:
            yield follower
        finally:
            self._followers.discard(follower)
            if not self._followers and self._following is not None:
                self._following.cancel()
                self._following = None

    def begin_shutdown(self) -> None:
        """Sends every follower away. Idempotent."""
        self._is_closing = True
        for follower in self._followers:
            follower.dismiss(Farewell.ENDS)

    async def close(self) -> None:
        """Ends the hub's own work."""
        self.begin_shutdown()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _join(self, wanted: Wanted) -> Follower:
        async with self._begin, self._pool.acquire() as conn:
            span = await self.feed.span(conn)
        # from here to the set of followers nothing is awaited: what is handed out after `start` is queued
        if self._following is None:
            self._at = span.last
        return Follower(wanted, span.first, self._at)

    async def _follow(self) -> None:
        while True:
            try:
                await self._advance()
            except Exception as error:  # noqa: BLE001  # without this loop followers would see nothing
                log.warning("feed_interrupted", feed=self.feed.name, error=repr(error))
            await asyncio.sleep(LOOK_S)

    async def _advance(self) -> None:
        async with self._pool.acquire() as conn:
            last = (await self.feed.span(conn)).last
            if last < self._at:  # the database was restored: numbers begin anew
                self._at = last
                for follower in self._followers:
                    follower.dismiss(Farewell.BEHIND)
            while self._at < last:
                to = min(last, self._at + CHUNK)
                items = await self.feed.read(conn, self._at + 1, to)
                for item in items:
                    for follower in self._followers:
                        follower.push(item)
                self._at = to
