"""Which container engine is there, and a host in a network of its own for connectors to scan."""

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import docker

from tests.containers.container_jobs import LabHost

DEFAULT_SOCKET: Final = Path("/var/run/docker.sock")
START_S: Final = 20.0

OPEN_PORTS: Final = (2222, 8080)
"""Of a lab host."""

_SERVE: Final = "nc -ll -p 2222 -e /bin/busybox echo SSH-2.0-lab & nc -ll -p 8080 -e /bin/busybox id & wait"


def url_of_engine() -> str:
    """Where an engine would be: what `DOCKER_HOST` says, else the usual socket."""
    return os.environ.get("DOCKER_HOST") or f"unix://{DEFAULT_SOCKET}"


def answers(url: str) -> bool:
    """Whether an engine is there."""
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
def serving_host(client: docker.APIClient, busybox: str) -> Iterator[LabHost]:
    """A container that listens on two ports, for the length of the block."""
    name = f"runlane-lab-{secrets.token_hex(4)}"
    network = client.create_network(name, driver="bridge", internal=True)["Id"]
    spec = client.create_host_config(network_mode=name, log_config={"Type": "none"})
    host = client.create_container(
        busybox, ["-c", _SERVE], entrypoint="/bin/sh", host_config=spec, labels={"runlane.test": name}
    )["Id"]
    try:
        client.start(host)
        found = client.inspect_container(host)["NetworkSettings"]["Networks"][name]
        subnet = client.inspect_network(name)["IPAM"]["Config"][0]["Subnet"]
        for port in OPEN_PORTS:
            _await_port(found["IPAddress"], port)
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
            raise TimeoutError(f"the lab host does not listen on {port}")
        time.sleep(0.05)
