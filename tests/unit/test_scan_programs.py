"""Batches of foreign programs, one child each or one for many: small programs stand where the tools do."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from runlane.jobs import Outcome
from runlane.scan.children import Launcher
from runlane.scan.programs import ProgramHost
from runlane.tools.adapters.adapter import (
    Adapter,
    Each,
)
from tests.unit.program_batches import batch_of, each, many, outcomes, processes_of, records, run
from tests.waiting import WAIT_S, until

SLEEP = "import time; time.sleep(600)"
FOUND_THEN_SLEEP = """#!sh
while read -r name; do printf '{"host":"%s","n":1}\\n' "$name"; done
exec sleep 600
"""
LIFE_SIGNS = "#!sh\nfor n in 1 2 3 4 5 6 7 8 9 10 11 12 13; do sleep 0.5; printf . >&2; done"
ECHO = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"host": line.strip(), "n": 1}))
"""

FAILS_WITH_BAD = """
import sys
names = sys.stdin.read().split()
if "bad.test" in names:
    sys.exit(9)
for name in names:
    print('{"host": "%s"}' % name)
"""
WAITS = """
import os, sys, time
names = sys.stdin.read().split()
open("GATE-seen", "w").close()
while not os.path.exists("GATE"):
    time.sleep(0.02)
for name in names:
    print('{"host": "%s"}' % name)
"""


@pytest_asyncio.fixture(scope="module")
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as launcher:
        yield launcher


@pytest.fixture
def host(launcher: Launcher, tmp_path: Path) -> ProgramHost:
    return ProgramHost(launcher, tmp_path / "work", {"tool": sys.executable}, {})


@pytest.mark.parametrize("adapter", [each(ECHO), many(ECHO)], ids=["each", "many"])
async def test_every_job_has_its_own_records(host: ProgramHost, adapter: Adapter) -> None:
    members = await run(batch_of(host, adapter, "a", "b", "c"))

    assert outcomes(members) == dict.fromkeys("abc", Outcome.COMPLETED)
    assert {name: records(member) for name, member in members.items()} == {
        name: [{"host": f"{name}.test", "n": 1}] for name in "abc"
    }
    assert all(m.complete and m.reachable and m.coverage == {"all": True} for m in members.values())
    assert all(member.argv[:2] == ("tool", "-c") for member in members.values())
    assert list(host.folder.iterdir()) == []


async def test_members_of_one_child_share_it(host: ProgramHost) -> None:
    script = (
        'import os, sys\nfor l in sys.stdin: print(\'{"host": "%s", "n": %d}\' % (l.strip(), os.getpid()))'
    )

    shared = await run(batch_of(host, many(script), "a", "b"))
    apart = await run(batch_of(host, each(script), "a", "b"))

    assert len({str(records(member)[0]["n"]) for member in shared.values()}) == 1  # type: ignore[index]
    assert len({str(records(member)[0]["n"]) for member in apart.values()}) == 2  # type: ignore[index]


@pytest.mark.parametrize("adapter", [each("pass"), many("pass")], ids=["each", "many"])
async def test_a_clean_end_without_output_is_a_result(host: ProgramHost, adapter: Adapter) -> None:
    members = await run(batch_of(host, adapter, "a"))

    assert outcomes(members) == {"a": Outcome.COMPLETED}
    assert members["a"].records == ()


@pytest.mark.parametrize("make", [each, many], ids=["each", "many"])
async def test_a_program_that_is_not_there_is_no_empty_result(
    host: ProgramHost, make: Callable[[str], Adapter]
) -> None:
    members = await run(batch_of(replace(host, paths={"tool": "/nowhere/tool"}), make(ECHO), "a", "b"))

    assert outcomes(members) == {"a": Outcome.REJECTED, "b": Outcome.REJECTED}
    assert "No such file" in (members["a"].error or "")


@pytest.mark.parametrize("make", [each, many], ids=["each", "many"])
async def test_an_unreadable_line_costs_itself_and_the_completeness(
    host: ProgramHost, make: Callable[[str], Adapter]
) -> None:
    script = 'import sys; h = sys.stdin.readline().strip(); print(\'{"host":"%s"}\\n{"host":\\n[]\' % h)'

    member = (await run(batch_of(host, make(script), "a")))["a"]

    assert (member.outcome, member.complete, records(member)) == (
        Outcome.COMPLETED,
        False,
        [{"host": "a.test"}],
    )
    assert member.error == "2 parts of the output could not be read: a line of output is no JSON"


@pytest.mark.parametrize("make", [each, many], ids=["each", "many"])
async def test_timeout_keeps_and_labels_what_was_found(
    host: ProgramHost, make: Callable[[str], Adapter]
) -> None:
    members = await run(
        batch_of(host, make(FOUND_THEN_SLEEP), "a", "b", options={"timeout_s": 6}, parallelism=2)
    )

    assert outcomes(members) == {"a": Outcome.TIMED_OUT, "b": Outcome.TIMED_OUT}
    assert {name: records(member) for name, member in members.items()} == {
        name: [{"host": f"{name}.test", "n": 1}] for name in "ab"
    }
    assert (members["a"].error or "").startswith("over the limit of")


async def test_silent_program_is_killed(host: ProgramHost) -> None:
    for adapter in (each(SLEEP, silence_s=1), many(SLEEP, silence_s=1)):
        members = await run(batch_of(host, adapter, "a"))

        assert outcomes(members) == {"a": Outcome.TIMED_OUT}
        assert members["a"].error == "the tool gave no life sign"


async def test_diagnostics_are_a_life_sign(host: ProgramHost) -> None:
    batch = batch_of(host, each(LIFE_SIGNS, silence_s=5), "a")

    assert outcomes(await run(batch)) == {"a": Outcome.COMPLETED}


@pytest.mark.parametrize("make", [each, many], ids=["each", "many"])
async def test_program_that_says_too_much_is_killed(
    host: ProgramHost, make: Callable[[str], Adapter]
) -> None:
    script = "while True: print('{\"host\": \"%s\"}' % ('x' * 60))"

    members = await run(batch_of(host, make(script), "a", batch_output_bytes=50_000))

    assert outcomes(members) == {"a": Outcome.TOOL_FAILED}
    assert members["a"].error == "the tool wrote too much"


async def test_job_that_found_too_much_is_cut_and_says_so(host: ProgramHost) -> None:
    script = 'import sys\nh = sys.stdin.readline().strip()\nfor n in range(99): print(\'{"host": "%s"}\' % h)'

    member = (await run(batch_of(host, many(script), "a", job_output_bytes=100)))["a"]

    assert (member.outcome, member.complete) == (Outcome.COMPLETED, False)
    assert sum(map(len, member.records)) <= 100
    assert (member.error or "").startswith("output cut after")


async def test_exit_code_fails_the_job_with_its_diagnostics(host: ProgramHost) -> None:
    script = "import sys; sys.stderr.write('no route'); sys.exit(3)"

    members = await run(batch_of(host, each(script), "a"))

    assert (members["a"].outcome, members["a"].error) == (Outcome.TOOL_FAILED, "exit code 3: no route")


async def test_one_bad_member_does_not_fail_the_others(host: ProgramHost) -> None:
    script = FAILS_WITH_BAD

    members = await run(batch_of(host, many(script), "a", "b", "bad", "c", "d"))

    assert outcomes(members) == {
        **dict.fromkeys("abcd", Outcome.COMPLETED),
        "bad": Outcome.TOOL_FAILED,
    }
    assert all(len(members[name].records) == 1 for name in "abcd")


async def test_stages_hand_on_what_they_found(host: ProgramHost) -> None:
    members = await run(batch_of(host, each(ECHO, ECHO), "a"))

    assert records(members["a"]) == [{"host": "a.test+", "n": 1}]


async def test_result_file_is_read_from_the_private_folder_only(host: ProgramHost) -> None:
    write = "open('out', 'w').write('picture')"
    link = "import os; os.symlink('/etc/hostname', 'out')"

    written = await run(batch_of(host, each(write, output="out"), "a"))
    linked = await run(batch_of(host, each(link, output="out"), "a"))

    assert records(written["a"]) == [{"file": "picture"}]
    assert linked["a"].records == ()


@pytest.mark.parametrize("make", [each, many], ids=["each", "many"])
@pytest.mark.parametrize("options", [{"unheard-of": 1}, {"level": 9}, {"level": "-oX"}])
async def test_option_outside_the_schema_is_fatal_and_starts_nothing(
    host: ProgramHost, make: Callable[[str], Adapter], options: Mapping[str, object]
) -> None:
    members = await run(batch_of(host, make(ECHO), "a", options=options))

    assert outcomes(members) == {"a": Outcome.FATAL}
    assert (members["a"].error or "").startswith(f"option {next(iter(options))}: ")
    assert not host.folder.exists()


async def test_cancelled_job_dies_alone(host: ProgramHost) -> None:
    batch = batch_of(host, each(FOUND_THEN_SLEEP), "a", "b", parallelism=2)
    running = asyncio.create_task(batch.run())
    await until(lambda: len(processes_of(batch)) == 2)

    assert batch.cancel("a", 1)
    assert not batch.cancel("a", 1)
    assert not batch.cancel("b", 2)
    await until(lambda: len(processes_of(batch)) == 1)
    batch.stop()

    async with asyncio.timeout(WAIT_S):
        await running
    assert batch.take_finished() == []
    assert [job.job_id for job in batch.open_jobs()] == ["b"]


@pytest.mark.parametrize("make", [each, many], ids=["each", "many"])
@pytest.mark.parametrize("is_stop", [False, True], ids=["cancel", "stop"])
async def test_batch_that_is_dropped_while_it_starts_leaves_nothing_running(
    host: ProgramHost, make: Callable[[str], Adapter], is_stop: bool
) -> None:
    for turns in range(12):
        batch = batch_of(host, make(SLEEP), "a")
        running = asyncio.create_task(batch.run())
        for _ in range(turns):
            await asyncio.sleep(0)

        if is_stop:
            batch.stop()
        else:
            batch.cancel("a", 1)

        async with asyncio.timeout(WAIT_S):
            await running
        assert processes_of(batch) == []


async def test_stopped_batch_keeps_what_had_ended_and_gives_up_the_rest(host: ProgramHost) -> None:
    finished = asyncio.Event()
    script = "#!sh\nread -r name; case $name in a.*) exit 0;; esac; exec sleep 600"
    batch = batch_of(host, each(script), "a", "b", on_finished=finished.set)
    running = asyncio.create_task(batch.run())
    async with asyncio.timeout(WAIT_S):
        await finished.wait()

    batch.stop()

    async with asyncio.timeout(WAIT_S):
        await running
    assert [member.job_id for member in batch.take_finished()] == ["a"]
    assert [job.job_id for job in batch.open_jobs()] == ["b"]


async def test_output_of_a_cancelled_member_is_discarded_and_the_others_go_on(host: ProgramHost) -> None:
    go = host.folder.parent / "go"
    script = WAITS.replace("GATE", str(go))
    batch = batch_of(host, many(script), "a", "b")
    running = asyncio.create_task(run(batch))
    await until((go.parent / "go-seen").exists)

    assert batch.cancel("a", 1)
    go.touch()

    members = await running
    assert set(members) == {"b"}
    assert records(members["b"]) == [{"host": "b.test"}]


async def test_child_dies_with_its_last_member(host: ProgramHost) -> None:
    batch = batch_of(host, many(SLEEP), "a", "b")
    running = asyncio.create_task(batch.run())
    await until(lambda: bool(processes_of(batch)))

    batch.cancel("a", 1)
    assert batch.is_alive
    batch.cancel("b", 1)

    async with asyncio.timeout(WAIT_S):
        await running
    assert processes_of(batch) == []
    assert batch.take_finished() == []


@pytest.mark.parametrize("adapter", [each(ECHO), many(ECHO)], ids=["each", "many"])
async def test_lost_launcher_costs_nobody_anything(host: ProgramHost, adapter: Adapter) -> None:
    gate = host.folder.parent / "gate"
    wait = WAITS.replace("GATE", str(gate))
    batch = batch_of(host, each(wait) if isinstance(adapter.way, Each) else many(wait), "a")
    running = asyncio.create_task(run(batch))
    await until((gate.parent / "gate-seen").exists)

    assert host.launcher.pid is not None
    os.kill(host.launcher.pid, 9)
    gate.touch()

    assert outcomes(await running) == {"a": Outcome.COMPLETED}


async def test_private_folder_and_home_are_all_that_a_program_is_told_of(
    host: ProgramHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNLANE_TOKEN", "secret")
    script = "import json, os; print(json.dumps({'cwd': os.getcwd(), **os.environ}))"

    found = records((await run(batch_of(host, each(script), "a")))["a"])[0]

    assert isinstance(found, dict)
    assert found["cwd"] == found["HOME"] == found["TMPDIR"]
    assert Path(found["cwd"]).parent == host.folder
    assert set(found) <= {"cwd", "HOME", "TMPDIR", "PATH", "LANG", "RUNLANE_ATTEMPT", "LC_CTYPE"}
