"""A real container engine, images made of files of this machine, and a network that leads nowhere else."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
import pytest_asyncio

from connectors.build import build
from runlane.containers.engine import Engine
from tests.containers.container_jobs import BUSYBOX, CONNECTORS, LabHost
from tests.containers.engines import DEFAULT_SOCKET, START_S, answers, serving_host


@pytest.fixture(scope="session")
def engine_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The engine that is there, or one of our own; where there is none these tests are skipped."""
    if url := os.environ.get("DOCKER_HOST"):
        if not answers(url):
            pytest.skip(f"no container engine answers at DOCKER_HOST={url}")
        yield url
    elif answers(f"unix://{DEFAULT_SOCKET}"):
        yield f"unix://{DEFAULT_SOCKET}"
    elif os.geteuid() == 0 and shutil.which("dockerd"):
        with _own_engine(tmp_path_factory.mktemp("engine")) as own:
            yield own
    else:
        pytest.skip("no container engine: none answers, and dockerd is not installed or we are not root")


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
        while not answers(url):
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
    with serving_host(client, busybox) as host:
        yield host
