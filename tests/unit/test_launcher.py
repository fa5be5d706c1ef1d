"""Children of the launcher: how they start, what they may do, and that none is left."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from runlane.errors import Unavailable
from runlane.scan.children import Child, ChildSpec, ExitInfo, Launcher
from runlane.scan.confine import Limits, mark_of, marked_processes
from tests.waiting import until

LEAVE_A_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(600)
print("left", flush=True)
time.sleep(0 if input() else 0)
"""

WORKER = """
import asyncio
from runlane.scan.children import ChildSpec, Launcher

async def main():
    launcher = Launcher()
    children = [
        await launcher.launch(ChildSpec(attempt="orphan", wall_s=600, probe="noop")),
        await launcher.launch(ChildSpec(attempt="orphan", wall_s=600, argv=["sh", "-c", "sleep 600 & wait"])),
    ]
    print(launcher.pid, *(child.pid for child in children), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as launcher:
        yield launcher


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def program(*argv: str, **changes: Any) -> ChildSpec:
    return replace(ChildSpec(attempt="attempt-1", wall_s=60, argv=argv), **changes)


def probe(**changes: Any) -> ChildSpec:
    return replace(ChildSpec(attempt="attempt-1", wall_s=60, probe="noop"), **changes)


def job(job_id: str, **options: Any) -> bytes:
    return json.dumps({"job": job_id, "target": {"host": "x"}, "options": options}).encode() + b"\n"


async def output_of(child: Child) -> list[bytes]:
    return [line async for line in child.lines()]


async def run(launcher: Launcher, spec: ChildSpec, data: bytes = b"") -> tuple[list[bytes], ExitInfo, Child]:
    async with await launcher.launch(spec) as child:
        child.stdin.write(data)
        child.stdin.close()
        lines = await output_of(child)
        return lines, await child.wait(), child


async def test_launcher_that_is_closed_at_once_leaves_no_descriptor() -> None:
    before = open_descriptors()

    async with Launcher():
        pass

    assert open_descriptors() == before


async def test_a_batch_of_jobs_runs_in_a_forked_probe(launcher: Launcher) -> None:
    lines, info, _ = await run(launcher, probe(), job("a") + job("b"))

    assert [json.loads(line)["job"] for line in lines] == ["a", "b"]
    assert info == ExitInfo(0)


async def test_a_program_is_run_with_its_input_and_exit_code(launcher: Launcher) -> None:
    lines, info, child = await run(
        launcher, program("sh", "-c", "cat; echo last >&2; exit 3"), b"one\ntwo\nthree"
    )

    assert lines == [b"one", b"two", b"three"]
    assert info == ExitInfo(3)
    assert child.stderr_tail == b"last\n"


async def test_arguments_reach_the_program_as_they_are(launcher: Launcher) -> None:
    lines, _, _ = await run(launcher, program("printf", "%s\\n", "$(id)", "; ls", "a  b"))

    assert lines == [b"$(id)", b"; ls", b"a  b"]


async def test_a_missing_program_exits_127_with_the_reason(launcher: Launcher) -> None:
    _, info, child = await run(launcher, program("no-such-tool"))

    assert info == ExitInfo(127)
    assert child.stderr_tail == b"no-such-tool: No such file or directory\n"


async def test_death_by_signal_is_a_negative_code(launcher: Launcher) -> None:
    _, info, _ = await run(launcher, program("sh", "-c", "kill -SEGV $$"))

    assert info == ExitInfo(-signal.SIGSEGV)


async def test_programs_see_a_minimal_environment_and_the_mark(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNLANE_TOKEN", "secret")
    async with Launcher() as fresh:
        lines, _, _ = await run(fresh, program("env", env={"HOME": "/nonexistent"}))

    names = {line.split(b"=")[0] for line in lines}
    assert names == {b"PATH", b"LANG", b"TMPDIR", b"HOME", b"RUNLANE_ATTEMPT"}
    assert b"RUNLANE_ATTEMPT=attempt-1" in lines


async def test_a_forked_probe_shows_its_mark_and_no_secret(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNLANE_TOKEN", "secret")
    async with Launcher() as fresh, await fresh.launch(probe(attempt="attempt-é")) as child:
        await until(lambda: mark_of(child.pid) == "attempt-é")

        assert b"secret" not in environment_of(child.pid)
        assert (child.pid, "attempt-é") in set(marked_processes())


async def test_only_the_three_standard_descriptors_are_open(launcher: Launcher) -> None:
    async with await launcher.launch(probe()), await launcher.launch(probe()):
        lines, _, _ = await run(launcher, program("sh", "-c", "exec ls /proc/self/fd"))

    assert lines == [b"0", b"1", b"2", b"3"]  # 3 is the directory that ls itself reads


async def test_the_wall_limit_ends_a_child_with_sigterm(launcher: Launcher) -> None:
    _, info, _ = await run(launcher, program("sleep", "600", wall_s=0.1))

    assert info == ExitInfo(-signal.SIGTERM, wall_exceeded=True)


async def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(launcher: Launcher) -> None:
    _, info, _ = await run(
        launcher, program("sh", "-c", "trap '' TERM; while :; do sleep 1; done", wall_s=0.1)
    )

    assert info == ExitInfo(-signal.SIGKILL, wall_exceeded=True)


async def test_limits_are_in_force(launcher: Launcher) -> None:
    limits = Limits(address_space_bytes=512 * 1024**2, file_size_bytes=1024**2, open_files=64)
    lines, _, _ = await run(
        launcher, program("sh", "-c", "ulimit -v; ulimit -f; ulimit -n; ulimit -c", limits=limits)
    )

    assert lines == [b"524288", b"2048", b"64", b"0"]


async def test_a_probe_that_eats_memory_fails_alone(launcher: Launcher) -> None:
    limits = Limits(address_space_bytes=400 * 1024**2)
    async with await launcher.launch(probe()) as sibling:
        big = program(sys.executable, "-c", "x = bytearray(10**9)", limits=limits)
        _, info, child = await run(launcher, big)

        assert info.code == 1
        assert b"MemoryError" in child.stderr_tail
        assert not sibling.has_ended


async def test_too_much_output_kills_the_child(launcher: Launcher) -> None:
    lines, info, child = await run(launcher, program("yes", output_cap_bytes=1_000_000))

    assert child.truncated
    assert info.code == -signal.SIGKILL
    assert 0 < len(lines) * 2 <= 1_000_000


async def test_a_line_that_is_too_long_kills_the_child(launcher: Launcher) -> None:
    lines, info, child = await run(launcher, program("sh", "-c", "echo first; tr '\\0' x </dev/zero"))

    assert child.truncated
    assert info.code == -signal.SIGKILL
    assert lines == [b"first"]


async def test_only_the_end_of_the_diagnostics_is_kept(launcher: Launcher) -> None:
    _, _, child = await run(launcher, program("sh", "-c", "yes | head -c 100000 >&2; echo end >&2"))

    assert len(child.stderr_tail) == 16 * 1024
    assert child.stderr_tail.endswith(b"end\n")


async def test_kill_reaches_what_the_child_has_started(launcher: Launcher) -> None:
    async with await launcher.launch(program("sh", "-c", "sleep 600 & echo $!; wait")) as child:
        grandchild = int(await anext(child.lines()))
        child.kill()
        info = await child.wait()

    assert info.code == -signal.SIGKILL
    await until(lambda: is_gone(grandchild))


async def test_what_a_child_leaves_in_its_group_goes_with_it(launcher: Launcher) -> None:
    lines, info, _ = await run(launcher, program("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"))

    assert info.code == 0
    await until(lambda: is_gone(int(lines[0])))


async def test_a_daemon_that_left_the_group_goes_too(launcher: Launcher) -> None:
    async with (
        await launcher.launch(probe(attempt="another")) as sibling,
        await launcher.launch(program(sys.executable, "-c", LEAVE_A_DAEMON)) as child,
    ):
        output = child.lines()
        daemon = next(int(line) for line in [await anext(output), await anext(output)] if line != b"left")
        child.stdin.write(b"go\n")
        await child.wait()

        await until(lambda: is_gone(daemon))
        assert not sibling.has_ended


async def test_output_of_an_ended_child_is_not_lost_to_a_late_reader(launcher: Launcher) -> None:
    async with await launcher.launch(program("seq", "1", "5000")) as child:
        await child.wait()

        assert len(await output_of(child)) == 5000


async def test_leaving_the_context_kills_the_child(launcher: Launcher) -> None:
    async with await launcher.launch(program("sleep", "600")) as child:
        pass

    assert (await child.wait()).code == -signal.SIGKILL


async def test_an_unknown_probe_is_refused_and_the_launcher_goes_on(launcher: Launcher) -> None:
    with pytest.raises(Unavailable, match="no probe rubbish"):
        await launcher.launch(probe(probe="rubbish"))

    assert (await run(launcher, probe()))[1] == ExitInfo(0)


async def test_a_lost_launcher_ends_its_children_and_is_replaced(launcher: Launcher) -> None:
    spec = program("sh", "-c", "sleep 600 & echo $!; wait")
    async with await launcher.launch(spec) as child:
        grandchild = int(await anext(child.lines()))
        before = launcher.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)

        assert await child.wait() == ExitInfo(None, lost=True)
        await until(lambda: is_gone(child.pid) and is_gone(grandchild))

    assert (await run(launcher, probe()))[1] == ExitInfo(0)
    assert launcher.pid != before


async def test_nothing_survives_a_killed_worker() -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert worker.stdout is not None
    pids = [int(text) for text in (await worker.stdout.readline()).split()]
    assert len(pids) == 3
    worker.kill()
    await worker.communicate()

    await until(lambda: all(map(is_gone, pids)))
    await until(lambda: "orphan" not in {mark for _, mark in marked_processes()})


async def test_descriptors_do_not_leak(launcher: Launcher) -> None:
    await run(launcher, probe(), job("a"))
    before = open_descriptors()
    for _ in range(10):
        await run(launcher, probe(), job("a"))
        with pytest.raises(Unavailable):
            await launcher.launch(probe(probe="rubbish"))

    await until(lambda: open_descriptors() <= before)


async def test_a_launch_that_is_cancelled_leaves_no_child(launcher: Launcher) -> None:
    launching = asyncio.create_task(launcher.launch(program("sleep", "600", attempt="unwanted")))
    await asyncio.sleep(0)
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching

    await run(launcher, probe())
    await until(lambda: "unwanted" not in {mark for _, mark in marked_processes()})


def test_it_works_on_uvloop() -> None:
    async def scenario() -> tuple[list[bytes], ExitInfo, Child]:
        async with Launcher() as launcher:
            return await run(launcher, program("cat"), b"x" * 200_000 + b"\n")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        lines, info, _ = runner.run(scenario())

    assert [len(line) for line in lines] == [200_000]
    assert info == ExitInfo(0)
