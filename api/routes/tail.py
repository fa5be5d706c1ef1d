"""The live tail of a job, as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Final
from uuid import UUID

import orjson
from fastapi import APIRouter, Depends, Path
from fastapi.responses import StreamingResponse

from api.deps import no_query
from api.problems import problems
from api.reading import JobReader, JobReading
from api.tails import Onlooker, Piece
from runlane.db import tails
from runlane.db.engine import driver
from runlane.db.tails import Looked
from runlane.errors import Conflict, NotFound, Unavailable
from runlane.jobs import JOBS, JobStatus

router = APIRouter(prefix="/jobs", tags=["jobs"])

LOOK_S: Final = 2.0
"""Time between looks at the row of a job that somebody looks at."""

ASK_S: Final = 5.0
"""Time between askings; a worker takes one for good for three times as long."""

LAST_LINES_S: Final = 1.5
"""How long lines of a job that has ended are waited for."""

LONGEST_S: Final = 3_600.0
"""Whoever looks longer has to ask again, with a key that is valid then."""

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}

JobId = Annotated[UUID, Path(description="id of a job")]


@router.get(
    "/{job_id}/tail",
    dependencies=[Depends(no_query)],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}, **problems(NotFound, Conflict, Unavailable)},
)
async def tail(reader: JobReading, job_id: JobId) -> StreamingResponse:
    """Streams what a job writes while it runs: events `state`, `line` and, last of all, `end`.

    Lines have numbers within their attempt; a gap means that some were written faster than they were read.
    """
    view = _Tail(reader, job_id)
    await view.look()
    reader.resources.tails.require_room(reader.workspace_id)
    return StreamingResponse(view.events(), media_type="text/event-stream", headers=_HEADERS)


@dataclass(slots=True)
class _Tail:
    reader: JobReader
    job_id: UUID
    looked: Looked | None = None
    asked_attempt: int = 0
    asked_at: float = 0.0
    shown_attempt: int = 0
    next_number: int = 0
    is_sent_away: bool = False
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    async def look(self) -> Looked:
        async with self.reader.transaction() as conn:
            looked = await tails.look(driver(conn), self.reader.workspace_id, self.job_id)
        if looked is None:
            raise NotFound("no such job", code="job.not_found")
        return looked

    async def events(self) -> AsyncIterator[bytes]:
        ends_at = self.loop.time() + LONGEST_S
        async with self.reader.resources.tails.looking_at(self.job_id, self.reader.workspace_id) as onlooker:
            while self.loop.time() < ends_at:
                try:
                    looked = await self.look()
                except NotFound:  # pruned, or its run was deleted
                    break
                if looked != self.looked:
                    self.looked = looked
                    yield _event("state", {"status": looked.status, "attempt": looked.attempt})
                is_over = looked.status in JOBS.terminal
                if looked.status is JobStatus.IN_PROGRESS:
                    await self._ask(looked)
                async for event in self._lines(onlooker, LAST_LINES_S if is_over else LOOK_S):
                    yield event
                if is_over or self.is_sent_away:
                    break
                yield b": \n\n"
            yield _event("end", {"status": self.looked.status if self.looked else None})

    async def _ask(self, looked: Looked) -> None:
        now = self.loop.time()
        is_new = looked.attempt != self.asked_attempt
        if is_new or now - self.asked_at >= ASK_S:
            await self.reader.resources.tails.ask(self.job_id, looked, is_new=is_new)
            self.asked_attempt, self.asked_at = looked.attempt, now

    async def _lines(self, onlooker: Onlooker, for_s: float) -> AsyncIterator[bytes]:
        until = self.loop.time() + for_s
        while (left := until - self.loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    piece = await onlooker.pieces.get()
            except TimeoutError:
                return
            if piece is None:  # the process ends; who looks on comes back to another one
                self.is_sent_away = True
                return
            for event in self._unseen(piece):
                yield event

    def _unseen(self, piece: Piece) -> list[bytes]:
        if piece.attempt < self.shown_attempt:
            return []
        if piece.attempt > self.shown_attempt:
            self.shown_attempt, self.next_number = piece.attempt, 0
        numbered = [(piece.first + place, line) for place, line in enumerate(piece.lines)]
        unseen = [(number, line) for number, line in numbered if number >= self.next_number]
        if unseen:
            self.next_number = unseen[-1][0] + 1
        return [_event("line", {"attempt": piece.attempt, "number": n, "text": line}) for n, line in unseen]


def _event(name: str, data: dict[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))
