"""The control hub: every open control stream of this replica, and the way of a message to the right one.

Messages come by NOTIFY, so any process can reach a worker at any replica. They are hints: one that is lost
is made up for by the worker's next heartbeat. Presence is a row: the hub keeps saying which workers it holds,
and takes one off line when its stream broke and did not come back. The end of a replica is no worker's
disconnect.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

import asyncpg
import orjson
import structlog

from runlane import names
from runlane.db import presence
from runlane.db.notices import listening
from runlane.db.pool import Connection, Pool
from runlane.db.sweeps.silent_workers import note_replica
from runlane.db.workers import Worker, stale_incarnation

log = structlog.get_logger(__name__)

PING_S: Final = 2.0
"""Time between signs on a stream, and between updates of the presence rows."""

SILENT_S: Final = 8.0
"""A stream that no replica has confirmed for this long is gone together with its replica."""

_BACKLOG: Final = 256
"""Messages that wait for one worker; one that reads slower is cut off, and catches up by heartbeat."""

_REMEMBERED_REJECTIONS: Final = 1000
_RETRY_S: Final = 0.5
_DATABASE_ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

Message = Mapping[str, object]


@dataclass(eq=False, slots=True)
class ControlStream:
    """One open stream; `messages` gives what goes down it, with pings in between."""

    worker_id: UUID
    incarnation: UUID
    workspace_id: UUID | None
    _queue: asyncio.Queue[Message] = field(default_factory=lambda: asyncio.Queue(_BACKLOG))
    _is_closed: asyncio.Event = field(default_factory=asyncio.Event)

    def push(self, message: Message) -> None:
        """Queues a message; a full queue closes the stream."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            log.warning("control_stream_overrun", worker_id=str(self.worker_id))
            self.close()

    def close(self) -> None:
        """Ends the stream after what is being sent. Idempotent."""
        self._is_closed.set()
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait({})  # wakes the reader

    async def messages(self) -> AsyncIterator[Message]:
        """Messages until the stream is closed: a greeting, what was pushed, a ping every two seconds."""
        yield {"hello": str(self.worker_id)}
        pings = 0
        while not self._is_closed.is_set():
            try:
                async with asyncio.timeout(PING_S):
                    message = await self._queue.get()
            except TimeoutError:
                pings += 1
                message = {"ping": pings}
            if message:
                yield message


class ControlHub:
    """Streams by worker. `start` before the first request, `close` after the last."""

    def __init__(self, pool: Pool, *, grace_s: float) -> None:
        self._pool = pool
        self._grace_s = grace_s
        self._replica = uuid4().hex
        self._streams: dict[UUID, set[ControlStream]] = {}
        self._graces: dict[UUID, asyncio.Task[None]] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._rejected: dict[UUID, None] = {}
        self._is_closing = False
        self._steady_since: float | None = None
        """Since when the presence updates have gone through without a failure."""

    async def start(self) -> None:
        """Starts listening and confirming."""
        loops: list[Coroutine[None, None, None]] = [self._listen_forever(), self._confirm_forever()]
        self._loops = [asyncio.create_task(loop) for loop in loops]

    def begin_shutdown(self) -> None:
        """Ends all streams; their workers go to another replica, or come back when this one is up again."""
        self._is_closing = True
        for stream in self._all():
            stream.close()
        for grace in self._graces.values():
            grace.cancel()

    async def close(self) -> None:
        """Ends the streams and the hub's own work."""
        self.begin_shutdown()
        tasks = [*self._loops, *self._graces.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def is_first_rejection(self, incarnation: UUID) -> bool:
        """Whether a refused newcomer is new here: it tries again and again, and one event is enough."""
        is_first = incarnation not in self._rejected
        self._rejected[incarnation] = None
        if len(self._rejected) > _REMEMBERED_REJECTIONS:
            self._rejected.pop(next(iter(self._rejected)))
        return is_first

    @asynccontextmanager
    async def attached(self, worker: Worker) -> AsyncIterator[ControlStream]:
        """Holds the stream of a worker open, and ends one that it has opened before.

        Raises:
            Conflict: `worker.stale_incarnation`, this life of the worker is over.
        """
        incarnation = worker.require_incarnation()
        async with self._pool.acquire() as conn:
            if not await presence.open_stream(conn, worker.worker_id, incarnation, self._replica):
                raise stale_incarnation()
        stream = ControlStream(worker.worker_id, incarnation, worker.workspace_id)
        streams = self._streams.setdefault(worker.worker_id, set())
        for earlier in streams:  # one is enough; a host must not fill the API with them
            earlier.close()
        streams.add(stream)
        if grace := self._graces.pop(worker.worker_id, None):
            grace.cancel()
        log.info("control_stream_open", worker_id=str(worker.worker_id))
        try:
            yield stream
        finally:
            self._detach(stream)

    def _detach(self, stream: ControlStream) -> None:
        streams = self._streams[stream.worker_id]
        streams.discard(stream)
        if streams:
            return  # the worker was faster: its new stream is open already
        del self._streams[stream.worker_id]
        if self._is_closing:
            return
        log.info("control_stream_closed", worker_id=str(stream.worker_id))
        grace = asyncio.create_task(self._disconnect_after_grace(stream))
        self._graces[stream.worker_id] = grace
        grace.add_done_callback(lambda task: self._forget_grace(stream.worker_id, task))

    def _forget_grace(self, worker_id: UUID, task: asyncio.Task[None]) -> None:
        if self._graces.get(worker_id) is task:
            del self._graces[worker_id]

    async def _disconnect_after_grace(self, stream: ControlStream) -> None:
        worker_id, incarnation = stream.worker_id, stream.incarnation
        try:
            async with self._pool.acquire() as conn:
                await presence.close_stream(conn, worker_id, incarnation, self._replica)
            await asyncio.sleep(self._grace_s)
            async with self._pool.acquire() as conn, conn.transaction():
                if await presence.disconnect_if_gone(conn, worker_id, incarnation):
                    log.warning("worker_disconnected", worker_id=str(worker_id))
        except _DATABASE_ERRORS as error:
            # Left to the confirming loop: it finds every stream that nobody confirms.
            log.warning("worker_disconnect_unnoted", worker_id=str(worker_id), error=type(error).__name__)

    async def _confirm_forever(self) -> None:
        while True:
            try:
                await self._confirm()
            except Exception as error:  # noqa: BLE001  # without this loop no worker would ever be missed
                self._steady_since = None
                log.warning("presence_not_updated", error=repr(error))
            await asyncio.sleep(PING_S)

    async def _confirm(self) -> None:
        """Confirms own streams, then looks for workers that no replica confirms.

        Only after a while without a failure: when the database was away for all, each replica must have had
        the time to confirm its own before anybody is counted as gone.
        """
        now = asyncio.get_running_loop().time()
        async with self._pool.acquire() as conn:
            await self._confirm_own(conn)
            if self._steady_since is None:
                self._steady_since = now
            await note_replica(conn, self._replica, now - self._steady_since)
            if now - self._steady_since > SILENT_S:
                async with conn.transaction():
                    silent = await presence.disconnect_silent(conn, SILENT_S)
                for worker_id in silent:
                    log.warning("worker_silent", worker_id=str(worker_id))

    async def _confirm_own(self, conn: Connection) -> None:
        held = self._all()
        if not held:
            return
        pairs = [(stream.worker_id, stream.incarnation) for stream in held]
        valid = await presence.touch_streams(conn, self._replica, pairs)
        for stream in held:
            if stream.worker_id not in valid:
                stream.close()

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001  # without this loop no cancel would arrive at once
                log.warning("control_channel_lost", error=repr(error))
            await asyncio.sleep(_RETRY_S)

    async def _listen(self) -> None:
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        async with self._pool.acquire() as conn, listening(conn, names.CONTROL_CHANNEL, heard.put_nowait):
            while (text := await heard.get()) is not None:
                try:
                    await self._route(text)
                except ValueError:
                    log.warning("control_notice_malformed", size_bytes=len(text.encode()))

    async def _route(self, text: str) -> None:
        notice: object = orjson.loads(text)
        match notice:
            case {"kind": "cancel_run", "run": str(run)}:
                await self._cancel_run(UUID(run))
            case {"kind": "cancel_jobs", "worker": str(worker), "jobs": list(jobs)}:
                self._push(UUID(worker), {"cancel_jobs": jobs})
            case {"kind": "tail", "worker": str(worker), "job": str(job), "attempt": attempt, "new": is_new}:
                self._push(UUID(worker), {"tail": job, "attempt": attempt, "new": is_new})
            case {"kind": "renew_polls", "worker": str(worker), "toolsets": list(toolsets)}:
                self._push(UUID(worker), {"renew_polls": toolsets})
            case {"kind": "drain", "worker": str(worker)}:
                self._push(UUID(worker), {"drain": True})
            case {"kind": "revoked", "worker": str(worker)}:
                for stream in self._streams.get(UUID(worker), ()):
                    stream.close()
            case _:
                log.warning("control_notice_unknown", size_bytes=len(text.encode()))

    async def _cancel_run(self, run_id: UUID) -> None:
        """Goes to the workers that may have jobs of the run; others must not learn its id."""
        held = self._all()
        if not held:
            return
        async with self._pool.acquire() as conn:
            workspace_id = await presence.workspace_of_run(conn, run_id)
        for stream in held:
            if stream.workspace_id in (None, workspace_id):
                stream.push({"cancel_run": str(run_id)})

    def _push(self, worker_id: UUID, message: Message) -> None:
        for stream in self._streams.get(worker_id, ()):
            stream.push(message)

    def _all(self) -> list[ControlStream]:
        return [stream for streams in self._streams.values() for stream in streams]
