"""The lab as a process: one JSON line when ready; ends on SIGTERM, SIGINT or the end of standard input.

`python -m runlane.lab [--base 127.7.0.0/24] [--scenario full|small] [--slow-ms 0]` prints
`{"resolver": "127.7.0.1:40053", "manifest": {…}}`; its log goes to standard error. The end of standard input
counts because a parent that was killed cannot send a signal: start it with a pipe that stays open.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import threading

import orjson
import structlog

from runlane.errors import RunlaneError
from runlane.lab.network import DEFAULT_BASE
from runlane.lab.scenario import SCENARIOS
from runlane.lab.server import Lab


def main() -> int:
    """Runs the lab until told to end. Returns the exit code: 0, or 1 if the lab could not be opened."""
    arguments = _parse_arguments()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        asyncio.run(_run(arguments.base, arguments.scenario, arguments.slow_ms))
    except RunlaneError as error:
        sys.stderr.write(f"{error.detail}\n")
        return 1
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m runlane.lab", description="A small network to scan.")
    parser.add_argument("--base", default=DEFAULT_BASE, help="loopback network of its addresses")
    parser.add_argument("--scenario", default="full", choices=list(SCENARIOS))
    parser.add_argument("--slow-ms", type=int, default=0, help="latency of every connection, in milliseconds")
    return parser.parse_args()


async def _run(base: str, scenario: str, slow_ms: int) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with Lab.open(base, scenario, slow_ms) as lab:
        ready = {"resolver": lab.resolver, "manifest": lab.manifest.to_json()}
        sys.stdout.buffer.write(orjson.dumps(ready) + b"\n")
        sys.stdout.buffer.flush()
        _watch_stdin(loop, ended)
        await ended.wait()


def _watch_stdin(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Sets `ended` at the end of standard input. A thread: it may be a file, which a loop cannot watch."""

    def wait_for_end() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            continue
        with contextlib.suppress(RuntimeError):  # the loop is over already
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_end, name="stdin", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
