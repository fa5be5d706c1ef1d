"""Where server programs are found, and which servers the environment already names."""

from pathlib import Path

import pytest

from runlane.stack import binaries
from runlane.stack.errors import StackError
from runlane.stack.urls import is_external


def _programs(folder: Path, names: tuple[str, ...]) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_the_chosen_postgres_folder_comes_before_every_wheel(tmp_path: Path) -> None:
    chosen = _programs(tmp_path / "pg", binaries.POSTGRES_PROGRAMS)

    assert binaries.postgres_bin({"RUNLANE_PG_BIN": str(chosen)}) == chosen


def test_a_postgres_folder_without_all_programs_is_passed_over(tmp_path: Path) -> None:
    partial = _programs(tmp_path / "pg", ("postgres",))

    assert binaries.postgres_bin({"RUNLANE_PG_BIN": str(partial)}) == binaries.postgres_bin({})


def test_every_embedded_server_has_its_program() -> None:
    assert binaries.valkey_server().is_file()
    assert binaries.temporal_cli().is_file()
    assert binaries.object_store_argv()[1:] == ("-m", "nanio")


def test_a_server_is_external_only_when_all_its_variables_are_set() -> None:
    given = {
        "RUNLANE_S3_ENDPOINT": "http://s3.test",
        "RUNLANE_S3_ACCESS_KEY": "a",
        "RUNLANE_S3_SECRET_KEY": "b",
    }

    assert is_external("s3", given)
    assert not is_external("s3", {})
    assert not is_external("valkey", given)


def test_a_server_named_by_half_is_refused() -> None:
    with pytest.raises(StackError, match="RUNLANE_S3_SECRET_KEY"):
        is_external("s3", {"RUNLANE_S3_ENDPOINT": "http://s3.test", "RUNLANE_S3_ACCESS_KEY": "a"})
