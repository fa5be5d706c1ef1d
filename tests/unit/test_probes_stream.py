"""The conversation between a batch and a probe: every job ends exactly once."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runlane.probes import programs
from runlane.tools import TOOLS, Toolset

FAULTY_PROBE = """
import asyncio, sys
from runlane.probes.job import Done, Refused
from runlane.probes.stream import serve_stream
from runlane.tools import TOOLS

async def run_job(job, emit):
    match job.target.host:
        case "crash":
            await emit({"n": 1})
            raise ZeroDivisionError("oops")
        case "refuse":
            async with asyncio.TaskGroup() as group:
                group.create_task(refuse())
        case "huge":
            await emit({"n": "x" * 2_000_000})
            await emit({"n": 2})
        case "stubborn":
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                await emit({"n": "last words"})
                raise
    return Done(reachable=True)

async def refuse():
    raise Refused("not there")

sys.exit(serve_stream(TOOLS["noop"], run_job))
"""


class Stream:
    """A probe process, one line at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def say(self, *messages: Mapping[str, object] | bytes) -> None:
        assert self.process.stdin is not None
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.process.stdin.write(line + b"\n")

    async def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message = json.loads(await self.process.stdout.readline())
        assert isinstance(message, dict)
        return message

    async def finish(self) -> tuple[list[dict[str, Any]], str]:
        output, errors = await self.process.communicate(b"")
        messages = [json.loads(line) for line in output.splitlines()]
        return [message for message in messages if "tick" not in message], errors.decode()


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[Stream]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        yield Stream(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def noop() -> Any:
    return started("-m", "runlane.probes.noop")


def faulty() -> Any:
    return started("-c", FAULTY_PROBE)


def job(job_id: str, host: str = "x", **options: Any) -> dict[str, object]:
    return {"job": job_id, "target": {"host": host}, "options": options}


def test_there_is_a_program_for_every_probe_of_the_tools() -> None:
    assert set(programs.PROBES) == {tool.name for tool in TOOLS.values() if tool.toolset is Toolset.PROBE}


@pytest.mark.parametrize("tool", sorted(programs.PROBES))
async def test_each_program_runs_by_itself_and_ends_with_its_input(tool: str) -> None:
    async with started("-W", "error", "-m", f"runlane.probes.{tool}") as stream:
        stream.say({"job": "a", "target": {}, "options": {}})
        messages, errors = await stream.finish()

    assert [message["done"]["outcome"] for message in messages] == ["fatal"]
    assert errors == ""
    assert stream.process.returncode == 0


async def test_every_job_ends_exactly_once() -> None:
    async with noop() as stream:
        stream.say(*(job(str(number)) for number in range(50)))
        messages, _ = await stream.finish()

    assert sorted(int(message["job"]) for message in messages) == list(range(50))
    assert all(message["done"]["outcome"] == "completed" for message in messages)


async def test_a_cancelled_job_ends_at_once_and_only_that_is_said_about_it() -> None:
    async with noop() as stream:
        stream.say(job("a", sleep_ms=600_000), job("b", sleep_ms=600_000), {"cancel": "a"}, {"cancel": "b"})
        messages, _ = await stream.finish()

    dropped = {"outcome": "cancelled"}
    assert messages == [{"job": "a", "done": dropped}, {"job": "b", "done": dropped}]
    assert stream.process.returncode == 0


async def test_a_job_can_be_cancelled_before_it_began_and_its_siblings_go_on() -> None:
    parallelism = TOOLS["noop"].parallelism
    async with noop() as stream:
        stream.say(*(job(str(number), sleep_ms=300) for number in range(parallelism + 2)))
        stream.say({"cancel": str(parallelism)}, {"cancel": "unknown"})
        messages, _ = await stream.finish()

    ends = {message["job"]: message["done"]["outcome"] for message in messages}
    assert ends.pop(str(parallelism)) == "cancelled"
    assert ends == {str(number): "completed" for number in (*range(parallelism), parallelism + 1)}


async def test_an_error_of_one_job_is_that_jobs_outcome_alone() -> None:
    async with faulty() as stream:
        stream.say(job("a", "crash"), job("b"), job("c", "refuse"))
        messages, errors = await stream.finish()

    ends = {message["job"]: message["done"] for message in messages if "done" in message}
    assert {"job": "a", "record": {"n": 1}} in messages
    assert (ends["a"]["outcome"], ends["a"]["error"]) == ("failed", "ZeroDivisionError: oops")
    assert not ends["a"]["complete"]
    assert ends["b"]["outcome"] == "completed"
    assert (ends["c"]["outcome"], ends["c"]["error"]) == ("fatal", "not there")
    assert "ZeroDivisionError: oops" in errors


async def test_a_record_that_is_too_long_is_dropped_and_the_result_incomplete() -> None:
    async with faulty() as stream:
        stream.say(job("a", "huge"))
        messages, _ = await stream.finish()

    assert messages[0] == {"job": "a", "record": {"n": 2}}
    assert messages[1]["done"]["outcome"] == "completed"
    assert messages[1]["done"]["complete"] is False


async def test_a_job_over_its_time_fails_and_its_siblings_go_on() -> None:
    async with noop() as stream:
        stream.say(job("slow", sleep_ms=600_000, timeout_s=0.1), job("fast"))
        messages, _ = await stream.finish()

    ends = {message["job"]: message["done"] for message in messages}
    assert (ends["slow"]["outcome"], ends["slow"]["error"]) == ("failed", "timed out after 0.1 s")
    assert ends["fast"]["outcome"] == "completed"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"target": "x"},
        {"target": {"host": ""}},
        {"target": {"host": "x", "port": 0}},
        {"target": {"host": "x", "port": True}},
        {"target": {"host": "x"}, "options": []},
        {"target": {"host": "x"}, "options": {"timeout_s": -1}},
        {"target": {"host": "x"}, "options": {"timeout_s": "x"}},
        {"target": {"host": "x"}, "options": {"allow": "127.0.0.0/8"}},
        {"target": {"host": "x"}, "options": {"allow": ["127.0.0.0/99"]}},
        {"target": {"host": "x"}, "options": {"resolver": "localhost:53"}},
        {"target": {"host": "x"}, "options": {"resolver": "127.0.0.1"}},
    ],
)
async def test_a_job_that_cannot_be_read_is_fatal(fields: dict[str, object]) -> None:
    async with noop() as stream:
        stream.say({"job": "a", **fields})
        messages, _ = await stream.finish()

    assert [message["done"]["outcome"] for message in messages] == ["fatal"]


async def test_lines_that_say_nothing_are_ignored() -> None:
    async with noop() as stream:
        stream.say(b"rubbish", b"[" * 100_000, b"", b"null", {"job": 7}, b"\xff\xfe", job("a"))
        messages, errors = await stream.finish()

    assert [message["job"] for message in messages] == ["a"]
    assert "ignored: b'rubbish'" in errors


async def test_life_signs_come_while_a_job_works() -> None:
    async with noop() as stream:
        stream.say(job("a", sleep_ms=600_000))

        assert await stream.hear() == {"tick": 1}
        assert await stream.hear() == {"tick": 2}


async def test_a_job_is_done_before_more_input_comes() -> None:
    async with noop() as stream:
        for number in ("1", "2"):
            stream.say(job(number))

            assert (await stream.hear())["job"] == number


async def test_the_program_ends_when_its_reader_is_gone() -> None:
    read_end, write_end = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runlane.probes.noop"),
        stdin=asyncio.subprocess.PIPE,
        stdout=write_end,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(write_end)
    os.close(read_end)
    await process.communicate(json.dumps(job("a", records=10)).encode() + b"\n")

    assert process.returncode == 1


async def test_a_slow_reader_slows_the_jobs_and_loses_nothing() -> None:
    async with noop() as stream:
        stream.say(job("a", records=20_000), job("b", records=20_000))
        await stream.hear()
        messages, _ = await stream.finish()

    assert len(messages) + 1 == 40_002


def test_jobs_may_come_from_a_file(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text(json.dumps(job("a")) + "\n" + json.dumps(job("b")))

    async def scenario() -> bytes:
        with jobs.open() as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "runlane.probes.noop"), stdin=file, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
            return output

    lines = asyncio.run(scenario()).splitlines()
    assert [json.loads(line)["job"] for line in lines] == ["a", "b"]
