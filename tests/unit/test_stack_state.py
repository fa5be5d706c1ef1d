"""The state folder: kept ports and secrets, one supervisor, identity of processes."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from runlane.stack.errors import StackBusy, StackError
from runlane.stack.state import (
    LOOPBACK,
    PORT_RANGE,
    ProcessRecord,
    State,
    hold_lock,
    is_port_free,
    lock_holder,
    prepare_folder,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return prepare_folder(tmp_path / "state folder")


def test_ports_and_secrets_are_the_same_after_reload(folder: Path) -> None:
    first = State.load(folder)
    port, secret = first.port("redis"), first.secret("redis")
    first.save()

    second = State.load(folder)

    assert (second.port("redis"), second.secret("redis")) == (port, secret)
    assert port in PORT_RANGE


def test_secrets_differ_from_each_other_and_between_folders(tmp_path: Path) -> None:
    folders = [prepare_folder(tmp_path / name) for name in ("a", "b")]
    states = [State.load(each) for each in folders]

    secrets = {state.secret(name) for state in states for name in ("redis", "postgres", "key_pepper")}

    assert len(secrets) == 6
    assert min(len(secret) for secret in secrets) >= 32


def test_files_with_secrets_are_readable_by_their_owner_only(folder: Path) -> None:
    State.load(folder).save()

    assert (folder / "state.json").stat().st_mode & 0o777 == 0o600
    assert (folder / "logs").stat().st_mode & 0o777 == 0o700


def test_a_secret_that_an_older_file_lacks_is_added(folder: Path) -> None:
    (folder / "state.json").write_text('{"ports": {}, "secrets": {"redis": "kept"}, "processes": {}}')

    state = State.load(folder)

    assert state.secret("redis") == "kept"
    assert state.secret("key_pepper")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"ports": 1}'])
def test_an_unreadable_state_file_is_refused_and_left_alone(folder: Path, content: str) -> None:
    (folder / "state.json").write_text(content)

    with pytest.raises(StackError, match=r"state\.json cannot be read"):
        State.load(folder)

    assert (folder / "state.json").read_text() == content


def test_a_port_given_up_is_drawn_anew(folder: Path) -> None:
    state = State.load(folder)
    port = state.port("s3")
    with socket.create_server((LOOPBACK, port)):
        assert not is_port_free(port)
        state.forget_port("s3")

        assert state.port("s3") != port


def test_processes_are_remembered_in_the_order_of_their_start(folder: Path) -> None:
    state = State.load(folder)
    me = ProcessRecord.of(os.getpid())
    assert me is not None
    for name in ("a", "b", "a"):
        state.record(name, me)

    assert list(State.load(folder).processes) == ["b", "a"]


def test_a_second_supervisor_is_refused_and_told_who_holds_the_folder(folder: Path) -> None:
    with hold_lock(folder), pytest.raises(StackBusy, match=f"pid {os.getpid()}"), hold_lock(folder):
        pass

    with hold_lock(folder):
        assert lock_holder(folder) is not None


def test_a_pid_with_another_start_time_is_not_our_process() -> None:
    me = ProcessRecord.of(os.getpid())
    assert me is not None

    assert me.is_alive()
    assert not replace(me, started_at=me.started_at - 60).is_alive()
