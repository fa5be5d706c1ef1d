"""Other servers than the embedded one that speak the protocol of Redis, for the tests of the bus."""

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EMBEDDED = "embedded"
INSTALLED = "redis-server"
"""The server of the system, as Debian 12 has it in version 7.0."""


def installed_server() -> str | None:
    """Path of the system's server, None if there is none."""
    return shutil.which(INSTALLED)


@contextmanager
def run_installed(folder: Path) -> Iterator[str]:
    """Runs the system's server for the length of the block; gives its URL. It may still be starting."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    path = installed_server()
    assert path is not None
    argv = [path, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, start_new_session=True) as server:
        try:
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.send_signal(signal.SIGTERM)
