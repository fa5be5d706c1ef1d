"""The tool stream: jobs and cancels as JSON Lines on fd 0, records and outcomes on fd 1.

One loop for all probes. A cancel ends its job at once; that it has ended is the last that is said about it.
An error of one job is its own outcome and no other's; a tick tells the reader that the loop itself is alive.
"""

import asyncio
import json
import os
import stat
import sys
import traceback
from collections.abc import AsyncIterator, Mapping
from typing import Final

from runlane.probes.job import BadInput, Done, DoneOutcome, ProbeJob, RunJob, parse_job
from runlane.tools import Tool
from runlane.tools.clean import JsonValue

TICK_S: Final = 1.0
"""Seconds between life signs; readers expect one every two."""

MAX_LINE_BYTES: Final = 1_000_000
"""Longest line that is written; a longer record is dropped and the job's result marked as incomplete."""

MAX_UNSENT_BYTES: Final = 65_536
"""Written lines that may wait for the reader; beyond, a job waits before it goes on."""

_CHUNK: Final = 65_536
_EXIT_OK: Final = 0
_EXIT_READER_GONE: Final = 1


def serve_stream(tool: Tool, run_job: RunJob, source: int = 0, sink: int = 1) -> int:
    """Works off the stream from `source` to `sink` with the tool's parallelism; returns the exit code.

    0 after the end of the source once all jobs are done, 1 if the reader of the sink has gone.
    """
    code = _EXIT_OK
    try:
        asyncio.run(_Stream(tool, run_job, sink).run(source))
    except* (BrokenPipeError, ConnectionResetError):
        code = _EXIT_READER_GONE
    return code


class _Stream:
    def __init__(self, tool: Tool, run_job: RunJob, sink: int) -> None:
        self._tool = tool
        self._run_job = run_job
        self._slots = asyncio.Semaphore(tool.parallelism)
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._output = _Output(sink)

    async def run(self, source: int) -> None:
        async with asyncio.TaskGroup() as group:
            ticker = group.create_task(self._tick())
            async for line in _read_lines(source):
                self._accept(line, group)
            while self._jobs:
                await asyncio.wait(self._jobs.values())
            await self._output.drain()
            ticker.cancel()

    def _accept(self, line: bytes, group: asyncio.TaskGroup) -> None:
        try:
            message: JsonValue = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        fields = message if isinstance(message, dict) else {}
        cancelled, job_id = fields.get("cancel"), fields.get("job")
        if isinstance(cancelled, str):
            if cancelled in self._jobs:
                self._jobs[cancelled].cancel()
        elif isinstance(job_id, str) and job_id not in self._jobs:
            task = group.create_task(self._work(job_id, fields))
            self._jobs[job_id] = task
            task.add_done_callback(lambda ended: self._forget(job_id, ended))
        else:
            sys.stderr.write(f"ignored: {line[:200]!r}\n")

    def _forget(self, job_id: str, ended: asyncio.Task[None]) -> None:
        del self._jobs[job_id]
        if ended.cancelled():  # said here: one that was cancelled before it began runs no line of its own
            self._output.put({"job": job_id, "done": {"outcome": "cancelled"}})

    async def _work(self, job_id: str, fields: Mapping[str, JsonValue]) -> None:
        async with self._slots:
            try:
                job = parse_job(job_id, fields, self._tool.wall_s)
            except BadInput as error:
                done = Done(DoneOutcome.FATAL, str(error), complete=False)
            else:
                done = await self._attempt(job)
            await self._output.write({"job": job_id, "done": done.as_json()})

    async def _attempt(self, job: ProbeJob) -> Done:
        dropped = 0

        async def emit(record: Mapping[str, object]) -> None:
            nonlocal dropped
            if not await self._output.write({"job": job.id, "record": record}):
                dropped += 1

        limit = asyncio.timeout(job.options.timeout_s)
        try:
            async with limit:
                done = await self._run_job(job, emit)
        except Exception as error:
            # one job's error must not reach the other jobs of the batch
            if self._output.is_broken:
                raise
            if limit.expired():
                text = f"timed out after {job.options.timeout_s:g} s"
                return Done(DoneOutcome.FAILED, text, complete=False)
            return _judge(error)
        return (
            done
            if not dropped
            else Done(
                done.outcome, done.error, complete=False, reachable=done.reachable, coverage=done.coverage
            )
        )

    async def _tick(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(TICK_S)
            number += 1
            await self._output.write({"tick": number})


def _judge(error: Exception) -> Done:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, BadInput):
        return Done(DoneOutcome.FATAL, str(error), complete=False)
    traceback.print_exception(error, file=sys.stderr)
    return Done(DoneOutcome.FAILED, f"{type(error).__name__}: {error}", complete=False)


class _Output:
    """Whole lines to a file descriptor: those of one turn of the loop in one call, never blocking it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._unsent = bytearray()
        self._is_planned = False
        self._sent = asyncio.Event()
        self._error: OSError | None = None
        mode = os.fstat(fd).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            # anything else (terminal, file) may be shared with other programs and is written to as it is
            os.set_blocking(fd, False)

    @property
    def is_broken(self) -> bool:
        """Whether the reader has gone: every further write raises."""
        return self._error is not None

    async def write(self, message: Mapping[str, object]) -> bool:
        """Writes one line, waiting while much is unsent; False if it is too long and was dropped."""
        is_taken = self.put(message)
        if len(self._unsent) > MAX_UNSENT_BYTES or self.is_broken:
            await self.drain()
        return is_taken

    def put(self, message: Mapping[str, object]) -> bool:
        """Takes one line to be written in this turn of the loop; False if it is too long."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(line) > MAX_LINE_BYTES:
            sys.stderr.write(f"dropped a line of {len(line)} bytes\n")
            return False
        self._unsent += line
        if not self._is_planned:
            self._is_planned = True
            self._sent.clear()
            asyncio.get_running_loop().call_soon(self._send)
        return True

    async def drain(self) -> None:
        """Waits until everything is written; raises what made it impossible."""
        if self._is_planned:
            await self._sent.wait()
        if self._error is not None:
            raise self._error

    def _send(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._unsent:
                del self._unsent[: os.write(self._fd, self._unsent)]
        except BlockingIOError:
            loop.add_writer(self._fd, self._send)
            return
        except OSError as error:
            self._error = error
            self._unsent.clear()
        loop.remove_writer(self._fd)
        self._is_planned = False
        self._sent.set()


async def _read_lines(fd: int) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in _read_chunks(fd):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


async def _read_chunks(fd: int) -> AsyncIterator[bytes]:
    if stat.S_ISREG(os.fstat(fd).st_mode):
        # the loop cannot wait for a regular file, and need not
        while chunk := os.read(fd, _CHUNK):
            yield chunk
        return
    reader = asyncio.StreamReader()
    with os.fdopen(fd, "rb", buffering=0, closefd=False) as pipe:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while chunk := await reader.read(_CHUNK):
                yield chunk
        finally:
            transport.close()
