"""What the API tells a worker between claims: the control stream, and the heartbeat as its fallback."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import structlog

from runlane.errors import Unavailable
from runlane.scan.board import Board
from runlane.scan.client import WorkerApi, new_backoff
from runlane.scan.rotation import Rotation
from runlane.scan.tails import Tails
from runlane.scan.wire import Beat

log = structlog.get_logger(__name__)

_RECONNECT_MOST: Final = timedelta(seconds=1)
"""The API takes a stream that stays away for longer than its grace as the death of the worker."""


@dataclass(frozen=True, slots=True)
class Control:
    """The ends that control connects. Both loops run until cancelled or until the API ends the worker."""

    api: WorkerApi
    board: Board
    tails: Tails
    rotation: Rotation
    slots: int
    """Batches at once, over all tool sets."""
    drain: asyncio.Event
    """Set when the worker is to finish and leave, by the API or by whoever started it."""
    renew: Callable[[Sequence[str]], None]
    """Renews the polls of tool sets."""

    async def follow_stream(self) -> None:
        """Keeps the control stream open: presence up, cancels and drain down.

        Raises:
            Refused: this incarnation is not, or no longer, the worker.
        """
        backoff = new_backoff(_RECONNECT_MOST)
        while True:
            try:
                async for message in self.api.stream():
                    backoff.reset()
                    self._obey(message)
                log.info("control_stream_ended")
            except Unavailable as error:
                log.warning("control_stream_broken", detail=error.detail)
            await asyncio.sleep(backoff.next().total_seconds())

    async def beat(self, every_s: float) -> None:
        """Sends heartbeats; drops jobs that the API says are not this worker's: hints may have been lost.

        Raises:
            Refused: this incarnation is not, or no longer, the worker.
        """
        while True:
            try:
                await self.beat_once()
            except Unavailable as error:
                log.warning("heartbeat_failed", detail=error.detail)
            await asyncio.sleep(every_s)

    async def beat_once(self) -> None:
        """Sends one heartbeat."""
        free = max(0, self.slots - self.board.batches)
        beat = Beat(free, self.drain.is_set(), self.board.running())
        answer = await self.api.heartbeat(beat)
        for job_id, attempt in answer.cancels:
            self.board.cancel_job(job_id, attempt)
        if answer.must_rotate:
            await self.rotation.renew()

    def _obey(self, message: Mapping[str, object]) -> None:
        match message:
            case {"cancel_jobs": list(jobs)}:
                for job in jobs:
                    self._drop(job)
            case {"cancel_run": str(run_id)}:
                self.board.cancel_run(run_id)
            case {"renew_polls": list(toolsets)}:
                self.renew([str(toolset) for toolset in toolsets])
            case {"drain": True}:
                self.drain.set()
            case {"tail": str(job_id), "attempt": int(attempt), "new": bool(is_new)}:
                self.tails.ask(job_id, attempt, is_new=is_new)
            case _:
                pass  # hello, ping, and whatever a newer API says

    def _drop(self, job: object) -> None:
        match job:
            case [str(job_id), int(attempt)]:
                self.board.cancel_job(job_id, attempt)
