"""The worker's credential: who it is, in a file that only its user can read."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

_FILE: Final = "worker.json"


@dataclass(frozen=True, slots=True)
class Credential:
    """What the API gave this worker at its enrolment."""

    worker_id: str
    token: str = field(repr=False)


def load_credential(folder: Path) -> Credential | None:
    """Reads the credential; None if there is none, or none that can be read as one."""
    try:
        raw: object = orjson.loads((folder / _FILE).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    match raw:
        case {"worker_id": str(worker_id), "token": str(token)}:
            return Credential(worker_id, token)
        case _:
            return None


def save_credential(folder: Path, credential: Credential) -> None:
    """Writes the credential: whole or not at all, readable by its owner alone."""
    text = orjson.dumps({"worker_id": credential.worker_id, "token": credential.token})
    write_private(folder / _FILE, text)


def forget_credential(folder: Path) -> None:
    """Removes a credential that the API no longer knows."""
    (folder / _FILE).unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Replaces a file in one step; mode 0600. A reader sees the old file or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
