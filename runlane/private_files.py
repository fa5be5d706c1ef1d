"""Files for their owner's eyes only: credentials, passwords, results that wait to be delivered."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replaces a file in one step, mode 0600, with its folders if need be.

    A reader, and a process that is killed here, leaves or finds the old file or the new one. One writer at a
    time for each file.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
