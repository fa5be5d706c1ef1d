"""The lab as a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import WAIT_S

BASE = f"127.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}.192/26"
COMMAND = [sys.executable, "-m", "runlane.lab", "--scenario", "small"]


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_ready(process: subprocess.Popen[bytes]) -> dict[str, object]:
    assert process.stdout is not None
    ready: dict[str, object] = json.loads(process.stdout.readline())
    return ready


def test_ready_line_tells_resolver_and_manifest() -> None:
    with running("--base", BASE) as process:
        ready = read_ready(process)

    assert str(ready["resolver"]).startswith(BASE.replace(".192/26", ".193:"))
    assert isinstance(ready["manifest"], dict)
    assert ready["manifest"]["base"] == BASE


def test_process_prints_nothing_but_the_ready_line() -> None:
    with running("--base", BASE) as process:
        read_ready(process)
        output, _ = process.communicate(timeout=WAIT_S)

    assert output == b""


def test_process_ends_on_sigterm() -> None:
    with running("--base", BASE) as process:
        read_ready(process)
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=WAIT_S) == 0


def test_process_ends_when_its_standard_input_does() -> None:
    with running("--base", BASE) as process:
        read_ready(process)
        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(timeout=WAIT_S) == 0


def test_refusal_is_one_readable_line() -> None:
    with running("--base", "10.0.0.0/24") as process:
        _, errors = process.communicate(timeout=WAIT_S)

    assert process.returncode == 1
    assert errors.decode().splitlines() == [
        "lab base network 10.0.0.0/24 must lie inside 127.0.0.0/8 and be /26 or larger"
    ]
