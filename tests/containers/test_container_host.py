"""Images and leftovers on a host: nothing runs that is not allowed, and nothing stays."""

import asyncio
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from runlane.connectors import Network
from runlane.containers import MIB, ContainerSpec
from runlane.containers.engine import Engine
from runlane.errors import Invalid, Unavailable
from runlane.jobs import Outcome
from runlane.scan import container_host
from runlane.scan.config import ContainerSettings
from runlane.scan.container_host import clear, short
from runlane.settings import Settings
from runlane.stack.doctor_containers import check_containers
from runlane.stack.findings import Level
from tests.containers.container_jobs import BUSYBOX, DONE, host_on, run, script
from tests.containers.door import door_to
from tests.containers.registry import registry
from tests.waiting import until

pytestmark = pytest.mark.integration

ABSENT = f"sha256:{'0' * 64}"


async def test_absent_image_sends_the_job_back(engine: Engine, client: docker.APIClient) -> None:
    members = await run(host_on(engine, client, ABSENT).batch(script(ABSENT, "exit 0")))

    assert members["j0"].outcome is Outcome.REJECTED
    assert members["j0"].error == f"the image {short(ABSENT)} is not on this host"


async def test_image_is_fetched_by_its_digest_in_the_background(
    engine: Engine, client: docker.APIClient, busybox: str
) -> None:
    """The first job is sent back meanwhile; a later one finds the image."""
    with registry(BUSYBOX, is_answering=True) as remote:
        host = host_on(engine, client, remote.digest, may_pull=True)
        manifest = replace(script(remote.digest, f"echo '{DONE}'"), image=remote.image)
        first = await run(host.batch(manifest))
        reference = f"{remote.image}@{remote.digest}"
        await until(lambda: engine.image(reference))
        second = await run(host.batch(manifest))

    await until(lambda: not host.containers_now())
    client.remove_image(reference)
    assert first["j0"].outcome is Outcome.REJECTED
    assert first["j0"].error == f"the image {short(remote.digest)} is not on this host: it is being fetched"
    assert second["j0"].outcome is Outcome.COMPLETED


async def test_fetch_that_hangs_holds_up_no_cancel_and_no_other_job(
    engine: Engine, client: docker.APIClient, busybox: str
) -> None:
    """The fetch of an image held a lock, and cancels waited for minutes."""
    with registry(BUSYBOX, is_answering=False) as remote:
        host = host_on(engine, client, remote.digest, busybox, may_pull=True)
        await run(host.batch(replace(script(remote.digest, ""), image=remote.image)))
        await asyncio.to_thread(remote.asked.wait)

        other = host.batch(script(busybox, "sleep 600"), "j0", "j1")
        running = asyncio.create_task(other.run())
        await until(lambda: len(host.running_now()) == 2)
        assert other.cancel("j0", 1)
        await until(lambda: len(host.containers_now()) == 1, 10)
        other.stop()
        await running
        again = await run(host.batch(replace(script(remote.digest, ""), image=remote.image)))

    assert "it is being fetched" in str(again["j0"].error)
    await host.containers.close()


async def test_image_with_volumes_of_its_own_is_refused(
    engine: Engine, client: docker.APIClient, busybox: str
) -> None:
    made = client.create_container(busybox, ["true"], entrypoint="/bin/sh")["Id"]
    image = client.commit(made, changes="VOLUME /data")["Id"]
    client.remove_container(made)

    members = await run(host_on(engine, client, image).batch(script(image, f"echo '{DONE}'")))

    client.remove_image(image)
    assert members["j0"].outcome is Outcome.REJECTED
    assert "declares volumes" in str(members["j0"].error)


async def test_absent_network_sends_the_job_back(
    engine: Engine, client: docker.APIClient, busybox: str
) -> None:
    host = host_on(engine, client, busybox, network="runlane-nowhere")
    manifest = replace(script(busybox, f"echo '{DONE}'"), network=Network.TARGETS)

    members = await run(host.batch(manifest, target={"host": "127.0.0.1"}, allow=["127.0.0.0/8"]))

    assert members["j0"].outcome is Outcome.REJECTED
    assert members["j0"].error == "the engine has no network runlane-nowhere"


async def test_engine_that_is_away_charges_nobody(
    client: docker.APIClient, engine_url: str, busybox: str, short_folder: Path
) -> None:
    async with door_to(engine_url, short_folder) as (door, url):
        engine = await Engine.open(url, 1)
        door.shut()

        members = await run(host_on(engine, client, busybox).batch(script(busybox, f"echo '{DONE}'")))

        engine.close()
    assert members["j0"].outcome is Outcome.REJECTED
    assert "the container engine does not answer" in str(members["j0"].error)


async def test_engine_that_goes_away_charges_nobody_and_its_container_is_removed_in_the_end(
    client: docker.APIClient, engine_url: str, busybox: str, short_folder: Path
) -> None:
    async with door_to(engine_url, short_folder) as (door, url):
        engine = await Engine.open(url, 1)
        host = host_on(engine, client, busybox)
        running = asyncio.create_task(run(host.batch(script(busybox, "sleep 600"))))
        await until(host.running_now)

        door.shut()

        members = await running
        assert members["j0"].outcome is Outcome.REJECTED
        assert host.running_now()
        door.open()
        await until(lambda: not host.containers_now())
        await host.containers.close()
        engine.close()


class LateEngine(Engine):
    """Its answer to a creation is lost; what was asked for is made after it was looked for in vain."""

    made: asyncio.Task[None] | None = None

    async def create(self, name: str, spec: ContainerSpec) -> None:
        self.looked = asyncio.Event()
        self.made = asyncio.create_task(self._make(name, spec))
        raise Unavailable("the container engine does not answer: Read timed out")

    async def _make(self, name: str, spec: ContainerSpec) -> None:
        await self.looked.wait()
        await super().create(name, spec)

    async def remove(self, name: str) -> None:
        await super().remove(name)
        self.looked.set()


async def test_container_that_is_made_after_nobody_waits_for_it_any_more_is_removed(
    engine_url: str, client: docker.APIClient, busybox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_host, "LATE_S", 1.0)
    engine = await LateEngine.open(engine_url, 1)
    host = host_on(engine, client, busybox)

    member = (await run(host.batch(script(busybox, "exit 0"))))["j0"]
    assert engine.made is not None
    await engine.made
    is_made = bool(host.containers_now())
    await until(lambda: not host.containers_now())

    assert (member.outcome, is_made) == (Outcome.REJECTED, True)
    engine.close()


async def test_engine_that_nobody_serves_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await Engine.open("unix:///nowhere/engine.sock", 1)


async def test_start_removes_what_the_folder_left_and_nothing_else(
    engine: Engine, client: docker.APIClient, busybox: str
) -> None:
    """Orphans of an earlier life; containers of another folder, or of nobody of ours, are let be."""
    mine, other = (host_on(engine, client, busybox) for _ in range(2))
    spec = ContainerSpec(
        busybox, ("/bin/sh", "-c", "sleep 600"), False, 16 * MIB, 0.5, 8, 0, labels=mine.containers.labels
    )
    for name, each in (("a", spec), ("b", spec), ("c", replace(spec, labels=other.containers.labels))):
        await engine.create(f"{mine.home}-{name}", each)
        await engine.start(f"{mine.home}-{name}")

    await clear(engine, mine.containers.settings, mine.home)

    assert mine.containers_now() == []
    assert len(other.running_now()) == 1
    await clear(engine, other.containers.settings, other.home)


async def test_network_of_the_host_is_refused_at_the_start(engine: Engine) -> None:
    with pytest.raises(Invalid, match="the host's own"):
        await clear(engine, ContainerSettings(frozenset(), network="host"), "nobody")


async def test_doctor_names_the_engine_and_what_is_missing(
    engine_url: str, busybox: str, tmp_path: Path
) -> None:
    listed = tmp_path / "images"
    listed.write_text(f"{busybox}  # the test connector\n")
    settings = Settings.load().model_copy(
        update={"scan_engine": engine_url, "scan_network": "none", "scan_images": f"@{listed}"}
    )

    good, absent, away = [
        await check_containers(settings.model_copy(update=changes))
        for changes in ({}, {"scan_images": ABSENT}, {"scan_engine": "unix:///nowhere"})
    ]

    assert [check.level for check in good] == [Level.OK, Level.OK]
    assert engine_url in good[0].detail
    assert [check.level for check in absent] == [Level.OK, Level.WARN]
    assert [check.level for check in away] == [Level.WARN]
