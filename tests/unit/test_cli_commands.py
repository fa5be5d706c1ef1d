"""The command line without any server: its tree, its weight, its exit codes, its profile."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runlane.cli.errors import CommandError, ExitCode, exit_code_of_status, from_runlane_error
from runlane.cli.profile import Profile, load_profile, read_profile, write_profile
from runlane.cli.runs import parse_options
from runlane.errors import Conflict, Defect, Forbidden, Invalid, NotFound, Unauthenticated, Unavailable

HEAVY = (
    "httpx2",
    "asyncpg",
    "temporalio",
    "fastapi",
    "sqlalchemy",
    "pydantic",
    "rich.live",
    "redis",
)


def _run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runlane.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""},
    )


@pytest.mark.parametrize(
    "command",
    [
        "up", "down", "doctor", "demo", "migrate", "api", "gateway", "lanes", "docs",
        "worker core", "worker results", "worker scan", "worker list", "worker revoke", "worker rotate",
        "worker show", "worker drain", "worker undrain", "worker delete",
        "network create", "network list", "network show", "network edit", "network delete", "target move",
        "run start", "run watch", "run show", "run list", "run cancel", "run resume",
        "run pause", "run priority", "run rerun", "step cancel", "step priority",
        "job cancel", "job priority", "job rerun", "operation list", "operation show", "operation abort",
        "pause list", "pause set", "pause lift",
        "notification list", "notification count", "notification read", "notification unread",
        "notification mute", "notification mutes", "notification unmute", "notification tail",
        "notification rule list", "notification rule set", "notification rule remove", "event tail",
        "stats", "summary", "lane rebuild", "exclusion list", "exclusion add", "exclusion remove",
        "blackout list", "blackout once", "blackout weekly", "blackout remove",
        "job list", "job show", "job why", "job waiting",
        "target add", "target import", "target tag", "target list", "target show",
        "asset list", "service list", "url list", "screenshot list", "screenshot save", "finding list",
        "key create", "key list", "key rotate", "key revoke", "workspace create",
        "definition save", "definition list", "definition show", "definition versions", "definition delete",
        "group create", "group list", "group show", "group targets", "group edit", "group delete",
        "group add", "group remove",
        "project create", "project list", "project show", "project edit", "project assets", "project delete",
        "config-profile save", "config-profile list", "config-profile delete",
        "rate list", "rate set", "rate remove",
        "integration add", "integration list", "integration show", "integration set", "integration remove",
        "integration enable", "integration disable", "integration rotate", "integration test",
        "integration deliveries", "integration delivery", "integration replay", "integration redeliver",
        "secret set", "secret list", "secret remove", "secret rotate",
        "schedule create", "schedule list", "schedule show", "schedule pause", "schedule resume",
        "schedule delete", "schedule fires", "schedule edit", "schedule run",
        "sweep list", "sweep run",
    ],
)  # fmt: skip
def test_command_is_there_and_explains_itself(command: str, tmp_path: Path) -> None:
    done = _run(*command.split(), "--help", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert f"runlane.cli {command} [OPTIONS]" in done.stdout


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    program = "import sys, runlane.cli; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )

    assert not set(HEAVY) & set(done.stdout.split())


def test_unknown_command_is_a_usage_error(tmp_path: Path) -> None:
    done = _run("rnu", "list", cwd=tmp_path)

    assert done.returncode == ExitCode.USAGE
    assert "rnu" in done.stderr


def test_command_without_a_profile_says_how_to_get_one(tmp_path: Path) -> None:
    done = _run("run", "list", cwd=tmp_path)

    assert done.returncode == ExitCode.UNAUTHENTICATED
    assert done.stdout == ""
    assert "error: no API to talk to" in done.stderr
    assert "try: runlane up" in done.stderr


def test_unreachable_api_is_code_6(tmp_path: Path) -> None:
    (tmp_path / ".runlane").mkdir()
    write_profile(tmp_path / ".runlane" / "cli.json", Profile("http://127.0.0.1:1", "rl_x_y"))

    done = _run("target", "add", "example.com", cwd=tmp_path)

    assert done.returncode == ExitCode.UNREACHABLE
    assert "127.0.0.1:1 does not answer" in done.stderr


def test_key_is_made_only_with_a_database(tmp_path: Path) -> None:
    done = _run("workspace", "create", "x", cwd=tmp_path)

    assert done.returncode == ExitCode.UNREACHABLE
    assert "no database" in done.stderr


def test_exit_codes_tell_the_kinds_of_failure_apart() -> None:
    assert [exit_code_of_status(status) for status in (400, 401, 403, 404, 409, 422, 500, 503)] == [
        5, 4, 5, 3, 5, 5, 6, 6,
    ]  # fmt: skip
    kinds = (Invalid, Forbidden, Conflict, NotFound, Unauthenticated, Unavailable, Defect)
    assert [from_runlane_error(kind("x")).exit_code for kind in kinds] == [5, 5, 5, 3, 4, 6, 1]


def test_profile_is_for_its_owner_only_and_survives_the_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "cli.json"
    profile = Profile("http://127.0.0.1:8300", "rl_x_y", workspace_id="w")

    write_profile(path, profile)
    write_profile(path, profile)

    assert path.stat().st_mode & 0o777 == 0o600
    assert read_profile(path) == profile
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"api_url": "x"}', '{"strange": 1}'])
def test_broken_profile_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cli.json"
    path.write_text(text)

    assert read_profile(path) is None
    assert read_profile(tmp_path / "none.json") is None


def test_environment_comes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(tmp_path / "cli.json", Profile("http://file", "k"))
    monkeypatch.setenv("RUNLANE_PROFILE", str(tmp_path / "cli.json"))
    assert load_profile().api_url == "http://file"

    monkeypatch.setenv("RUNLANE_API_URL", "http://environment/")
    monkeypatch.setenv("RUNLANE_API_KEY", "k")
    assert load_profile().api_url == "http://environment"


def test_options_are_json_where_they_can_be() -> None:
    assert parse_options(["*.resolver=127.7.0.1:53", "ports.ports=80,443", "a.n=5", 'a.l=["x"]', "a.e="]) == {
        "*": {"resolver": "127.7.0.1:53"},
        "ports": {"ports": "80,443"},
        "a": {"n": 5, "l": ["x"], "e": ""},
    }


@pytest.mark.parametrize("text", ["", "a", "a=b", ".b=c", "a.=c"])
def test_option_of_another_form_is_a_usage_error(text: str) -> None:
    with pytest.raises(CommandError) as error:
        parse_options([text])

    assert error.value.exit_code is ExitCode.USAGE


def test_generated_documents_are_up_to_date() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "runlane.cli", "docs", "--check"], capture_output=True, text=True, cwd=root
    )

    assert done.returncode == 0, done.stderr


def test_openapi_names_every_problem_and_no_secret_route() -> None:
    document = json.loads((Path(__file__).parents[2] / "docs/generated/openapi.json").read_text())

    assert not any(path.startswith("/v1/worker/") for path in document["paths"])
    for path, methods in document["paths"].items():
        if path.startswith("/v1/"):
            for operation in methods.values():
                assert {"401", "403", "422", "503"} <= operation["responses"].keys(), path
                content = operation["responses"]["422"]["content"]
                assert list(content) == ["application/problem+json"], path
