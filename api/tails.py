"""Onlookers of running jobs: lines come by NOTIFY from whichever replica the worker told them to.

This process listens only while somebody looks. Nothing is kept: who comes later gets what the worker still
remembers.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import orjson
import structlog

from runlane import names
from runlane.db import tails
from runlane.db.notices import listening
from runlane.db.pool import Pool
from runlane.errors import Conflict, Unavailable

log = structlog.get_logger(__name__)

MOST_ONLOOKERS: Final = 100
"""Of one process; each holds a connection of a caller."""

_BACKLOG: Final = 256
"""Pieces that wait for one onlooker; one that reads slower misses lines, and sees it by their numbers."""

_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines of one attempt, the first of which has this number."""

    attempt: int
    first: int
    lines: tuple[str, ...]


@dataclass(eq=False, slots=True)
class Onlooker:
    """Whoever looks at one job. None in the queue sends it away."""

    workspace_id: UUID
    pieces: asyncio.Queue[Piece | None] = field(default_factory=lambda: asyncio.Queue(_BACKLOG))

    def push(self, piece: Piece | None) -> None:
        """Queues a piece; the oldest goes when there are too many."""
        if self.pieces.full():
            self.pieces.get_nowait()
        self.pieces.put_nowait(piece)


class TailHub:
    """Onlookers by job; `most_of_workspace` of one workspace at once, so that others find room as well."""

    def __init__(self, pool: Pool, most_of_workspace: int) -> None:
        self._pool = pool
        self._most_of_workspace = most_of_workspace
        self._onlookers: dict[UUID, set[Onlooker]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._is_closing = False

    def require_room(self, workspace_id: UUID) -> None:
        """Refuses one onlooker too many.

        Raises:
            Conflict: `tail.too_many`, the workspace has its share.
            Unavailable: `tail.busy`, all have theirs, or the process ends.
        """
        there = [each.workspace_id for onlookers in self._onlookers.values() for each in onlookers]
        if there.count(workspace_id) >= self._most_of_workspace:
            detail = f"the workspace looks at {self._most_of_workspace} jobs already"
            raise Conflict(detail, code="tail.too_many")
        if self._is_closing or len(there) >= MOST_ONLOOKERS:
            raise Unavailable("too many look at jobs already", code="tail.busy")

    @asynccontextmanager
    async def looking_at(self, job_id: UUID, workspace_id: UUID) -> AsyncIterator[Onlooker]:
        """Gives what a job writes from now on; who finds no room any more is sent away."""
        onlooker = Onlooker(workspace_id)
        try:
            self.require_room(workspace_id)
        except (Conflict, Unavailable):  # others came since the answer began
            onlooker.push(None)
            yield onlooker
            return
        self._onlookers.setdefault(job_id, set()).add(onlooker)
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen_forever())
        try:
            yield onlooker
        finally:
            self._leave(job_id, onlooker)

    async def ask(self, job_id: UUID, looked: tails.Looked, *, is_new: bool) -> None:
        """Asks the worker of a job for its lines."""
        async with self._pool.acquire() as conn:
            await tails.ask(conn, job_id, looked, is_new=is_new)

    def begin_shutdown(self) -> None:
        """Sends every onlooker away. Idempotent."""
        self._is_closing = True
        for onlookers in self._onlookers.values():
            for onlooker in onlookers:
                onlooker.push(None)

    async def close(self) -> None:
        """Ends the hub's own work."""
        self.begin_shutdown()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])

    def _leave(self, job_id: UUID, onlooker: Onlooker) -> None:
        onlookers = self._onlookers[job_id]
        onlookers.discard(onlooker)
        if not onlookers:
            del self._onlookers[job_id]
        if not self._onlookers and self._listening is not None:
            self._listening.cancel()
            self._listening = None

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001  # without this loop onlookers would see nothing
                log.warning("tails_channel_lost", error=repr(error))
            await asyncio.sleep(_RETRY_S)

    async def _listen(self) -> None:
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        async with self._pool.acquire() as conn, listening(conn, names.TAILS_CHANNEL, heard.put_nowait):
            while (text := await heard.get()) is not None:
                with suppress(ValueError):
                    self._route(text)

    def _route(self, text: str) -> None:
        notice: object = orjson.loads(text)
        match notice:
            case {"job": str(job), "attempt": int(attempt), "first": int(first), "lines": list(lines)}:
                piece = Piece(attempt, first, tuple(str(line) for line in lines))
                for onlooker in self._onlookers.get(UUID(job), ()):
                    onlooker.push(piece)
