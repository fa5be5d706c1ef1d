"""Small programs that stand where the tools do, and batches of them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

import orjson

from runlane.jobs import Outcome
from runlane.scan.batch import Batch, BatchSpec
from runlane.scan.config import ScanLimits
from runlane.scan.confine import marked_processes
from runlane.scan.each import EachBatch
from runlane.scan.many import ManyBatch
from runlane.scan.programs import ProgramHost, ProgramRunner
from runlane.scan.wire import ClaimedJob, Member
from runlane.tools import TOOLS
from runlane.tools.adapters.adapter import (
    Adapter,
    Command,
    Conclusion,
    Each,
    Ended,
    Found,
    Many,
    Raw,
    Reader,
    ToolJob,
    Workplace,
)
from runlane.tools.adapters.jsonl import read_object
from runlane.tools.adapters.options import Options, Whole
from tests.waiting import WAIT_S


class Lines:
    """Reads one JSON object a line."""

    def feed(self, line: bytes) -> Sequence[Raw]:
        return [dict(read_object(line).values)]

    def conclude(self, ended: Ended) -> Conclusion:
        if ended.code:
            return Conclusion(failure=f"exit code {ended.code}")
        records = ({"file": ended.output.decode()},) if ended.output is not None else ()
        return Conclusion(complete=True, reachable=True, coverage={"all": True}, records=records)


def argv_of(script: str) -> tuple[str, ...]:
    """A shell starts faster than Python: where a test has little time."""
    return ("sh" if script.startswith("#!sh") else "tool", "-c", script)


def each(*scripts: str, output: str | None = None, silence_s: float = 60) -> Adapter:
    def stage(script: str) -> Callable[[ToolJob, Options, Workplace], tuple[Command, Reader]]:
        def build(job: ToolJob, _options: Options, place: Workplace) -> tuple[Command, Reader]:
            text = "".join(f"{record['host']}+\n" for record in place.found) or f"{job.host}\n"
            return Command(argv_of(script), text.encode(), output), Lines()

        return build

    way = Each(tuple(stage(script) for script in scripts))
    return Adapter((), {"level": Whole(1, 5)}, way, silence_s=silence_s, needs_address=False)


def many(script: str, *, silence_s: float = 60) -> Adapter:
    def command(jobs: Sequence[ToolJob], _options: Options, _place: Workplace) -> Command:
        return Command(argv_of(script), "".join(f"{job.host}\n" for job in jobs).encode())

    def read(line: bytes) -> Found:
        fields = read_object(line)
        return Found(fields.text("host", 100), dict(fields.values))

    def conclude(_job: ToolJob, _options: Options, records: Sequence[Raw]) -> Conclusion:
        return Conclusion(complete=True, reachable=bool(records), coverage={"all": True})

    way = Many(command, lambda job: job.host, read, conclude)
    return Adapter((), {"level": Whole(1, 5)}, way, silence_s=silence_s, needs_address=False)


def batch_of(
    host: ProgramHost,
    adapter: Adapter,
    *names: str,
    options: Mapping[str, object] | None = None,
    parallelism: int = 2,
    on_finished: Callable[[], None] = lambda: None,
    **limits: int,
) -> EachBatch | ManyBatch:
    jobs = tuple(ClaimedJob(name, 1, {"host": f"{name}.test", "kind": "host"}) for name in names)
    tool = replace(TOOLS["nmap"], parallelism=parallelism)
    spec = BatchSpec(tool, jobs, options or {}, f"test/{uuid4()}", ScanLimits(**limits))
    match adapter.way:
        case Each() as way:
            runner = ProgramRunner(host, adapter, spec.mark, spec.limits.batch_output_bytes)
            return EachBatch(runner, spec, adapter, way, on_finished)
        case Many() as way:
            return ManyBatch(host, spec, adapter, way, on_finished)


async def run(batch: Batch) -> dict[str, Member]:
    async with asyncio.timeout(WAIT_S):
        await batch.run()
    return {member.job_id: member for member in batch.take_finished()}


def outcomes(members: Mapping[str, Member]) -> dict[str, Outcome]:
    return {job_id: member.outcome for job_id, member in members.items()}


def records(member: Member) -> list[object]:
    return [orjson.loads(text) for text in member.records]


def processes_of(batch: EachBatch | ManyBatch) -> list[int]:
    mark = batch._spec.mark
    return [pid for pid, found in marked_processes() if found.startswith(mark)]
