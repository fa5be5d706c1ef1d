"""Log lines: one chain for ours and others', scrubbed last, nothing that a terminal would obey."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from runlane.observability import configure

TOKEN = "q8Zt" * 12


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def fail() -> None:
    try:
        int(TOKEN)
    except ValueError as error:
        raise RuntimeError("outer") from error


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    line: dict[str, object] = json.loads(capsys.readouterr().err.splitlines()[-1])
    return line


def test_a_line_is_json_without_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")

    structlog.get_logger("runlane.part").info(
        "thing_done", job_id="job/1", api_key="x", note=TOKEN, detail=f"got {TOKEN}", inner={"password": "x"}
    )

    line = last_line(capsys)
    assert line.pop("timestamp")
    assert line == {
        "event": "thing_done",
        "level": "info",
        "logger": "runlane.part",
        "job_id": "job/1",
        "note": "***",
        "detail": "got ***",
        "inner": {},
    }


def test_a_traceback_names_modules_and_hides_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")

    try:
        fail()
    except RuntimeError:
        structlog.get_logger("runlane.part").exception("thing_failed")

    text = str(last_line(capsys)["exception"])
    assert text.startswith("builtins.RuntimeError: outer\n")
    assert "from builtins.ValueError: invalid literal for int() with base 10: '***'" in text
    assert " in fail" in text
    assert "/" not in text


def test_each_error_of_a_group_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")

    structlog.get_logger("x").error(
        "many", exc_info=ExceptionGroup("several", [ValueError("one"), OSError("two")])
    )

    text = str(last_line(capsys)["exception"])
    assert "with builtins.ValueError: one" in text
    assert "with builtins.OSError: two" in text


def test_lines_of_other_libraries_pass_the_same_chain(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")

    logging.getLogger("somebody").warning("sent %s", TOKEN, extra={"secret": 1, "n": 2})

    line = last_line(capsys)
    assert line["event"] == "sent ***"
    assert line["n"] == 2
    assert "secret" not in line


def test_lines_below_the_level_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "warning")

    structlog.get_logger("x").info("quiet")
    logging.getLogger("x").info("quiet")

    assert capsys.readouterr().err == ""


def test_a_console_line_carries_no_terminal_controls(capsys: pytest.CaptureFixture[str]) -> None:
    configure("console", "info")

    structlog.get_logger("x").info("seen", title="\x1b[2J\x07gone", note=TOKEN)

    text = capsys.readouterr().err
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "note=***" in text
