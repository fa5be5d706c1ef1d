"""The scan worker process: joins, polls its queues, has batches done in child processes, leaves.

Nothing but I/O runs on its event loop: what takes time is in children under the launcher. It survives
restarts of the API, of the database behind it and of Temporal; it ends when the API says that it is not this
worker.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import structlog

from runlane import names
from runlane.errors import Refused, Unavailable
from runlane.scan.activity import ScanActivities, ScanHost
from runlane.scan.board import Board
from runlane.scan.children import Launcher
from runlane.scan.client import WorkerApi
from runlane.scan.config import ContainerSettings, ScanSettings
from runlane.scan.container_host import ContainerHost, Places, clear, home_of
from runlane.scan.control import Control
from runlane.scan.delivery import Deliverer
from runlane.scan.guard import guarded
from runlane.scan.join import JoinFailed, join
from runlane.scan.lock import folder_lock
from runlane.scan.polling import Poller, Temporal
from runlane.scan.programs import ProgramHost
from runlane.scan.rotation import Rotation, Token
from runlane.scan.spool import Spool
from runlane.scan.toolbox import find_tools
from runlane.scan.wire import Joined
from runlane.tools import Toolset

if TYPE_CHECKING:
    from runlane.containers.engine import Engine

log = structlog.get_logger(__name__)

_LEAVE_TIMEOUT_S: Final = 3.0


async def run_scan_worker(
    settings: ScanSettings, stop: asyncio.Event, engine: "Engine | None" = None
) -> None:
    """Runs a scan worker until `stop` is set, then drains it.

    What runs may finish for a while, the rest goes back. The API can ask for the same; it sets `stop`.
    With an engine, and with images that may run, it carries the tool set `container` as well.

    Raises:
        JoinFailed: the API refused the worker, or no longer takes it for the one that joined.
        Conflict: another process uses the state folder.
    """
    with folder_lock(settings.state_dir):
        async with WorkerApi(settings.api_url) as api, Launcher() as launcher:
            mode = await _container_mode(settings, engine)
            toolbox = await find_tools(_offered(settings, mode), launcher)
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
            containers = mode.host(joined.worker_id, incarnation) if mode is not None else None
            life = _Life(settings, api, programs, containers, joined, token, incarnation, stop)
            refused: ExceptionGroup[Refused] | None = None
            try:
                async with _cleared(containers, incarnation):
                    await life.run()
            except* Refused as refusals:
                refused = refusals  # raised below: Python before 3.11.4 wraps what is raised here in a group
            if refused is not None:
                raise JoinFailed(f"the API ended this worker: {_detail(refused)}") from refused


@dataclass(frozen=True, slots=True)
class _ContainerMode:
    """An engine that is cleared of what earlier lives have left."""

    engine: "Engine"
    settings: ContainerSettings
    home: str

    def host(self, worker_id: str, incarnation: str) -> ContainerHost:
        labels = {
            names.CONTAINER_HOME: self.home,
            names.CONTAINER_WORKER: worker_id,
            names.CONTAINER_INCARNATION: incarnation,
        }
        return ContainerHost(self.engine, self.settings, Places(self.settings.most), labels)


async def _container_mode(settings: ScanSettings, engine: "Engine | None") -> _ContainerMode | None:
    if engine is None or settings.containers is None:
        return None
    home = home_of(settings.state_dir)
    try:
        await clear(engine, settings.containers, home)
    except Unavailable as error:
        log.warning("container_engine_away", detail=error.detail)
        return None
    return _ContainerMode(engine, settings.containers, home)


@contextlib.asynccontextmanager
async def _cleared(containers: ContainerHost | None, incarnation: str) -> AsyncIterator[None]:
    """No container outlives the block, however it ends, nor this process if it is killed in it."""
    if containers is None:
        yield
        return
    async with guarded(containers.engine.url, incarnation) as guard:
        try:
            yield
        finally:
            guard.is_all_clear = await containers.close()


def _offered(settings: ScanSettings, mode: _ContainerMode | None) -> dict[str, int]:
    """The tool sets that are looked for; without container mode nothing can be said of connectors."""
    without = Toolset.CONTAINER if mode is None else None
    return {toolset: slots for toolset, slots in settings.toolsets.items() if toolset != without}


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
    containers: ContainerHost | None
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
        poller = self._poller(host)
        control = Control(self.api, host.board, host.tails, rotation, slots, self.stop, poller.renew)
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
            await poller.serve(self.stop)
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
            containers=self.containers,
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
