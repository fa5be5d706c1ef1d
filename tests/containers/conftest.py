"""A real container engine, images made of files of this machine, and a network that leads nowhere else."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import docker
import pytest
import pytest_asyncio

from connectors.build import build
from runlane.containers.engine import Engine
from tests.containers.container_jobs import BUSYBOX, CONNECTORS, LabHost

DEFAULT_SOCKET: Final = Path("/var/run/docker.sock")
START_S: Final = 20.0

SERVE: Final = "nc -ll -p 2222 -e /bin/busybox echo SSH-2.0-lab & nc -ll -p 8080 -e /bin/busybox id & wait"
"""Two services of a lab host."""


@pytest.fixture(scope="session")
def engine_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The engine that is there, or one of our own; where there is none these tests are skipped."""
    if url := os.environ.get("DOCKER_HOST"):
        if not _answers(url):
            pytest.skip(f"no container engine answers at DOCKER_HOST={url}")
        yield url
    elif _answers(f"unix://{DEFAULT_SOCKET}"):
        yield f"unix://{DEFAULT_SOCKET}"
    elif os.geteuid() == 0 and shutil.which("dockerd"):
        with _own_engine(tmp_path_factory.mktemp("engine")) as own:
            yield own
    else:
        pytest.skip("no container engine: none answers, and dockerd is not installed or we are not root")


def _answers(url: str) -> bool:
    path = url.removeprefix("unix://")
    try:
        if path != url:  # the client leaves a socket open where nobody listens
            with socket.socket(socket.AF_UNIX) as knocking:
                knocking.connect(path)
        docker.APIClient(base_url=url, timeout=5).close()
    except (OSError, docker.errors.DockerException):
        return False
    return True


@contextmanager
def _own_engine(folder: Path) -> Iterator[str]:
    """`dockerd` with a data folder of its own, stopped by its process id."""
    run = Path(tempfile.mkdtemp(prefix="runlane-engine-"))  # short: so are the paths of sockets
    url = f"unix://{run}/engine.sock"
    places = ("--data-root", folder / "data", "--exec-root", run / "exec", "-p", run / "engine.pid")
    with (folder / "log").open("wb") as log:
        command = ["dockerd", *map(str, places), "-H", url, "--iptables=false", "--bridge=none"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                last = (folder / "log").read_text(errors="replace").splitlines()[-1:]
                pytest.skip(f"dockerd does not start here: {last}")
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(run, ignore_errors=True)


@pytest.fixture(scope="session")
def client(engine_url: str) -> Iterator[docker.APIClient]:
    """The engine as tests look at it, past the product."""
    client = docker.APIClient(base_url=engine_url, timeout=60)
    yield client
    client.close()


@pytest_asyncio.fixture
async def engine(engine_url: str) -> AsyncIterator[Engine]:
    """The engine as the product uses it."""
    opened = await Engine.open(engine_url, 8)
    yield opened
    opened.close()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for sockets, whose paths are bounded to about a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="runlane-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def busybox(engine_url: str) -> str:
    """Id of the image of the test connector: a shell and small tools, in the form of one static program."""
    if not BUSYBOX.exists():
        pytest.skip("busybox-static is not installed")
    return build(CONNECTORS / "bench" / "echo", engine_url)


@pytest.fixture(scope="session")
def nmap_image(engine_url: str) -> str:
    """Id of the image of the shipped connector."""
    if not shutil.which("nmap"):
        pytest.skip("nmap is not installed")
    return build(CONNECTORS / "ports_scanner" / "nmap", engine_url)


@pytest.fixture
def lab_host(client: docker.APIClient, busybox: str) -> Iterator[LabHost]:
    """A second container that listens on two ports."""
    name = f"runlane-lab-{secrets.token_hex(4)}"
    network = client.create_network(name, driver="bridge", internal=True)["Id"]
    spec = client.create_host_config(network_mode=name, log_config={"Type": "none"})
    host = client.create_container(
        busybox, ["-c", SERVE], entrypoint="/bin/sh", host_config=spec, labels={"runlane.test": name}
    )["Id"]
    try:
        client.start(host)
        found = client.inspect_container(host)["NetworkSettings"]["Networks"][name]
        subnet = client.inspect_network(name)["IPAM"]["Config"][0]["Subnet"]
        _await_port(found["IPAddress"], 8080)
        _await_port(found["IPAddress"], 2222)
        yield LabHost(name, found["IPAddress"], subnet)
    finally:
        client.remove_container(host, force=True, v=True)
        client.remove_network(network)


def _await_port(address: str, port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((address, port)) == 0:
                return
        if time.monotonic() > deadline:
            pytest.fail(f"the lab host does not listen on {port}")
        time.sleep(0.05)
