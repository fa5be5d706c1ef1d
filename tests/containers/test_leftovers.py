"""Containers that a killed installation has left behind are found by those who look for leftovers."""

from pathlib import Path
from uuid import uuid4

import docker
import pytest

from runlane import names
from tests.e2e.leftovers import containers

pytestmark = pytest.mark.integration


async def test_container_of_a_worker_is_a_leftover_of_its_state_folder_and_of_no_other(
    client: docker.APIClient, busybox: str, engine_url: str, tmp_path: Path
) -> None:
    homes = {}
    for name in ("one", "other"):
        homes[name] = str(uuid4())
        (tmp_path / name / "worker").mkdir(parents=True)
        (tmp_path / name / "worker" / "home").write_text(homes[name])
    labels = {names.CONTAINER_HOME: homes["one"]}
    made = client.create_container(busybox, ["-c", "true"], entrypoint="/bin/sh", labels=labels)["Id"]

    try:
        assert await containers(tmp_path / "one", engine_url) == [made]
        assert await containers(tmp_path, engine_url) == [made]
        assert await containers(tmp_path / "other", engine_url) == []
    finally:
        client.remove_container(made, force=True)
