"""What a worker in container mode has of its host: the engine, images that may run, places for containers."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import structlog

from runlane import names
from runlane.backoff import Backoff
from runlane.connectors import Manifest, Network
from runlane.containers import NO_NETWORK
from runlane.errors import Invalid, Refused, Unavailable
from runlane.private_files import write_private
from runlane.scan.config import ContainerSettings

if TYPE_CHECKING:
    from runlane.containers.engine import Engine

log = structlog.get_logger(__name__)

_CLOSE_PATIENCE_S: Final = 10.0
"""How long the end of the worker waits for its containers to be gone; the next start finds the others."""

LATE_S: Final = 60.0
"""What an engine was asked for, and did not answer in time, it may still do so much later."""

_REMOVE_PAUSE: Final = timedelta(seconds=5)
_HOME_FILE: Final = "home"
_HOST_DRIVER: Final = "host"


def home_of(state_dir: Path) -> str:
    """Name of a state folder, by which containers of its lives are known; made up at its first use."""
    file = state_dir / _HOME_FILE
    if not file.exists():
        write_private(file, str(uuid4()).encode())
    return file.read_text(encoding="ascii")


async def clear(engine: "Engine", settings: ContainerSettings, home: str) -> None:
    """Removes what earlier lives of a state folder have left on the engine.

    To be called while the folder is held and before anything is started: then all of it are orphans.

    Raises:
        Invalid: the network for connectors is the host's own.
        Unavailable: the engine does not answer.
    """
    if await engine.network_driver(settings.network) == _HOST_DRIVER:
        raise Invalid(f"the network {settings.network} is the host's own: no container gets that")
    orphans = await engine.labelled({names.CONTAINER_HOME: home})
    for container_id in orphans:
        await engine.remove(container_id)
    if orphans:
        log.warning("orphan_containers_removed", count=len(orphans))


def short(digest: str) -> str:
    """A digest as people tell images apart; the whole of it is masked in texts like any long secret."""
    return digest[:19]


class Places:
    """Bounds how many containers there are. A place is held from before one is made until it is gone."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)

    async def take(self, unless: asyncio.Event) -> bool:
        """Waits for a place; False if the event came first."""
        taking = asyncio.create_task(self._free.acquire())
        giving_up = asyncio.create_task(unless.wait())
        try:
            await asyncio.wait([taking, giving_up], return_when=asyncio.FIRST_COMPLETED)
        finally:
            giving_up.cancel()
            is_taken = taking.done() or not taking.cancel()
        if is_taken and unless.is_set():
            self.give_back()
        return is_taken and not unless.is_set()

    def give_back(self) -> None:
        """Somebody else may have the place."""
        self._free.release()


@dataclass(frozen=True, slots=True)
class ContainerHost:
    """Shared by all batches of a worker."""

    engine: "Engine"
    settings: ContainerSettings
    places: Places
    labels: Mapping[str, str]
    """Marks every container of this life of the worker."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _pulls: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _late: set[asyncio.Task[None]] = field(default_factory=set)

    def refusal(self, manifest: Manifest) -> str | None:
        """Why this host does not run a connector; None if it does."""
        if manifest.digest not in self.settings.allowed:
            return f"this host does not allow the image {short(manifest.digest)} of {manifest.slug}"
        return None

    def network_of(self, manifest: Manifest) -> str:
        """Name of the network that a connector's containers are connected to."""
        return self.settings.network if manifest.network is Network.TARGETS else NO_NETWORK

    async def image_id(self, manifest: Manifest) -> str:
        """Id of the image that a connector's digest names.

        Raises:
            Refused: it is not here, or not of a kind that may run. The text says which.
            Unavailable: the engine does not answer.
        """
        for reference in (manifest.digest, f"{manifest.image}@{manifest.digest}"):
            image = await self.engine.image(reference)
            if image is None:
                continue
            if not image.is_named(manifest.digest):
                raise Refused(f"the engine has another image under {reference}")
            if image.has_volumes:
                raise Refused("the image declares volumes: what it writes there has no bound")
            return image.id
        raise Refused(self._absence(manifest))

    async def require_network(self, manifest: Manifest) -> None:
        """Looks for the network of a connector.

        Raises:
            Refused: it is not there.
            Unavailable: the engine does not answer.
        """
        name = self.network_of(manifest)
        if name != NO_NETWORK and await self.engine.network_driver(name) is None:
            raise Refused(f"the engine has no network {name}")

    def begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Has something done that whoever asked for it may not live to see the end of."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def remove(self, name: str) -> None:
        """Removes a container for certain: tries again for as long as the engine is away."""
        backoff = Backoff(timedelta(milliseconds=200), _REMOVE_PAUSE)
        while True:
            try:
                await self.engine.remove(name)
            except (Refused, Unavailable) as error:
                log.warning("container_not_removed", container=name, detail=error.detail)
                await asyncio.sleep(backoff.next().total_seconds())
            else:
                return

    def remove_late(self, name: str) -> None:
        """Has a container removed that a call may yet make whose answer nobody waits for any more."""
        task = self.begin(self._remove_late(name))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _remove_late(self, name: str) -> None:
        await asyncio.sleep(LATE_S)
        await self.remove(name)

    async def close(self) -> bool:
        """Waits a while for containers that are on their way out; whether all are gone for certain."""
        is_sure = not self._late
        for task in (*self._pulls.values(), *self._late):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_PATIENCE_S)
        is_clear = is_sure and not self._tasks
        for task in self._tasks:
            task.cancel()
        return is_clear

    def _absence(self, manifest: Manifest) -> str:
        absence = f"the image {short(manifest.digest)} is not on this host"
        if not self.settings.may_pull:
            return absence
        pull = self._pulls.get(manifest.digest)
        if pull is None or pull.done():
            # on its own: whoever wants the image now is turned away and comes back later
            self._pulls[manifest.digest] = self.begin(self._pull(manifest))
        return f"{absence}: it is being fetched"

    async def _pull(self, manifest: Manifest) -> None:
        try:
            await self.engine.pull(manifest.image, manifest.digest)
        except (Refused, Unavailable) as error:
            log.warning("image_not_fetched", digest=manifest.digest, detail=error.detail)
        else:
            log.info("image_fetched", digest=manifest.digest)
