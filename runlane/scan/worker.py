"""The scan worker process: joins, polls its queues, has batches done in child processes, leaves.

Nothing but I/O runs on its event loop: what takes time is in children under the launcher. It survives
restarts of the API, of the database behind it and of Temporal; it ends when the API says that it is not this
worker.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import structlog

from runlane.errors import Refused, Unavailable
from runlane.scan.activity import ScanActivities, ScanHost
from runlane.scan.board import Board
from runlane.scan.children import Launcher
from runlane.scan.client import WorkerApi
from runlane.scan.config import ScanSettings
from runlane.scan.control import Control
from runlane.scan.delivery import Deliverer
from runlane.scan.join import JoinFailed, join
from runlane.scan.lock import folder_lock
from runlane.scan.polling import Poller, Temporal
from runlane.scan.programs import ProgramHost
from runlane.scan.rotation import Rotation, Token
from runlane.scan.spool import Spool
from runlane.scan.toolbox import find_tools
from runlane.scan.wire import Joined

log = structlog.get_logger(__name__)

_LEAVE_TIMEOUT_S: Final = 3.0


async def run_scan_worker(settings: ScanSettings, stop: asyncio.Event) -> None:
    """Runs a scan worker until `stop` is set, then drains it.

    What runs may finish for a while, the rest goes back. The API can ask for the same; it sets `stop`.

    Raises:
        JoinFailed: the API refused the worker, or no longer takes it for the one that joined.
        Conflict: another process uses the state folder.
    """
    with folder_lock(settings.state_dir):
        async with WorkerApi(settings.api_url) as api, Launcher() as launcher:
            toolbox = await find_tools(settings.toolsets, launcher)
            if not toolbox.slots:
                raise JoinFailed("this host has the programs of none of its tool sets")
            settings = replace(settings, toolsets=toolbox.slots, tools=toolbox.versions)
            incarnation = str(uuid4())
            joined = await _join_unless_stopped(api, settings, incarnation, stop)
            if joined is None:
                return
            log.info(
                "worker_joined", worker_id=joined.worker_id, queues=[q.task_queue for q in joined.queues]
            )
            work = settings.state_dir / "work"
            await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)  # what a killed life has left
            programs = ProgramHost(launcher, work, toolbox.paths, toolbox.versions)
            token = Token(joined.token or "")
            token.follow(api.use_token)
            life = _Life(settings, api, programs, joined, token, incarnation, stop)
            refused: ExceptionGroup[Refused] | None = None
            try:
                await life.run()
            except* Refused as refusals:
                refused = refusals  # raised below: Python before 3.11.4 wraps what is raised here in a group
            if refused is not None:
                raise JoinFailed(f"the API ended this worker: {_detail(refused)}") from refused


async def _join_unless_stopped(
    api: WorkerApi, settings: ScanSettings, incarnation: str, stop: asyncio.Event
) -> Joined | None:
    joining = asyncio.create_task(join(api, settings, incarnation))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([joining, stopping], return_when=asyncio.FIRST_COMPLETED)
        return joining.result() if joining.done() else None
    finally:
        joining.cancel()
        stopping.cancel()


@dataclass(frozen=True, slots=True)
class _Life:
    """One incarnation, from the join to the leave."""

    settings: ScanSettings
    api: WorkerApi
    programs: ProgramHost
    joined: Joined
    token: Token
    incarnation: str
    stop: asyncio.Event

    async def run(self) -> None:
        host = self._host()
        # Before the first claim: what an earlier life left is accepted only until its jobs are released.
        await host.deliverer.redeliver()
        slots = sum(queue.slots for queue in self.joined.queues)
        rotation = Rotation(self.api, self.settings.state_dir, self.joined.worker_id, self.token)
        control = Control(self.api, host.board, host.tails, rotation, slots, self.stop)
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(_or_stop_all(host.board, loop))
                for loop in (
                    control.follow_stream(),
                    control.beat(self.joined.heartbeat_s),
                    host.deliverer.redeliver_forever(),
                    host.tails.send_forever(self.api),
                    self._announce_drain(control),
                )
            ]
            await self._poller(host).serve(self.stop)
            for task in background:
                task.cancel()
        await self._leave()

    def _host(self) -> ScanHost:
        spool = Spool(self.settings.state_dir / "spool", self.settings.limits.spool_bytes)
        return ScanHost(
            api=self.api,
            programs=self.programs,
            deliverer=Deliverer(self.api, spool, self.joined.inline_bytes),
            board=Board(),
            worker_id=self.joined.worker_id,
            incarnation=self.incarnation,
            limits=self.settings.limits,
        )

    def _poller(self, host: ScanHost) -> Poller:
        return Poller(
            temporal=Temporal(
                address=self.settings.temporal_address or self.joined.temporal_address,
                namespace=self.joined.temporal_namespace,
                identity=f"{self.joined.worker_id}/{self.incarnation}",
                token=self.token,
                incarnation=self.incarnation,
            ),
            queues=self.joined.queues,
            activities=ScanActivities(host),
            drain_s=self.settings.limits.drain_s,
        )

    async def _announce_drain(self, control: Control) -> None:
        """Says at once that the worker drains, so that nothing more is routed to it."""
        await self.stop.wait()
        log.info("worker_draining", batches=control.board.batches)
        with contextlib.suppress(Unavailable):
            await control.beat_once()

    async def _leave(self) -> None:
        with contextlib.suppress(Refused, Unavailable, TimeoutError):
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self.api.leave()
        log.info("worker_left", worker_id=self.joined.worker_id)


async def _or_stop_all(board: Board, loop: Coroutine[None, None, None]) -> None:
    """A loop of the worker; when the API ends the worker in it, the batches must not go on for a moment."""
    try:
        await loop
    except Refused:
        board.stop_all()
        raise


def _detail(refusals: BaseExceptionGroup[Refused]) -> str:
    inner: BaseException = refusals
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return f"{inner.detail} ({inner.code})" if isinstance(inner, Refused) else str(inner)
