"""A tool that finds nothing, in every way a tool can: for benchmarks and tests of the pipeline around it."""

import asyncio
import os
import signal
import sys
import time

from runlane.probes.job import BadInput, Done, DoneOutcome, Emit, ProbeJob
from runlane.probes.stream import serve_stream
from runlane.tools import TOOLS


async def run_job(job: ProbeJob, emit: Emit) -> Done:
    """Does nothing, as told by its options.

    `sleep_ms` waits first · `freeze_ms` blocks the whole process, ticks included · `stderr_bytes` writes that
    much diagnostics · `records` emits that many records ·
    `linger_ms` waits after them · `hold` (a host) keeps the job about it until SIGUSR1 comes ·
    `exit` ends the process with this code ·
    `fail_first` fails while the option `attempt` is not above it · `fatal` (text) ends fatally.
    """
    options = job.options
    if sleep_ms := options.integer("sleep_ms", 0, 0, 86_400_000):
        await asyncio.sleep(sleep_ms / 1_000)
    if freeze_ms := options.integer("freeze_ms", 0, 0, 86_400_000):
        time.sleep(freeze_ms / 1_000)  # noqa: ASYNC251  # a frozen process is what is asked for
    if stderr_bytes := options.integer("stderr_bytes", 0, 0, 100_000_000):
        sys.stderr.write("x" * stderr_bytes)
        sys.stderr.flush()
    for number in range(options.integer("records", 0, 0, 10_000_000)):
        await emit({"number": number})
    if linger_ms := options.integer("linger_ms", 0, 0, 86_400_000):
        await asyncio.sleep(linger_ms / 1_000)
    if options.text("hold") == job.target.host:
        await _let_go()
    if code := options.integer("exit", 0, 0, 255):
        os._exit(code)
    if fatal := options.text("fatal"):
        raise BadInput(fatal)
    if options.integer("attempt", 1, 1, 2**31) <= options.integer("fail_first", 0, 0, 2**31):
        return Done(DoneOutcome.FAILED, "failed as asked", complete=False, reachable=True)
    return Done(reachable=True)


async def _let_go() -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, told.set)
    await told.wait()


def main() -> int:
    """Runs the probe on fd 0 and fd 1."""
    return serve_stream(TOOLS["noop"], run_job)


if __name__ == "__main__":
    sys.exit(main())
