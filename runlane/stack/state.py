"""The state folder: who owns it, which ports and passwords it settled on, which processes it started.

```
<state folder>/
  lock          held (flock) by the one supervisor; its pid and start time for `down`
  state.json    0600: ports, secrets, one record per process
  logs/         one file per process
  <service>/    data of one server
```

Ports and secrets are chosen once and kept, so a client that knows an address keeps it across restarts.
"""

import fcntl
import json
import os
import secrets
import signal
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import psutil

from runlane.private_files import write_private
from runlane.stack.errors import StackBusy, StackError

LOOPBACK: Final = "127.0.0.1"
PORT_RANGE: Final = range(21000, 32000)
"""Below those that kernels draw for outgoing connections, so that a stopped server's port stays free."""
START_TOLERANCE_S: Final = 1.0
"""Process start times are derived from the boot time, which moves a little when the clock is corrected."""
SECRET_BYTES: Final = 20
SECRET_NAMES: Final = (
    "postgres",
    "postgres_owner",
    "postgres_api",
    "postgres_system",
    "redis",
    "s3_access_key",
    "s3_secret_key",
    "key_pepper",
    "secret_key",
)


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """Identity of a process across supervisors: a pid alone may have been given to somebody else."""

    pid: int
    started_at: float
    """Seconds since the epoch, as the operating system tells it."""
    stop_signal: int = signal.SIGTERM
    """What asks it to end orderly."""

    @classmethod
    def of(cls, pid: int, stop_signal: int = signal.SIGTERM) -> Self | None:
        """Reads the identity of a running process; None when it is gone or a zombie."""
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return cls(pid, process.create_time(), int(stop_signal))
        except psutil.NoSuchProcess:
            return None

    def is_alive(self) -> bool:
        """Tells whether this very process still runs."""
        current = ProcessRecord.of(self.pid)
        return current is not None and abs(current.started_at - self.started_at) < START_TOLERANCE_S


class State:
    """Contents of `state.json`. Every change is written at once, by rename, so a kill leaves old or new."""

    def __init__(
        self,
        path: Path,
        ports: dict[str, int],
        passwords: dict[str, str],
        processes: dict[str, ProcessRecord],
    ) -> None:
        self._path = path
        self._ports = ports
        self._secrets = passwords
        self._processes = processes

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads the folder's state, or begins a new one with fresh secrets.

        Raises:
            StackError: the file is there but is not ours; nothing is overwritten.
        """
        path = folder / "state.json"
        try:
            raw = json.loads(path.read_text())
            processes = {name: ProcessRecord(**record) for name, record in raw["processes"].items()}
            return cls(path, dict(raw["ports"]), _new_secrets() | raw["secrets"], processes)
        except FileNotFoundError:
            return cls(path, {}, _new_secrets(), {})
        except (ValueError, KeyError, TypeError) as error:
            raise StackError(
                f"{path} cannot be read ({error}); move it away together with its folder"
            ) from error

    def save(self) -> None:
        """Writes the file, readable by its owner only."""
        body = {
            "ports": self._ports,
            "secrets": self._secrets,
            "processes": {name: asdict(record) for name, record in self._processes.items()},
        }
        write_private(self._path, json.dumps(body, indent=1).encode())

    def secret(self, name: str) -> str:
        """Returns a generated password or key."""
        return self._secrets[name]

    def port(self, name: str) -> int:
        """Returns the loopback port kept under this name; draws a free one the first time."""
        if name not in self._ports:
            self._ports[name] = _free_port(taken=set(self._ports.values()))
            self.save()
        return self._ports[name]

    def forget_port(self, name: str) -> None:
        """Gives a port up because a stranger sits on it; the next `port()` draws another."""
        self._ports.pop(name, None)
        self.save()

    @property
    def processes(self) -> dict[str, ProcessRecord]:
        """Recorded processes in the order of their start (a copy)."""
        return dict(self._processes)

    def record(self, name: str, process: ProcessRecord) -> None:
        """Remembers a started process."""
        self._processes.pop(name, None)
        self._processes[name] = process
        self.save()

    def forget(self, name: str) -> None:
        """Forgets a stopped process."""
        if self._processes.pop(name, None) is not None:
            self.save()


def is_port_free(port: int) -> bool:
    """Tells whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def prepare_folder(folder: Path) -> Path:
    """Creates the state folder and returns its absolute path.

    Root must let the unprivileged database user pass through, so its folder is 0711; files are 0600.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
    (folder / "logs").mkdir(mode=0o700, exist_ok=True)
    return folder


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Makes this process the folder's supervisor; the kernel frees the lock when the process dies, however.

    Raises:
        StackBusy: another process is.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = lock_holder(folder)
            who = f" (pid {holder.pid})" if holder else ""
            raise StackBusy(f"the stack in {folder} is already run by another process{who}") from error
        me = ProcessRecord.of(os.getpid())
        stream.truncate()
        json.dump(asdict(me) if me else {}, stream)
        stream.flush()
        try:
            yield
        finally:
            # Nobody holds the lock any more: a reader must not take us for its holder.
            os.truncate(descriptor, 0)


def lock_holder(folder: Path) -> ProcessRecord | None:
    """Returns the live process that last took the lock; None when it is gone."""
    try:
        record = ProcessRecord(**json.loads((folder / "lock").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return record if record.is_alive() else None


def find_by_argv(argv: Sequence[str], stop_signal: int) -> ProcessRecord | None:
    """Finds a process with exactly this command line.

    Covers the moment between the start of a server and its record: the command line names this state folder.
    """
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == list(argv):
            return ProcessRecord.of(process.pid, stop_signal)
    return None


def _new_secrets() -> dict[str, str]:
    return {name: secrets.token_hex(SECRET_BYTES) for name in SECRET_NAMES}


def _free_port(taken: Collection[int]) -> int:
    for _ in range(200):
        port = secrets.choice(PORT_RANGE)
        if port not in taken and is_port_free(port):
            return port
    raise StackError(f"no free port on {LOOPBACK} between {PORT_RANGE.start} and {PORT_RANGE.stop}")
