"""The worker's credential: who it is, in a file that only its user can read."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from runlane.private_files import write_private

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
