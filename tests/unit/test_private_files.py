"""Files for their owner's eyes only."""

from pathlib import Path

from runlane.private_files import write_private


def test_written_file_is_whole_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret.json"

    write_private(path, b"first")
    write_private(path, b"second")

    assert path.read_bytes() == b"second"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["secret.json"]


def test_draft_that_a_killed_writer_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".secret.json.draft").write_bytes(b"half of something much lon")

    write_private(tmp_path / "secret.json", b"whole")

    assert (tmp_path / "secret.json").read_bytes() == b"whole"
