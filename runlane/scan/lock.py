"""One worker per state folder: two with one credential would end each other."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runlane.errors import Conflict


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; the kernel lets go of it however the process ends.

    Raises:
        Conflict: `worker.state_in_use`.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        detail = f"another scan worker uses {folder}"
        raise Conflict(detail, code="worker.state_in_use") from error
    finally:
        os.close(descriptor)
