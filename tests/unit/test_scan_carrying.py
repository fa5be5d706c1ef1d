"""Which claims a host carries: a manifest is read again, and the host's own list decides."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import sentinel

import pytest

from runlane.connectors import read_manifest
from runlane.containers import MIB, ContainerSpec
from runlane.containers.engine import configuration
from runlane.errors import Invalid
from runlane.scan.carrying import Carried, NotCarried, carry
from runlane.scan.config import ContainerSettings, read_digests
from runlane.scan.container_host import ContainerHost, Places, short
from runlane.scan.programs import ProgramHost
from runlane.scan.wire import Claimed, ClaimedJob, read_claimed

DIGEST = f"sha256:{'0a' * 32}"
ECHO: Mapping[str, object] = {
    "slug": "echo",
    "name": "echo",
    "version": "2.1",
    "category": "bench",
    "fans_out": "targets",
    "image": "tools/echo",
    "digest": DIGEST,
    "entrypoint": ["/bin/echo-job"],
    "input": "stdin",
    "output": "records",
    "network": "none",
}
PROGRAMS = ProgramHost(sentinel.launcher, Path("/nowhere"), {}, {"nmap": "7.93"})


def host(*allowed: str) -> ContainerHost:
    return ContainerHost(sentinel.engine, ContainerSettings(frozenset(allowed)), Places(1), {})


def claim(tool_id: str = "echo", connector: Mapping[str, object] | None = ECHO) -> Claimed:
    return Claimed(tool_id, "bench", "run", {}, (ClaimedJob("j", 1, {}),), connector=connector)


def reason(containers: ContainerHost | None, claimed: Claimed) -> str:
    said = carry(PROGRAMS, containers, claimed)
    assert isinstance(said, NotCarried)
    return said.reason


async def test_allowed_connector_is_carried_in_its_version() -> None:
    for tool_id in ("echo", "echo_0123456789ab"):
        carried = carry(PROGRAMS, host(DIGEST), claim(tool_id))

        assert isinstance(carried, Carried)
        assert (carried.version, carried.tool.toolset) == ("2.1", "container")


async def test_connector_that_is_not_allowed_is_sent_back() -> None:
    assert reason(host(), claim()) == f"this host does not allow the image {short(DIGEST)} of echo"
    assert reason(None, claim()) == "this host runs no containers"


async def test_manifest_is_read_again_by_the_host() -> None:
    asks_for_more = {**ECHO, "network": "host", "privileged": True, "limits": {"memory_mb": -1}}

    said = reason(host(DIGEST), claim(connector=asks_for_more))

    assert all(place in said for place in ("network", "privileged", "limits.memory_mb"))


async def test_manifest_of_another_tool_is_sent_back() -> None:
    assert "came with a job of other" in reason(host(DIGEST), claim("other"))


async def test_tool_that_is_unknown_or_not_installed_is_sent_back() -> None:
    assert reason(None, claim("nothing", None)) == "this host does not know the tool nothing"
    assert reason(None, claim("naabu", None)) == "this host does not carry the tool naabu"
    assert isinstance(carry(PROGRAMS, None, claim("nmap", None)), Carried)


def test_connector_of_a_claim_is_optional() -> None:
    raw: dict[str, object] = {
        "tool_id": "echo",
        "category": "bench",
        "run_id": "r",
        "options": {},
        "jobs": [{"job_id": "j", "attempt": 1, "spec": {}}],
    }

    assert read_claimed(raw).connector is None
    assert read_claimed({**raw, "connector": dict(ECHO)}).connector == ECHO


def test_images_are_allowed_by_digests_alone(tmp_path: Path) -> None:
    other = f"sha256:{'1' * 64}"
    listed = tmp_path / "images"
    listed.write_text(f"# ours\n{DIGEST}  # echo\n\n{other}\n")

    assert read_digests("") == frozenset()
    assert read_digests(f"{DIGEST}, {other}") == read_digests(f"@{listed}") == {DIGEST, other}
    for bad in ("tools/echo:latest", DIGEST[:-1], f"@{tmp_path}/none"):
        with pytest.raises(Invalid):
            read_digests(bad)


def test_worker_without_container_mode_loads_no_sdk() -> None:
    program = "import sys, runlane.scan.worker; print('docker' in sys.modules)"

    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert said.stdout.strip() == "False"


def test_container_is_told_no_more_than_its_limits() -> None:
    limits = read_manifest(ECHO).limits
    spec = ContainerSpec(DIGEST, ("/a", "b"), True, limits.memory_mb * MIB, limits.cpus, limits.pids, 0)

    given = configuration(spec)

    host_config = given["HostConfig"]
    assert isinstance(host_config, dict)
    assert (given["Entrypoint"], given["Cmd"], given["User"]) == (["/a"], ["b"], "65534:65534")
    assert host_config["CapDrop"] == ["ALL"]
    assert host_config["Tmpfs"] == {}
    assert host_config["NetworkMode"] == "none"
    assert not {"Binds", "Mounts", "Devices", "CapAdd", "PortBindings", "VolumesFrom"} & set(host_config)
