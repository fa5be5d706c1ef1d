"""Every door by which text leaves a process: a secret that an error quotes goes through none."""

import asyncio
import json
import logging
from collections.abc import Iterator
from uuid import UUID

import orjson
import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultPayloadConverter
from temporalio.exceptions import ApplicationError

from api import problems
from lanes.letters import describe
from runlane.cli import processes
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.output import print_error
from runlane.errors import Invalid, Unavailable
from runlane.events import (
    EVENT_CATALOG,
    Actor,
    Redaction,
    envelope,
    payloads,
    scrub,
    scrub_argv,
    use_redaction,
)
from runlane.failures import BearingFailureConverter
from runlane.gateway import answers
from runlane.observability import configure
from runlane.settings import Settings

ID = UUID("01a22ba7-d81b-770c-84aa-4d540b75ff15")
SECRETS = ["hunter2", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "q8Zt" * 12]
SAID = (
    "no answer of postgres://runlane:hunter2@db/x with ghp_16C7e42F292c6912E7710c838347Ae178B4a "
    + "q8Zt" * 12
)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def is_clean(text: str) -> bool:
    return "no answer of postgres://runlane:***@db/x" in text and not any(
        secret in text for secret in SECRETS
    )


def an_error() -> Exception:
    error = ApplicationError(SAID, type="unavailable")
    error.__cause__ = OSError(SAID)
    return error


def test_a_failure_of_an_activity_is_clean_with_its_causes() -> None:
    failure = Failure()

    BearingFailureConverter().to_failure(an_error(), DefaultPayloadConverter(), failure)

    assert is_clean(failure.message)
    assert is_clean(failure.cause.message)
    assert not any(secret in str(failure) for secret in SECRETS)


def test_what_a_scan_host_answers_is_clean() -> None:
    said = orjson.dumps({"error": SAID.rpartition(" ")[0], "password": "hunter2", "done": 3})
    payload = Payload(metadata={"encoding": b"json/plain"}, data=said)

    failure = answers.failure(Failure(message=SAID, stack_trace=SAID))
    beat, result = answers.details(Payloads(payloads=[payload])), answers.result(Payloads(payloads=[payload]))

    assert is_clean(failure.message)
    assert is_clean(failure.stack_trace)
    for answer in (beat, result):
        data = orjson.loads(answer.payloads[0].data)
        assert data.keys() == {"error", "done"}
        assert is_clean(data["error"])


@pytest.mark.parametrize("payload", [b"no json", b'{"done": 3}', b"null"])
def test_what_a_scan_host_answers_without_a_secret_can_be_read_as_before(payload: bytes) -> None:
    said = Payload(metadata={"encoding": b"json/plain"}, data=payload)

    (answer,) = answers.result(Payloads(payloads=[said])).payloads

    assert answer.data == (payload if payload == b"no json" else orjson.dumps(orjson.loads(payload)))


@pytest.mark.parametrize("kind", [Unavailable, Invalid])
def test_a_problem_of_the_api_is_clean(kind: type[Unavailable | Invalid]) -> None:
    app = FastAPI()
    problems.install(app)

    @app.get("/")
    async def _() -> None:
        raise kind(SAID, fields={"options.password": SAID})

    answer = TestClient(app, raise_server_exceptions=False).get("/").json()

    assert is_clean(answer["detail"])
    assert answer["fields"].keys() == {"options.password"}
    assert is_clean(answer["fields"]["options.password"])


def test_an_event_is_clean() -> None:
    event = envelope(
        EVENT_CATALOG.target.created,
        payloads.TargetCreated(target_id=ID, kind="domain", value=SAID.rpartition(" ")[0], network_id=None),
        workspace_id=ID,
        subject="target/x",
        actor=Actor(SECRETS[1], "api_key"),
    )

    assert not any(secret in f"{event.data} {event.attributes}" for secret in SECRETS)


def test_the_error_of_a_dead_letter_is_clean() -> None:
    assert is_clean(describe(OSError(SAID)))


def test_an_error_of_the_command_line_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(CommandError(SAID, ExitCode.UNREACHABLE))

    assert is_clean(capsys.readouterr().err)


def test_a_log_line_is_clean_with_its_exception(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")

    logging.getLogger("some.library").error("%s", SAID, exc_info=an_error(), extra={"token": "hunter2"})

    line = json.loads(capsys.readouterr().err)
    assert is_clean(line["event"])
    assert is_clean(line["exception"])
    assert not any(secret in json.dumps(line) for secret in SECRETS)


def test_a_process_that_dies_says_why_in_a_log_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def die(_settings: Settings, _stop: asyncio.Event) -> None:
        raise OSError(SAID)

    monkeypatch.setenv("RUNLANE_LOG_FORMAT", "json")
    monkeypatch.setattr("os.umask", lambda _mask: 0)

    with pytest.raises(SystemExit) as ended:
        processes._run(die)

    assert ended.value.code == ExitCode.UNEXPECTED
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert line["event"] == "process_failed"
    assert is_clean(line["exception"])


def test_the_setting_makes_a_process_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNLANE_REDACTION", "strict")
    try:
        processes._load()

        assert scrub({"certificate": 1, "n": 1}) == {"n": 1}
    finally:
        use_redaction(Redaction.PRECISE)


def test_an_argument_list_is_clean() -> None:
    argv = ["scan", "--header", f"X-Note: {SECRETS[1]}", SAID, f"https://h.test/?sig={SECRETS[0]}"]

    assert not any(secret in " ".join(scrub_argv(argv)) for secret in SECRETS)
