"""One kept process: restarts, adoption, and what happens to strangers."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runlane import errors
from runlane.stack.errors import ProcessDied, StackError
from runlane.stack.keeper import FIRST_DELAY_S, Keeper, ProcessState, stop_leftover
from runlane.stack.processes import ProcessSpec, launch, wait_ready
from runlane.stack.state import ProcessRecord, State, prepare_folder
from tests.waiting import until

pytestmark = pytest.mark.integration

SLEEPER = (sys.executable, "-c", "import signal; signal.pause()")
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("set", flush=True)
signal.pause()
"""
CRASHER = (sys.executable, "-c", "import time; time.sleep(0.2)")


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State.load(prepare_folder(tmp_path / "state"))


@pytest.fixture
async def keeper(state: State, tmp_path: Path) -> AsyncIterator[Keeper]:
    kept = Keeper("sleeper", lambda: ProcessSpec("sleeper", SLEEPER), state, tmp_path / "sleeper.log")
    yield kept
    await kept.stop()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process, which only its own test may end."""
    with subprocess.Popen(SLEEPER, start_new_session=True) as process:
        yield process
        process.kill()


async def test_a_killed_process_is_restarted_and_counted(keeper: Keeper) -> None:
    await keeper.start()

    for restarts in (1, 2):
        killed = keeper.kill()
        successor = await keeper.recovered(killed)

        assert successor != killed
        assert keeper.status().restarts == restarts


async def test_a_restart_on_request_is_not_counted_as_a_death(keeper: Keeper) -> None:
    await keeper.start()
    before = keeper.pid

    await keeper.restart()

    assert keeper.pid != before
    assert keeper.status().restarts == 0


async def test_a_stopped_process_stays_stopped_and_is_forgotten(keeper: Keeper, state: State) -> None:
    await keeper.start()
    record = state.processes["sleeper"]

    await keeper.stop()

    assert not record.is_alive()
    assert keeper.status().state is ProcessState.STOPPED
    assert state.processes == {}
    with pytest.raises(StackError, match="does not run"):
        _ = keeper.pid


async def test_a_process_that_ignores_the_stop_signal_is_killed_with_its_group(
    state: State, tmp_path: Path
) -> None:
    log_path = tmp_path / "stubborn.log"

    async def ready() -> None:
        if "set" not in log_path.read_text():
            raise errors.Unavailable("handler not set")

    spec = ProcessSpec("stubborn", (sys.executable, "-c", STUBBORN), ready=ready, stop_grace_s=0.2)
    keeper = Keeper("stubborn", lambda: spec, state, log_path)
    await keeper.start()
    record = state.processes["stubborn"]

    await keeper.stop()

    assert not record.is_alive()


async def test_a_process_that_dies_at_start_is_reported_with_the_end_of_its_log(
    state: State, tmp_path: Path
) -> None:
    spec = ProcessSpec("broken", (sys.executable, "-c", "raise SystemExit('no such table')"), ready=_never)
    keeper = Keeper("broken", lambda: spec, state, tmp_path / "broken.log")

    with pytest.raises(ProcessDied, match="no such table"):
        await keeper.start()

    assert keeper.status().state is ProcessState.STOPPED


async def test_a_program_that_does_not_exist_is_named(state: State, tmp_path: Path) -> None:
    keeper = Keeper("ghost", lambda: ProcessSpec("ghost", ("/nonexistent/program",)), state, tmp_path / "log")

    with pytest.raises(StackError, match="/nonexistent/program"):
        await keeper.start()


async def test_a_process_that_never_becomes_ready_tells_the_last_reason(tmp_path: Path) -> None:
    spec = ProcessSpec("slow", SLEEPER, ready=_never)
    process = launch(spec, tmp_path / "slow.log")
    try:
        with pytest.raises(StackError, match="not yet open"):
            await wait_ready(spec, process, tmp_path / "slow.log", timeout_s=0.2)
    finally:
        await process.stop(signal.SIGKILL, 5)


async def test_output_goes_to_the_log_and_a_large_log_is_rotated(tmp_path: Path) -> None:
    log_path = tmp_path / "talker.log"
    log_path.write_bytes(b"x" * (11 * 1024 * 1024))

    process = launch(ProcessSpec("talker", (sys.executable, "-c", "print('hello')")), log_path)
    await process.wait()

    assert log_path.read_text() == "hello\n"
    assert (tmp_path / "talker.log.1").stat().st_size > 10 * 1024 * 1024


async def test_a_crashing_process_is_restarted_with_growing_pauses(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(min(seconds, 0.01))

    monkeypatch.setattr(asyncio, "sleep", note)
    spec = ProcessSpec("crasher", CRASHER)
    keeper = Keeper("crasher", lambda: spec, state, tmp_path / "crasher.log")

    await keeper.start()
    await until(lambda: len([each for each in pauses if each >= FIRST_DELAY_S]) >= 3)
    await keeper.stop()

    assert [each for each in pauses if each >= FIRST_DELAY_S][:3] == [0.1, 0.2, 0.4]


async def test_a_process_of_an_earlier_supervisor_is_adopted_and_then_kept(
    keeper: Keeper, state: State, tmp_path: Path
) -> None:
    await keeper.start()
    pid = keeper.pid
    await keeper.detach()
    successor = Keeper("sleeper", lambda: ProcessSpec("sleeper", SLEEPER), state, tmp_path / "sleeper.log")

    assert await successor.adopt()

    try:
        assert successor.pid == pid
        assert successor.status().adopted
        killed = successor.kill()
        assert await successor.recovered(killed) != pid
    finally:
        await successor.stop()


async def test_a_process_that_was_started_but_never_recorded_is_found_by_its_command_line(
    state: State, tmp_path: Path
) -> None:
    marked = ProcessSpec("sleeper", (*SLEEPER, str(tmp_path)))
    orphan = launch(marked, tmp_path / "sleeper.log")
    keeper = Keeper("sleeper", lambda: marked, state, tmp_path / "sleeper.log")

    assert await keeper.adopt()

    assert keeper.pid == orphan.pid
    await keeper.stop()
    await orphan.wait()


async def test_a_leftover_with_another_command_line_is_stopped(state: State, tmp_path: Path) -> None:
    old = launch(ProcessSpec("sleeper", (*SLEEPER, "old")), tmp_path / "sleeper.log")
    state.record("sleeper", old.record)
    keeper = Keeper("sleeper", lambda: ProcessSpec("sleeper", SLEEPER), state, tmp_path / "sleeper.log")

    assert not await keeper.adopt()

    assert await old.wait() == -signal.SIGTERM


async def test_a_stranger_that_was_given_the_recorded_pid_is_left_alone(
    state: State, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    record = ProcessRecord.of(stranger.pid)
    assert record is not None
    state.record("sleeper", replace(record, started_at=record.started_at - 3600))

    assert not await stop_leftover(state, "sleeper")

    assert stranger.poll() is None
    assert state.processes == {}


async def _never() -> None:
    raise errors.Unavailable("not yet open")
