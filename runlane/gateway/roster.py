"""What the gateway knows of workers, a second old at most, and the polls that hang on it.

A notice tells whose row has changed; every second the rows of all workers with a poll are read, since a
notice may be lost. A poll is ended at once when its worker may not have it any more: its host would be handed
tasks that nobody works on.
"""

import asyncio
import hmac
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from runlane import names
from runlane.db import roster as rows
from runlane.db.keys import digest
from runlane.db.notices import listening
from runlane.db.pool import Pool
from runlane.db.roster import Standing
from runlane.db.workers import worker_id_in
from runlane.gateway.faults import Fault, too_many, unauthenticated, unavailable
from runlane.gateway.rates import Bucket

log = structlog.get_logger(__name__)

LOOK_S: Final = 1.0
"""Time between looks at the rows of all workers with a poll."""

MOST_POLLS: Final = 32
"""Polls of one worker at once: two for each of its queues, and what a broken connection has left behind."""

_FRESH_S: Final = 2 * LOOK_S
_AGAIN_S: Final = 0.2
"""Time between readings because of tokens that do not fit."""

_STALE_S: Final = 60.0
"""How long rows that cannot be read are taken to be as they were: they cannot be changed either."""

_FORGET_S: Final = 300.0
_READ_S: Final = 5.0
_RETRY_S: Final = 0.5
_DATABASE_ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


@dataclass(eq=False, slots=True)
class Poll:
    """A poll that waits: for its worker to be there, or for a task."""

    incarnation: UUID
    waiting: asyncio.Task[bytes] | None = None
    """The wait for a task; None until the worker is there."""
    fault: Fault | None = None
    """Why the gateway ended it."""

    def judge(self, standing: Standing | None) -> None:
        """Ends it if the worker may not be given a task."""
        if fault := fault_of(standing, self.incarnation):
            self.end(fault)
        elif self.waiting is not None and standing is not None and not standing.is_present:
            self.end(unavailable("this worker is drained, or its control stream is broken"))

    def end(self, fault: Fault) -> None:
        """Ends it, for this reason unless there was one before."""
        if self.fault is None:
            self.fault = fault
            if self.waiting is not None:
                self.waiting.cancel()


@dataclass(eq=False, slots=True)
class _Known:
    """A worker that has called."""

    standing: Standing | None
    """None: there is no such worker any more."""
    read_at_s: float
    """When the newest reading of its row began."""
    tried_at_s: float
    """When the row was last read, or could not be."""
    called_at_s: float
    bucket: Bucket
    polls: set[Poll] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def learn(self, standing: Standing | None, began_s: float) -> None:
        """Takes what a reading says that began then, and acts on what is new."""
        if began_s < self.read_at_s:
            return  # a later one was faster
        self.read_at_s = self.tried_at_s = began_s
        if standing == self.standing:
            return
        self.standing = standing
        was_open = [poll for poll in self.polls if poll.fault is None]
        for poll in was_open:
            poll.judge(standing)
        ended = [poll.fault for poll in was_open if poll.fault is not None]
        if ended:
            log.info("polls_ended", polls=len(ended), reason=ended[0].detail)
        self.wake()

    def wake(self) -> None:
        """Wakes the polls that wait for their worker."""
        self.changed.set()
        self.changed.clear()


class Roster:
    """Workers by id. `watch` runs beside the calls."""

    def __init__(self, pool: Pool, pepper: bytes) -> None:
        self._pool = pool
        self._pepper = pepper
        self._known: dict[UUID, _Known] = {}

    async def find(self, token: str, incarnation: UUID | None) -> Standing:
        """Whose token it is, as the row has it now; counts a call of that worker.

        What is remembered of another life than the one that calls is read again: the worker may have begun
        a new one a moment ago.

        Raises:
            Fault: UNAUTHENTICATED, it is nobody's; RESOURCE_EXHAUSTED, too many calls;
                UNAVAILABLE, the rows cannot be read.
        """
        worker_id = worker_id_in(token)
        known = await self._fresh(worker_id) if worker_id is not None else None
        given = digest(token, self._pepper)
        if known is not None and worker_id is not None and not _opens(known.standing, given):
            await self._look_again(worker_id, known)
        standing = known.standing if known is not None else None
        if not _opens(standing, given) or standing is None or known is None:
            raise unauthenticated("the worker token is not valid")
        if not known.bucket.take(_now_s()):
            raise too_many("too many calls")
        if standing.worker.incarnation != incarnation:
            await self._refresh(standing.worker.worker_id, known)
        return known.standing or standing

    @contextmanager
    def polling(self, standing: Standing, incarnation: UUID) -> Iterator[Poll]:
        """Counts a poll of a worker that was found, for as long as it lasts.

        Raises:
            Fault: RESOURCE_EXHAUSTED, the worker has too many.
        """
        known = self._known[standing.worker.worker_id]
        if len(known.polls) >= MOST_POLLS:
            raise too_many("too many polls at once")
        poll = Poll(incarnation)
        known.polls.add(poll)
        try:
            yield poll
        finally:
            known.polls.discard(poll)

    async def until_present(self, worker_id: UUID, poll: Poll) -> None:
        """Returns when the worker is there: its control stream is open, and it is not drained.

        Raises:
            Fault: the poll was ended meanwhile.
        """
        known = self._known[worker_id]
        poll.judge(known.standing)
        while True:
            if poll.fault is not None:
                raise poll.fault
            if known.standing is not None and known.standing.is_present:
                return
            await known.changed.wait()

    def end_polls(self, fault: Fault) -> None:
        """Ends every poll."""
        for known in self._known.values():
            for poll in known.polls:
                poll.end(fault)
            known.wake()

    async def watch(self) -> None:
        """Keeps what is known up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_forever())
            group.create_task(self._listen_forever())

    async def _fresh(self, worker_id: UUID) -> _Known | None:
        known = self._known.get(worker_id)
        if known is None:
            return await self._meet(worker_id)
        known.called_at_s = _now_s()
        if _now_s() - known.tried_at_s > _FRESH_S:
            async with known.reading:  # many calls at once need one reading
                if _now_s() - known.tried_at_s > _FRESH_S:
                    await self._refresh(worker_id, known)
        if _now_s() - known.read_at_s > _STALE_S:
            raise unavailable("the rows cannot be read")
        return known

    async def _look_again(self, worker_id: UUID, known: _Known) -> None:
        """The token may be newer than what is known; whoever sends wrong ones causes few readings."""
        if _now_s() - known.tried_at_s > _AGAIN_S:
            async with known.reading:
                if _now_s() - known.tried_at_s > _AGAIN_S:
                    await self._refresh(worker_id, known)

    async def _meet(self, worker_id: UUID) -> _Known | None:
        now_s = _now_s()
        try:
            standing = (await self._read([worker_id])).get(worker_id)
        except _DATABASE_ERRORS as error:
            raise unavailable("the rows cannot be read") from error
        if standing is None:
            return None  # not remembered: there is no end of ids that are nobody's
        return self._known.setdefault(worker_id, _Known(standing, now_s, now_s, now_s, Bucket(now_s)))

    async def _refresh(self, worker_id: UUID, known: _Known) -> None:
        began_s = _now_s()
        try:
            found = await self._read([worker_id])
        except _DATABASE_ERRORS as error:
            known.tried_at_s = _now_s()
            log.warning("worker_not_read", worker_id=str(worker_id), error=repr(error))
        else:
            known.learn(found.get(worker_id), began_s)

    async def _read(self, worker_ids: list[UUID]) -> dict[UUID, Standing]:
        async with asyncio.timeout(_READ_S), self._pool.acquire() as conn:
            return await rows.look(conn, worker_ids)

    async def _look(self, worker_ids: Iterable[UUID]) -> None:
        looked_at = [worker_id for worker_id in worker_ids if worker_id in self._known]
        if not looked_at:
            return
        began_s = _now_s()
        found = await self._read(looked_at)
        for worker_id in looked_at:
            if known := self._known.get(worker_id):
                known.learn(found.get(worker_id), began_s)

    async def _look_forever(self) -> None:
        while True:
            try:
                self._forget_silent()
                await self._look([worker_id for worker_id, known in self._known.items() if known.polls])
            except Exception as error:  # noqa: BLE001  # without this loop no poll of a lost worker would end
                log.warning("workers_not_looked_at", error=repr(error))
            await asyncio.sleep(LOOK_S)

    def _forget_silent(self) -> None:
        before_s = _now_s() - _FORGET_S
        for worker_id, known in list(self._known.items()):
            if not known.polls and known.called_at_s < before_s:
                del self._known[worker_id]

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001  # without this loop every change would take a second
                log.warning("workers_channel_lost", error=repr(error))
            await asyncio.sleep(_RETRY_S)

    async def _listen(self) -> None:
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        async with self._pool.acquire() as conn, listening(conn, names.WORKERS_CHANNEL, heard.put_nowait):
            while (text := await heard.get()) is not None:
                with suppress(ValueError):  # whoever may notify may write anything
                    await self._look([UUID(text)])


def fault_of(standing: Standing | None, incarnation: UUID) -> Fault | None:
    """Why this life of a worker gets nothing any more; None if it does."""
    if standing is None:
        return unauthenticated("the worker was removed")
    if standing.is_revoked:
        return unauthenticated("the worker was revoked")
    if standing.worker.incarnation != incarnation:
        return unauthenticated("this life of the worker is over")
    return None


def _opens(standing: Standing | None, given: bytes) -> bool:
    """Compared even when nothing was found: the time of the answer must not tell which workers exist."""
    digests = standing.digests if standing is not None else (bytes(32),)
    return any(hmac.compare_digest(given, each) for each in digests) and standing is not None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
