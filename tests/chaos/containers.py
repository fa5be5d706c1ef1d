"""The container side of a storm: connectors for the load, blows from outside, an account of all containers.

Without an engine, or without what the images are made of, a storm does without and says why.
"""

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import docker
from docker.errors import DockerException

from connectors.build import build
from runlane import names
from runlane.connectors import load_manifest
from tests.chaos.plan import Blow
from tests.containers.container_jobs import BUSYBOX, CONNECTORS, LabHost
from tests.containers.engines import answers, serving_host, url_of_engine

TOOLSET: Final = "container=2"

_LIFE: Final = {"type": ["container"], "event": ["create", "destroy"]}


@dataclass(frozen=True, slots=True)
class Made:
    """A container that was made: for which attempt of which job, by a worker of which state folder."""

    id: str
    home: str
    job_id: str
    attempt: int


@dataclass(slots=True)
class Account:
    """Every container that was made or removed since the engine was listened to, whoever did it."""

    made: list[Made] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def listen(self, stream: Iterator[Mapping[str, object]]) -> None:
        """Goes on until the stream ends."""
        for event in stream:
            actor = event["Actor"]
            assert isinstance(actor, dict)
            labels = actor["Attributes"]
            if event["Action"] == "destroy":
                self.gone.add(actor["ID"])
            elif names.CONTAINER_HOME in labels and names.CONTAINER_JOB in labels:
                self.made.append(
                    Made(
                        actor["ID"],
                        labels[names.CONTAINER_HOME],
                        labels[names.CONTAINER_JOB],
                        int(labels[names.CONTAINER_ATTEMPT]),
                    )
                )

    def of(self, homes: Sequence[str]) -> list[Made]:
        """Those of these state folders."""
        return [each for each in self.made if each.home in homes]


@dataclass(frozen=True, slots=True)
class Containers:
    """An engine with the images of two connectors and a host to scan."""

    url: str
    client: docker.APIClient
    images: Mapping[str, str]
    """Id of the image of each connector, by its folder."""
    lab: LabHost
    account: Account

    @property
    def settings(self) -> dict[str, str]:
        """What brings the scan workers of an installation into container mode."""
        return {
            "RUNLANE_SCAN_ENGINE": self.url,
            "RUNLANE_SCAN_IMAGES": ",".join(self.images.values()),
            "RUNLANE_SCAN_NETWORK": self.lab.network,
        }

    def manifests(self) -> list[dict[str, object]]:
        """The connectors as they are added."""
        found = []
        for folder, image in self.images.items():
            raw = load_manifest((CONNECTORS / folder / "manifest.yaml").read_bytes())
            assert isinstance(raw, dict)
            found.append({**raw, "digest": image})
        return found

    def running(self, homes: Sequence[str]) -> list[str]:
        """Ids of the containers of these state folders that run now, paused ones included; oldest first."""
        found = [
            each
            for home in homes
            for each in self.client.containers(filters={"label": f"{names.CONTAINER_HOME}={home}"})
        ]
        return [str(each["Id"]) for each in sorted(found, key=lambda each: int(each["Created"]))]

    async def strike(self, container_id: str, blow: Blow) -> None:
        """Kills, stops or pauses a container past its worker; one that ended meanwhile is let be."""
        with suppress(DockerException):
            match blow.signal.name:
                case "SIGKILL":
                    await asyncio.to_thread(self.client.kill, container_id)
                case "SIGTERM":
                    await asyncio.to_thread(self.client.stop, container_id, 1)
                case _:
                    await asyncio.to_thread(self.client.pause, container_id)
                    await asyncio.sleep(blow.held_s)
                    await asyncio.to_thread(self.client.unpause, container_id)


@dataclass(frozen=True, slots=True)
class Engine:
    """What a storm has of an engine."""

    says: str
    """Its version, or why there is none."""
    containers: Containers | None = None


def homes(folder: Path) -> list[str]:
    """Names by which the containers of scan workers of a state folder are known."""
    return [file.read_text(encoding="ascii") for file in folder.glob("**/worker/home")]


@contextmanager
def engine_at_hand() -> Iterator[Engine]:
    """Looks for an engine, makes the images, and has a host served for the length of the block."""
    url = url_of_engine()
    if not answers(url):
        yield Engine("none answers")
        return
    if not BUSYBOX.exists():
        yield Engine("not used, busybox-static is not installed")
        return
    with ExitStack() as opened:
        client = opened.enter_context(closing(docker.APIClient(base_url=url, timeout=60)))
        echo = build(CONNECTORS / "bench" / "echo", url)
        images = {"bench/echo": echo}
        with suppress(FileNotFoundError):  # nmap is not installed
            images["ports_scanner/nmap"] = build(CONNECTORS / "ports_scanner" / "nmap", url)
        lab = opened.enter_context(serving_host(client, echo))
        account = opened.enter_context(_listened_to(url))
        yield Engine(client.version()["Version"], Containers(url, client, images, lab, account))


@contextmanager
def _listened_to(url: str) -> Iterator[Account]:
    account = Account()
    with closing(docker.APIClient(base_url=url, timeout=None)) as client:
        stream = client.events(since=int(time.time()), filters=_LIFE, decode=True)
        listening = threading.Thread(target=account.listen, args=(stream,), daemon=True)
        listening.start()
        try:
            yield account
        finally:
            stream.close()
            listening.join(timeout=5)
