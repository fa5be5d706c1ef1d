"""Jobs for containers without an installation around them: a host, a connector of a few lines, a batch."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from uuid import uuid4

import docker

from runlane import names
from runlane.connectors import Manifest, read_manifest
from runlane.containers.engine import Engine
from runlane.scan.batch import BatchSpec
from runlane.scan.config import ContainerSettings, ScanLimits
from runlane.scan.contained import ContainerRunner
from runlane.scan.container_host import ContainerHost, Places
from runlane.scan.each import EachBatch
from runlane.scan.wire import ClaimedJob, Member
from runlane.tools.adapters.adapter import Each
from tests.waiting import WAIT_S

CONNECTORS: Final = Path(__file__).parents[2] / "connectors"
BUSYBOX: Final = Path("/usr/bin/busybox")

RECORD = '{"record":{"name":"a.lab.test"}}'
DONE = '{"done":{"outcome":"completed","complete":true,"reachable":true}}'


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host on a network of its own, without a way out."""

    network: str
    address: str
    subnet: str


def script(image: str, text: str, *, reads_job: bool = False, **limits: float) -> Manifest:
    """A connector that is a shell script, which no manifest could hold: hence put in afterwards."""
    manifest = read_manifest(
        {
            "slug": "script",
            "name": "script",
            "version": "1",
            "category": "subdomains",
            "fans_out": "targets",
            "image": "runlane-connector/echo",
            "digest": image,
            "entrypoint": ["/bin/sh"],
            "input": "stdin" if reads_job else "argv",
            "output": "records",
            "network": "none",
            "limits": {"memory_mb": 16, "cpus": 0.5, "pids": 16, "tmpfs_mb": 1, "parallelism": 8, **limits},
        }
    )
    return replace(manifest, entrypoint=("/bin/sh", "-c", text))


@dataclass(slots=True)
class Host:
    """A scan host in container mode that belongs to one test."""

    containers: ContainerHost
    client: docker.APIClient
    home: str
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def batch(
        self, manifest: Manifest, *jobs: str, target: Mapping[str, object] | None = None, **options: object
    ) -> EachBatch:
        """A batch of jobs about made-up hosts, or about one target."""
        runner = ContainerRunner(self.containers, manifest, manifest.limits.wall_s, "run-1")
        claimed = tuple(ClaimedJob(job, 1, target or {"host": f"{job}.lab.test"}) for job in jobs or ("j0",))
        spec = BatchSpec(manifest.tool(), claimed, options, f"test/{self.home}", ScanLimits())
        adapter = manifest.adapter()
        assert isinstance(adapter.way, Each)
        return EachBatch(runner, spec, adapter, adapter.way, self.finished.set)

    def containers_now(self) -> list[str]:
        """Ids of the containers of this host, running or not."""
        label = f"{names.CONTAINER_HOME}={self.home}"
        return [each["Id"] for each in self.client.containers(all=True, filters={"label": label})]

    def running_now(self) -> list[str]:
        """Ids of those that run."""
        label = f"{names.CONTAINER_HOME}={self.home}"
        return [each["Id"] for each in self.client.containers(filters={"label": label})]


def host_on(engine: Engine, client: docker.APIClient, *images: str, most: int = 8, **more: object) -> Host:
    """A host that allows these images."""
    home = str(uuid4())
    labels = {names.CONTAINER_HOME: home, names.CONTAINER_INCARNATION: "life-1"}
    settings = ContainerSettings(frozenset(images), most, **more)  # type: ignore[arg-type]  # of one field each
    return Host(ContainerHost(engine, settings, Places(most), labels), client, home)


async def run(batch: EachBatch) -> dict[str, Member]:
    """Works a batch off."""
    async with asyncio.timeout(WAIT_S):
        await batch.run()
    return {member.job_id: member for member in batch.take_finished()}
