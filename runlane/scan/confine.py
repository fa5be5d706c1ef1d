"""What is done to a child process between its fork and its work, and how to recognise it later.

The kernel features that only Linux has (death signal, adoption of orphans, names) are used where they exist;
what must hold everywhere (own session, limits, closed descriptors, environment) does not depend on them.
"""

import ctypes
import os
import random
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARK: Final = "RUNLANE_ATTEMPT"
"""Environment variable that says for which attempt a process works."""

MARK_BYTES: Final = 200
"""Room for the mark's value in the environment block that the launcher is started with."""

_IS_LINUX: Final = sys.platform == "linux"
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.getenv.restype = ctypes.c_void_p


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a child; None leaves the launcher's own. Core files are never written."""

    address_space_bytes: int | None = 2 * 1024**3
    file_size_bytes: int | None = 256 * 1024**2
    """Largest file it may write."""
    open_files: int | None = 8192


def adopt_orphans() -> None:
    """Makes processes whose parent died children of this one, so that none can hide by forking twice."""
    if _IS_LINUX:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def enter_own_session(launcher_pid: int, name: str) -> None:
    """Leads a new session and process group that dies with the launcher."""
    os.setsid()
    if _IS_LINUX:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _LIBC.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    if os.getppid() != launcher_pid:
        os._exit(1)  # it died before the death signal was set


def reset_process() -> None:
    """Undoes what the launcher set for itself, and the random state that siblings would share."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o077)
    random.seed()


def take_descriptors(stdin: int, stdout: int, stderr: int) -> None:
    """Makes the three descriptors (all above 2) fds 0, 1 and 2 and closes every other one."""
    for number, fd in enumerate((stdin, stdout, stderr)):
        os.dup2(fd, number, inheritable=True)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def apply(limits: Limits) -> None:
    """Lowers the resource limits of this process for good."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, limits.address_space_bytes)
    _limit(resource.RLIMIT_FSIZE, limits.file_size_bytes)
    _limit(resource.RLIMIT_NOFILE, limits.open_files)


def replace_environment(environment: Mapping[str, str], mark: str) -> None:
    """Gives this process exactly `environment` and the mark.

    The mark also goes into the memory that `/proc/<pid>/environ` shows: of a process that does not exec, that
    file would else go on showing what the launcher was started with.
    """
    place = _LIBC.getenv(MARK.encode()) if os.environ.get(MARK) == blank_mark() else None
    if place:
        ctypes.memmove(place, mark.encode()[: MARK_BYTES - 1].ljust(MARK_BYTES, b"\x00"), MARK_BYTES)
    os.environ.clear()
    os.environ.update(environment)
    os.environ[MARK] = mark


def blank_mark() -> str:
    """The value to start the launcher with: room for any mark."""
    return " " * MARK_BYTES


def marked_processes() -> Iterator[tuple[int, str]]:
    """Every process of this user that works for an attempt: pid and mark. Empty where there is no /proc."""
    for directory in Path("/proc").glob("[0-9]*"):
        mark = mark_of(int(directory.name))
        if mark is not None:
            yield int(directory.name), mark


def mark_of(pid: int) -> str | None:
    """Mark of a process; None if it has none, is gone, or belongs to someone else."""
    try:
        block = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    for entry in block.split(b"\x00"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace").strip() or None
    return None


def _limit(kind: int, value: int | None) -> None:
    if value is None:
        return
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))
